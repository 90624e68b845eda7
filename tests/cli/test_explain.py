"""`medley explain` as typed."""

import gzip
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from medley.cli.explain import ExplainVerb
from tests.explain.test_explain import example
from tests.problems import raises_problem

HEALTHY = "(APIServer pid=1) INFO:     Application startup complete.\n"
UNKNOWN = "Traceback (most recent call last):\nFooError: something odd\n"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def run(*words: str) -> int:
    _, status = ExplainVerb.run(["medley explain", *words], exit=False)
    return int(status)


def test_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "serve.log"
    log.write_text(example("gpu-memory-taken"))
    assert run(str(log)) == 1
    said = capsys.readouterr().out
    assert said.startswith(
        "the GPU has too little free memory to start\n  cause: 23.41 of 119.7 GiB are free"
    )
    assert f"  line:  {log}:3: ValueError: Free memory on device cuda:0" in said


def test_the_host_of_a_line_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The prefix of Ray that has it is cut from the line."""
    log = tmp_path / "serve.log"
    log.write_text(
        "(RayWorkerWrapper pid=344, ip=10.2.30.130) RuntimeError: Cannot find any model weights with `/m`\n"
    )
    assert run(str(log)) == 1
    assert "  host:  10.2.30.130\n" in capsys.readouterr().out


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "serve.log"
    log.write_text(example("heads-indivisible"))
    assert run("--json", str(log)) == 1
    table: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert set(table) == {"problems"}
    (problem,) = table["problems"]
    assert problem["cause"].startswith("14 cannot be shared by 4 ranks: the attention heads")
    assert problem["confidence"] == "high"
    assert {"what", "cause", "fix", "line", "confidence", "name", "file", "line_number"} <= set(problem)


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(Path(sys.executable).read_bytes()[:100_000], id="a program"),
        pytest.param(
            gzip.compress((UNKNOWN * 400 + example("gpu-memory-taken")).encode(), mtime=0), id="compressed"
        ),
    ],
)
def test_a_binary_file_is_a_problem(tmp_path: Path, made: bytes) -> None:
    log = tmp_path / "a;x.log.gz"
    log.write_bytes(made)
    with raises_problem(str(log), fix=f"zcat '{log}' | medley explain -"):
        run(str(log))


def test_a_log_that_begins_with_zeros_is_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "serve.log"
    log.write_bytes(b"\0" * 9000 + "Grüße, 你好\n".encode() + HEALTHY.encode())
    assert run(str(log)) == 0
    assert "no failure is in" in capsys.readouterr().out


def test_a_healthy_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "good.log"
    log.write_text(HEALTHY)
    assert run("--json", str(log)) == 0
    assert json.loads(capsys.readouterr().out) == {"problems": []}
    assert run(str(log)) == 0
    assert capsys.readouterr().out == f"no failure is in {log} (1 lines)\n"


def test_what_is_unknown_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, report = tmp_path / "odd.log", tmp_path / "report.txt"
    log.write_text(UNKNOWN)
    assert run("--report", str(report), str(log)) == 1
    said = capsys.readouterr().out
    assert said.startswith("unknown failure: FooError\n  cause: its message: FooError: something odd")
    assert f"  line:  {log}:2: FooError: something odd\n  sure:  low\n" in said
    assert said.endswith(f"a report to attach, without secrets: {report}\n")
    assert "FooError: something odd" in report.read_text()


def test_a_report_of_its_own_accord(tmp_path: Path, state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "odd.log"
    log.write_text(UNKNOWN)
    assert run("--json", str(log)) == 1
    table = json.loads(capsys.readouterr().out)
    (problem,) = table["problems"]
    assert (problem["name"], problem["line_number"], problem["line"]) == (
        "unknown-error",
        2,
        "FooError: something odd",
    )
    assert "attach the report" in problem["fix"]
    assert "--report" not in problem["fix"], "there is one already"
    assert [str(file) for file in (state / "reports").iterdir()] == [table["report"]]


@pytest.mark.parametrize("text", ["", "\n  \n"], ids=["nothing", "blank lines"])
def test_an_empty_log_shows_nothing(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, good = tmp_path / "empty.log", tmp_path / "good.log"
    log.write_text(text)
    good.write_text(HEALTHY)
    with raises_problem(
        str(log), cause="2>&1", fix=("medley explain", "docker logs NAME 2>&1 | medley explain -")
    ):
        run(str(log))
    assert run("--json", str(log)) == 0
    assert json.loads(capsys.readouterr().out) == {"problems": []}
    assert run(str(log), str(good)) == 0
    assert capsys.readouterr().err == f"medley: {log} is empty\n"


def test_the_newest_logs_of_medley(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import os

    with raises_problem(
        cause="/state/logs", fix=("medley explain FILE", "docker logs NAME 2>&1 | medley explain -")
    ):
        run()
    (state / "logs").mkdir(parents=True)
    for name, age_s in (("serve-8000", 0), ("medley-ray", 5), ("serve-7000", 5000)):
        file = state / "logs" / f"{name}.log"
        file.write_text(example("port-taken") if age_s else HEALTHY)
        when = 1_800_000_000 - age_s
        os.utime(file, (when, when))
    assert run("--json") == 1
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert problem["file"].endswith("medley-ray.log")


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    data = example("disk-full").encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert run("--json", "-") == 1
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert (problem["name"], problem["file"]) == ("disk-full", "standard input")


def test_a_file_that_is_not_there() -> None:
    with raises_problem("/nonexistent/x.log", cause="No such file", fix="medley explain FILE"):
        run("/nonexistent/x.log")


@pytest.mark.parametrize("more", [(), ("--json",)], ids=["text", "JSON"])
def test_a_report_that_cannot_be_written_hides_no_diagnosis(
    more: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As where the disk is full."""
    (tmp_path / "serve.log").write_text(UNKNOWN)
    (tmp_path / "state").touch()
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    assert run(*more, str(tmp_path / "serve.log")) == 1
    said = capsys.readouterr()
    assert "FooError" in said.out
    assert "no report was written: " in said.err
    if more:
        assert json.loads(said.out)["problems"]


def test_a_report_that_was_asked_for_and_cannot_be_written_is_a_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "serve.log").write_text(UNKNOWN)
    (tmp_path / "file").touch()
    with raises_problem(str(tmp_path / "file"), cause="is a file, not a folder"):
        run("--report", str(tmp_path / "file" / "report"), str(tmp_path / "serve.log"))
    assert "FooError" in capsys.readouterr().out


def test_a_log_that_cannot_be_read_leaves_the_others(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The newest are of one start; `serve` of one host may have been root's."""
    (state / "logs" / "serve-8001.log").mkdir(parents=True)
    (state / "logs" / "serve-8000.log").write_text(UNKNOWN)
    os.utime(state / "logs" / "serve-8000.log", (1, 1))
    os.utime(state / "logs" / "serve-8001.log", (2, 2))
    assert run() == 1
    assert "FooError" in capsys.readouterr().out
