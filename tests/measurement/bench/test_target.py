"""The target of a bench: the server of this host with its plan, or another one."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from medley.engine.server_spec import ServerSpec
from medley.measurement.bench.load import BenchLoad
from medley.measurement.bench.target import TargetOptions, prepare_target
from medley.model import hub, trust
from medley.model.remote_code import Code, compute_fingerprints, read_folder_code
from medley.planner import Device, Layout, Stage
from medley.progress import SILENT, SilentProgress
from medley.serving import server_description, server_records
from medley.serving.server_description import Description
from tests.problems import raises_problem
from tests.web_server import answering

LOAD = BenchLoad((1, 4))
pytestmark = pytest.mark.usefixtures("asked_once")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MEDLEY_API_KEY", raising=False)
    return tmp_path


@contextmanager
def note_served(
    url: str, folder: Path, *, state: str = "ready", layout: Layout | None = None
) -> Iterator[Path]:
    """Note a server as `medley serve` does; return the folder of the engine's programs."""
    port, programs = int(url.rpartition(":")[2].partition("/")[0]), folder / "env" / "bin"
    programs.mkdir(parents=True)
    for name in ("python", "sglang"):
        (programs / name).touch(0o755)
    argv = (str(programs / "sglang"), "serve", str(folder))
    description = Description("sglang", "demo", str(folder), argv, {}, {"kv_type": "auto"}, layout)
    with ExitStack() as stack:
        set_state = stack.enter_context(
            server_records.record_server(ServerSpec(str(folder), "tiny", port=port))
        )
        stack.enter_context(server_description.store_description(port, description))
        set_state(state)
        yield programs


class RecordedNotes(SilentProgress):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.mark.parametrize("by_url", [True, False], ids=["named by its address", "the newest here"])
def test_what_this_host_serves_is_known(server: str, tmp_path: Path, *, by_url: bool) -> None:
    with note_served(server, tmp_path) as programs:
        target = prepare_target(TargetOptions(url=server.removesuffix("/v1") if by_url else None), SILENT)
    assert (target.engine, target.program_folder, target.model) == ("sglang", programs, "demo")
    assert target.served.model == "tiny"
    assert target.served.tokenizer == str(tmp_path)
    assert f"{target.served.base_url}{target.served.api_path}" == server
    assert target.served.variables["HF_HUB_OFFLINE"] == "1"
    assert list(target.transcripts) == [os.uname().nodename]


def test_the_client_runs_no_code_of_a_tokenizer(server: str, tmp_path: Path) -> None:
    """SGLang's client trusts any tokenizer, and a server's card may name one with code."""
    with note_served(server, tmp_path):
        target = prepare_target(TargetOptions(tokenizer="evil/words"), SILENT)
    for run in LOAD.list_runs():
        assert target.build_command(run, tmp_path).env["HF_MODULES_CACHE"] == "/dev/null/untrusted-code"


@pytest.mark.parametrize("is_changed", [False, True])
def test_the_client_runs_code_that_is_pinned(server: str, tmp_path: Path, *, is_changed: bool) -> None:
    (tmp_path / "config.json").write_text('{"auto_map": {"AutoTokenizer": ["own.Words", null]}}')
    (tmp_path / "own.py").write_text("pass")
    code = read_folder_code(tmp_path)
    assert code
    trust.keep_pin(code)
    if is_changed:
        (tmp_path / "own.py").write_text("print()")
    with note_served(server, tmp_path):
        target = prepare_target(TargetOptions(), SILENT)
    assert ("HF_MODULES_CACHE" in target.served.variables) == is_changed
    assert target.served.tokenizer == str(tmp_path)


def test_the_client_reads_a_repository_at_its_pinned_commit(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "find_cache_folder", lambda: tmp_path)
    folder = tmp_path / "models--org--words" / "snapshots" / ("c" * 40)
    folder.mkdir(parents=True)
    (folder / "own.py").write_text("pass")
    trust.keep_pin(Code("org/words", compute_fingerprints(folder), folder.name))
    with note_served(server, tmp_path):
        target = prepare_target(TargetOptions(tokenizer="org/words"), SILENT)
    assert target.served.tokenizer == str(folder)
    assert "HF_MODULES_CACHE" not in target.served.variables


def test_the_layout_that_is_served_is_predicted(server: str, tmp_path: Path) -> None:
    layout = Layout((Stage((Device("box", 0, "spark", 1 << 34, 273.0, 125.0),), 6),))
    with note_served(server, tmp_path, layout=layout):
        figures = prepare_target(TargetOptions(), SILENT).predict_figures(LOAD, SILENT)
    assert set(figures) == {1, 4}
    assert figures[4].output_tokens_per_s > figures[1].output_tokens_per_s > 0


def test_on_a_cpu_nothing_is_predicted(server: str, tmp_path: Path) -> None:
    watch, layout = RecordedNotes(), Layout((Stage((Device("vm", 0, "cpu", 1 << 34, 20.0, 0.5),), 6),))
    with note_served(server, tmp_path, layout=layout):
        assert prepare_target(TargetOptions(), SILENT).predict_figures(LOAD, watch) == {}
    assert any("no speed is predicted on a CPU" in note for note in watch.notes)


def test_what_is_not_known_is_not_predicted_and_said(server: str, tmp_path: Path) -> None:
    watch = RecordedNotes()
    with note_served(server, tmp_path):
        assert prepare_target(TargetOptions(), SILENT).predict_figures(LOAD, watch) == {}
    assert watch.notes == ["not predicted: nothing here says how that server's model lies on its hosts"]


def test_a_server_that_is_not_ready_is_waited_for_by_its_user(server: str, tmp_path: Path) -> None:
    with (
        note_served(server, tmp_path, state="starting"),
        raises_problem(cause=("tiny ", "starting")),
    ):
        prepare_target(TargetOptions(), SILENT)


def test_another_servers_folder_is_no_tokenizer_here(server: str) -> None:
    """The server's model is a folder that this host does not have."""
    with raises_problem(cause="/absent/models/m", fix="--tokenizer Qwen/Qwen3-8B"):
        prepare_target(TargetOptions(url=server, tokenizer="/absent/models/m"), SILENT)


def test_a_name_of_a_model_is_one_word_of_the_fix() -> None:
    with (
        answering({"/v1/models": b'{"data": [{"id": "a;$(id)"}]}'}) as found,
        raises_problem("does not serve m", fix="--model 'a;$(id)'"),
    ):
        prepare_target(TargetOptions(url=f"{found.url}/v1", model="m"), SILENT)
