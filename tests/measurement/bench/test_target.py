"""What a bench aims at: the server of this host with what it runs, or another one."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from medley import serving
from medley.engine import Serving
from medley.measurement.bench import BenchLoad
from medley.measurement.bench.target import TargetOptions, find_target
from medley.planner import Device, Layout, Stage
from medley.progress import SILENT, SilentProgress
from medley.serving import Description
from tests.problems import raises_problem

LOAD = BenchLoad((1, 4))
pytestmark = pytest.mark.usefixtures("asked_once")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MEDLEY_API_KEY", raising=False)
    return tmp_path


@contextmanager
def served(url: str, folder: Path, *, state: str = "ready", layout: Layout | None = None) -> Iterator[Path]:
    """As `medley serve` notes it; returns the folder of the engine's programs."""
    port, programs = int(url.rpartition(":")[2].partition("/")[0]), folder / "env" / "bin"
    programs.mkdir(parents=True)
    for name in ("python", "sglang"):
        (programs / name).touch(0o755)
    argv = (str(programs / "sglang"), "serve", str(folder))
    what = Description("sglang", "demo", str(folder), argv, {}, {"kv_type": "auto"}, layout)
    with ExitStack() as held:
        tell = held.enter_context(serving.note_server(Serving(str(folder), "tiny", port=port)))
        held.enter_context(serving.keep_description(port, what))
        tell(state)
        yield programs


class Kept(SilentProgress):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.mark.parametrize("by_url", [True, False], ids=["named by its address", "the newest here"])
def test_what_this_host_serves_is_known(server: str, tmp_path: Path, *, by_url: bool) -> None:
    with served(server, tmp_path) as programs:
        found = find_target(TargetOptions(url=server.removesuffix("/v1") if by_url else None), SILENT)
    assert (found.engine, found.binary, found.model) == ("sglang", programs, "demo")
    assert found.served.model == "tiny"
    assert found.served.tokenizer == str(tmp_path)
    assert f"{found.served.base}{found.served.path}" == server
    assert found.served.env["HF_HUB_OFFLINE"] == "1"
    assert list(found.transcripts) == [os.uname().nodename]


def test_the_layout_that_is_served_is_predicted(server: str, tmp_path: Path) -> None:
    layout = Layout((Stage((Device("box", 0, "spark", 1 << 34, 273.0, 125.0),), 6),))
    with served(server, tmp_path, layout=layout):
        found = find_target(TargetOptions(), SILENT).expected(LOAD, SILENT)
    assert set(found) == {1, 4}
    assert found[4].output_tokens_per_s > found[1].output_tokens_per_s > 0


def test_on_a_cpu_nothing_is_predicted(server: str, tmp_path: Path) -> None:
    watch, layout = Kept(), Layout((Stage((Device("vm", 0, "cpu", 1 << 34, 20.0, 0.5),), 6),))
    with served(server, tmp_path, layout=layout):
        assert find_target(TargetOptions(), SILENT).expected(LOAD, watch) == {}
    assert any("no speed is predicted on a CPU" in each for each in watch.notes)


def test_what_is_not_known_is_not_predicted_and_said(server: str, tmp_path: Path) -> None:
    watch = Kept()
    with served(server, tmp_path):
        assert find_target(TargetOptions(), SILENT).expected(LOAD, watch) == {}
    assert watch.notes == ["not predicted: nothing here says how that server's model lies on its hosts"]


def test_a_server_that_is_not_ready_is_waited_for_by_its_user(server: str, tmp_path: Path) -> None:
    with (
        served(server, tmp_path, state="starting"),
        raises_problem(cause=("tiny ", "starting")),
    ):
        find_target(TargetOptions(), SILENT)


def test_another_servers_folder_is_no_tokenizer_here(server: str) -> None:
    """What it says of its model is a name, which is no folder of this host."""
    with raises_problem(cause="/absent/models/m", fix="--tokenizer Qwen/Qwen3-8B"):
        find_target(TargetOptions(url=server, tokenizer="/absent/models/m"), SILENT)
