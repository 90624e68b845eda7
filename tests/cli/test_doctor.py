"""`medley doctor`, as it is typed."""

import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from medley import process
from medley.cli.agent import state
from medley.command import Command
from medley.doctor import examination
from medley.transcript import format_transcript, parse_transcript
from tests.host.health.cases import answers
from tests.host.recordings import HOSTS
from tests.problems import assert_problem, problem_in, raises_problem

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("MEDLEY_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")


def test_a_bug_report_is_examined(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(format_transcript(answers("spark-mtu-mismatch")))
    status, out, _ = run("doctor", "--from", str(tmp_path / "a.txt"), str(HOSTS / "spark-pair-b.txt"))
    assert status == 1
    lines = out.splitlines()
    assert lines[0].startswith("a  DGX Spark")
    assert lines[0].endswith(" · Ubuntu 24.04.3 LTS · driver 580.126.09 · CUDA 13.0")
    assert lines[1] == "  ✗ enp1s0f1np1 has MTU 1500, and its peers in 192.168.100.0/24 have 9000"
    assert lines[2].startswith("      a enp1s0f1np1 1500, ")
    assert lines[3] == (
        "      fix  sudo $(command -v medley) link setup"
        " --interface enp1s0f1np1 --address 192.168.100.10/24 --mtu 9000"
    )
    first, second = (nr for nr, line in enumerate(lines) if line.endswith(" checks passed"))
    assert lines.index(next(line for line in lines if line.startswith("spark-pair-b  "))) in range(
        first, second
    )
    assert lines[-1].startswith("2 hosts: 2 errors, ")


def test_brief_prints_only_errors_and_warnings(run: Run) -> None:
    status, out, _ = run("doctor", "--brief", "--from", str(HOSTS / "spark.txt"))
    assert status == 0
    assert out.splitlines() == [out.strip()]
    assert out.startswith("1 host: ")


def test_verbose_lists_what_the_short_form_counts(run: Run) -> None:
    asked = ("doctor", "--from", str(HOSTS / "spark.txt"))
    (short, long) = (run(*asked, *more)[1].splitlines() for more in ((), ("--verbose",)))
    (count,) = (int(line.split()[1]) for line in short if line.endswith(" checks passed"))
    assert sum(line.startswith("  ✓ ") for line in long) == count
    assert long[-1] == short[-1].partition("   ")[0]
    assert any(" checks skipped: " in line for line in short)
    assert any(line.startswith("  – ") and "model hub" in line for line in long)


def test_another_character_set_gets_ascii_signs(tmp_path: Path) -> None:
    command = Command(
        (sys.executable, "-m", "medley", "doctor", "--from", str(HOSTS / "spark-mtu-mismatch.txt")),
        {"PYTHONIOENCODING": "ascii", "MEDLEY_STATE": str(tmp_path)},
    )
    lines = process.run(command, limit_s=60).lines
    assert any(line.startswith("  + ") for line in lines), lines
    assert all(line.isascii() for line in lines)


def test_healthy_hosts_end_with_zero(run: Run) -> None:
    files = [str(HOSTS / f"{name}.txt") for name in ("spark-pair-a", "spark-pair-b")]
    status, out, _ = run("doctor", "--json", "--from", *files)
    assert status == 0
    assert json.loads(out)["counts"].keys() == {"ok", "unknown"}


@pytest.mark.parametrize(
    ("model", "state", "words"),
    [
        ("gpt-oss-120b", "ok", "gpt-oss-120b fits"),
        ("deepseek-v3", "wrong", ""),
    ],
)
def test_a_model_is_asked_about(run: Run, model: str, state: str, words: str) -> None:
    _, out, _ = run("doctor", "--json", "--model", model, "--from", str(HOSTS / "spark.txt"))
    (row,) = (row for row in json.loads(out)["checks"] if row["rule"] == "model")
    assert row["state"] == state, row
    assert words in row["found"]


def test_this_host_is_examined_and_mended(tmp_path: Path) -> None:
    token = tmp_path / "state" / "token"
    token.parent.mkdir()
    token.write_text("abc")
    token.chmod(0o644)
    command = Command((sys.executable, "-m", "medley", "doctor", "--fix", "--yes", "--json"))
    mended = process.run(command, limit_s=60)
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    rows = json.loads(mended.lines[-1])["checks"]
    assert {row["state"] for row in rows if row["rule"] == "secrets"} == {"ok"}


@pytest.fixture
def jetson(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The answers of an Orin in MODE_30W, and programs that note how they were called."""
    said = parse_transcript((HOSTS / "faults" / "orin-r36-30w.txt").read_text())
    monkeypatch.setattr(examination, "read_answers", lambda _: said)
    noted = tmp_path / "called"
    for name in ("nvpmodel", "jetson_clocks", "sudo"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        rest = 'shift; exec "$@"' if name == "sudo" else f'echo "{name} $*" >> {noted}'
        program.write_text(f"#!/bin/sh\n{rest}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return noted


def test_a_jetsons_power_mode_and_clocks_are_shown(run: Run, jetson: Path) -> None:
    _, _, told = run("doctor", "--fix", "--dry-run")
    assert told.splitlines()[:2] == ["sudo nvpmodel -m 0", "sudo jetson_clocks"]
    assert not jetson.exists()


def test_a_jetsons_power_mode_and_clocks_are_set(run: Run, jetson: Path) -> None:
    run("doctor", "--fix", "--yes")
    assert jetson.read_text().splitlines() == ["nvpmodel -m 0", "jetson_clocks "]


@pytest.mark.parametrize(
    ("words", "name", "fix"),
    [
        (("pyproject.toml",), "'pyproject.toml'", "medley doctor --from pyproject.toml"),
        (("spark-2",), "'spark-2'", ("medley doctor", "ssh spark-2 medley doctor")),
        (("--cluster", "none.toml"), "none.toml ", "name another file"),
    ],
)
def test_what_cannot_be_meant(
    run: Run, words: tuple[str, ...], name: str, fix: str | tuple[str, ...]
) -> None:
    status, _, err = run("doctor", *words)
    assert status == 1
    assert_problem(problem_in(err), name, fix=fix)


def test_a_transcript_cannot_be_fixed(run: Run) -> None:
    status, _, err = run("doctor", "--fix", "--from", "x.txt")
    assert status == 2
    assert "--from" in err


def test_an_errand_that_cannot_mend_says_what_to_type() -> None:
    asked = examination.FixRequest(words=["sh", "-c", "echo no; exit 3"], unasked=[], root=os.geteuid() == 0)
    with raises_problem("sh -c echo no; exit 3", cause="no", fix="sh -c echo no; exit 3"):
        examination.apply_fix(asked, lambda _: None)


def test_a_virtualenv_of_ones_own_is_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").touch()
    said = state.answer_examine({"env": str(tmp_path)}, lambda _: None)["transcript"]
    assert "\n  bin/python\n" in said


def test_a_file_that_is_no_transcript_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("# a page\n\nwords\n")
    status, _, err = run("doctor", "--from", str(HOSTS / "spark-pair-b.txt"), str(tmp_path / "other.txt"))
    assert status == 1
    assert_problem(problem_in(err), f"{tmp_path}/other.txt", cause="line 3")


def test_a_transcript_that_is_not_there(run: Run) -> None:
    status, _, err = run("doctor", "--from", "nofile")
    assert status == 1
    assert_problem(
        problem_in(err),
        "nofile ",
        cause="No such file",
        fix="name a file that medley facts --transcript wrote",
    )
