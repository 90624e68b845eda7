"""`medley bench --field-report` as it is typed; what it measures is seen on the rack."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.field_report import read
from medley.cli import field_report
from medley.cli.field_report import FieldReportOptions, write_field_report
from medley.measurement.bench.load import BenchLoad
from medley.progress import SILENT
from tests.problems import assert_problem, problem_in, raises_problem

Run = Callable[..., tuple[int, str, str]]
REPORT = ("bench", "--field-report")

pytestmark = pytest.mark.usefixtures("asked_once")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("MEDLEY_CONFIG", str(tmp_path / "config"))
    monkeypatch.delenv("MEDLEY_CLUSTER", raising=False)
    monkeypatch.chdir(tmp_path)


def test_a_dry_run_of_one_host(run: Run, tmp_path: Path) -> None:
    status, out, _ = run(*REPORT, "r.json", "--dry-run", "--concurrency", "1,2")
    assert status == 0
    assert [line.partition("   #")[0] for line in out.splitlines()] == [
        "medley doctor --json; medley facts --transcript",
        "medley serve demo --port 8000 --hosts 1",
        "medley bench --concurrency 1,2 --repeats 3",
        "medley collective-test --json --limit 30 --only speed",
    ]
    assert not (tmp_path / "r.json").exists()


def test_a_dry_run_of_a_cluster(run: Run) -> None:
    Path("cluster.toml").write_text("[hosts.localhost]\n[hosts.spark-2]\nssh = '192.0.2.9'\n")
    _, out, _ = run("bench", "qwen3-8b", "--field-report", "r.json", "--dry-run")
    typed = [line.partition("   #")[0] for line in out.splitlines()]
    assert "medley link test spark-2 --seconds 3" in typed
    assert "medley up" in typed
    assert "medley serve demo --port 8000 --hosts 2 --dp 1" in typed
    assert "medley serve qwen3-8b --port 8000" in typed
    assert typed[-1] == "medley collective-test --json --limit 30"


@pytest.mark.parametrize("word", ["--offline", "--json", "--url"])
def test_what_does_not_go_with_it(run: Run, word: str) -> None:
    more = ("http://x/v1",) if word == "--url" else ()
    status, _, said = run(*REPORT, "r.json", word, *more)
    assert status == 2
    assert "--field-report" in said or "field-report" in said


def test_one_model_too_many(run: Run) -> None:
    status, _, said = run("bench", "demo", "qwen3-8b", "--field-report", "r.json")
    assert status == 1
    assert_problem(problem_in(said), "'qwen3-8b'", fix="medley bench demo --field-report r.json")


def options(file: str = "r.json", model: str | None = None) -> FieldReportOptions:
    return FieldReportOptions(file, BenchLoad((1,), 1), 60, model, "vllm")


def test_a_model_that_is_none_is_said_before_anything_is_measured() -> None:
    with raises_problem("'gtp'", fix="medley models"):
        write_field_report(options(model="gtp"), SILENT)
    assert not Path("r.json").exists()


def test_a_file_that_cannot_be_written() -> None:
    with raises_problem("none/r.json", cause="/none", fix=f"mkdir -p {Path('none').resolve()}"):
        write_field_report(options("none/r.json"), SILENT)


def test_ctrl_c_keeps_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(field_report, "add_model", stopped)
    with pytest.raises(KeyboardInterrupt):
        write_field_report(options(), SILENT)
    found = read(Path("r.json"))
    assert not found.whole
    assert [host.name for host in found.hosts] == ["host-1"]
    assert found.doctor
    assert "stopped; what was measured is kept in r.json" in capsys.readouterr().err


def test_a_whole_report_of_one_host(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(words: tuple[str, ...], *_: object, **__: object) -> tuple[str, ...]:
        return (json.dumps({"speeds": [], "failed": {}, "words": words}),)

    monkeypatch.setattr(field_report, "add_model", lambda *_: None)
    monkeypatch.setattr(field_report, "run_verb", measured)
    write_field_report(options(), SILENT)
    found = read(Path("r.json"))
    assert found.whole
    assert found.collective
    assert "--only" in found.collective["words"]
    out = capsys.readouterr().out
    assert "nothing of it was sent" in out
    assert "read it before you send it: less r.json" in out
