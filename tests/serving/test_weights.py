"""Which files of a model are fetched before its engine starts, and what a failed download reports."""

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from medley import config
from medley.cli.progress import PlainProgress
from medley.cluster.membership import Membership
from medley.command import Command
from medley.engine.launch import LaunchOrder
from medley.engine.server_spec import ServerSpec
from medley.errors import Problem
from medley.model import hub
from medley.model.extra_files import NO_EXTRAS, ModelExtras
from medley.model.remote_code import Code
from medley.model.resolve import Weights
from medley.progress import SILENT, SilentProgress
from medley.serving import weights
from tests.model.hub_server import large_repositories, serving
from tests.problems import raises_problem

COMMIT = "ab" * 20
CODE = ModelExtras(Code("org/one", {}, COMMIT))
PROGRESS = json.dumps({"progress": {"spark-1": [1, 2]}})


class Joined(Membership):
    """A cluster whose programs are never started."""

    def build_command(self, script: str, *words: str) -> Command:
        return Command((script, *words))


def fetched(lines: Iterable[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Fetch over a cluster whose program prints these lines; returns its command."""
    started = []

    def run(command: Command, *, on_line: Callable[[str], None]) -> None:
        started.append(command)
        for line in lines:
            on_line(line)

    monkeypatch.setattr("medley.process.run", run)
    asked = weights.HubFiles("org/one", COMMIT)
    weights.fetch_on_all_hosts(
        Joined("head", "10.0.0.1:24000", "10.0.0.1", "eth0", "/env", "/token"),
        ["10.0.0.1"],
        "one",
        asked,
        SILENT,
    )
    return started[0]


def test_a_warning_after_the_answer_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [PROGRESS, '{"failed": {}}', "UserWarning: leaked semaphore", PROGRESS]
    command = fetched(lines, monkeypatch)
    assert command.argv[3:5] == ("org/one", COMMIT)


def test_a_failure_names_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    with raises_problem("spark-2", "org/one", cause="OSError: no room", fix="medley pull org/one"):
        fetched(['{"failed": {"spark-2": "OSError: no room"}}', "a warning"], monkeypatch)


def test_an_end_without_an_answer_reports_its_last_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Problem) as caught:
        fetched([PROGRESS, *"abcde", PROGRESS], monkeypatch)
    assert caught.value.cause == "b\nc\nd\ne"


@pytest.mark.parametrize(
    ("flags", "downloads"),
    [
        ((), True),
        (("--load-format", "auto"), True),
        (("--load-format=FastSafetensors",), True),
        (("--load-format", "dummy"), False),
        (("--load-format", "dummy", "--load-format", "auto"), True),
        (("--load-format=runai_streamer",), False),
        (("--load-format", "of_a_plugin"), False),
        (("--download-dir", "/data"), False),
    ],
    ids=str,
)
def test_only_a_loader_that_reads_elsewhere_fetches_by_itself(
    flags: tuple[str, ...], *, downloads: bool
) -> None:
    assert (weights.find_hub_files(order(flags)) is not None) == downloads


def order(flags: tuple[str, ...], args: tuple[str, ...] = (), beside: ModelExtras = NO_EXTRAS) -> LaunchOrder:
    model = config.load_models()["qwen3-8b"].replace(args={"vllm": args})
    return LaunchOrder(
        Weights("one", "org/one", model),
        ServerSpec("org/one", "one"),
        engine_flags=flags,
        model_extras=beside,
    )


@pytest.mark.parametrize(
    ("asked", "revision"),
    [
        pytest.param(order(()), None, id="the newest"),
        pytest.param(order(("--revision", "v1")), "v1", id="the user's"),
        pytest.param(order(("--revision=v1",), ("--revision", "v0")), "v1", id="the user's wins"),
        pytest.param(order((), ("--revision", "v0")), "v0", id="its table's"),
        pytest.param(order((), ("--revision=v0",), CODE), COMMIT, id="of the trusted code"),
    ],
)
def test_the_files_are_those_of_the_engines_revision(asked: LaunchOrder, revision: str | None) -> None:
    assert weights.find_hub_files(asked) == weights.HubFiles("org/one", revision)


def test_a_table_may_name_a_loader_that_reads_elsewhere() -> None:
    assert weights.find_hub_files(order((), ("--load-format", "dummy"))) is None


class Heard(SilentProgress):
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.moves: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def moved(self, text: str) -> None:
        self.moves.append(text)


def test_a_download_says_that_it_was_compared_with_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    heard, asked = Heard(), weights.HubFiles("org/both")
    with serving(large_repositories(), monkeypatch, tmp_path):
        weights.fetch_weights("both", asked, heard)
        assert hub.is_cached("org/both")
        assert "2 of 2 large files" in heard.notes[-1]
        weights.fetch_weights("both", asked, again := Heard())
    assert again.notes == [], "once"


def test_a_rate_begins_again_where_all_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    heard, now = Heard(), iter((0.0, 10.0, 20.0, 30.0))
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    rate = weights.DownloadProgress(heard)
    for done in (0, 10**9, 0, 5 * 10**8):
        rate.report(done, 10**9)
    assert [text.split(", ")[1] for text in heard.moves] == ["0 MB/s", "100 MB/s", "0 MB/s", "50 MB/s"]


def test_a_model_that_is_here_has_no_stage(capsys: pytest.CaptureFixture[str]) -> None:
    weights.fetch_weights("smollm2", None, PlainProgress())
    assert capsys.readouterr().err == ""
