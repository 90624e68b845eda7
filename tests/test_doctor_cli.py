"""`medley doctor`, as it is typed."""

import json
import os
import stat
import sys
from pathlib import Path

import pytest

from medley import machine
from medley.command import Command
from medley.errands import examine, mend
from medley.machine import Finished
from medley.problem import Problem
from medley.transcript import text
from tests.conditions import answers
from tests.recorded import HOSTS


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return {
        "HOME": str(tmp_path),
        "MEDLEY_STATE": str(tmp_path / "state"),
        "MEDLEY_CONFIG": str(tmp_path / "config"),
        "HF_ENDPOINT": "http://127.0.0.1:9",
    }


def typed(home: dict[str, str], *words: str) -> Finished:
    command = Command((sys.executable, "-m", "medley", "doctor", *words), env=home)
    return machine.run(command, limit_s=60)


def test_a_bug_report_is_examined(home: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(text(answers("spark-mtu-mismatch")))
    found = typed(home, "--brief", "--from", str(tmp_path / "a.txt"), str(HOSTS / "spark-pair-b.txt"))
    assert found.status == 1
    assert any(line.startswith("a             WRONG   the MTU: ") for line in found.lines), found.lines


def test_healthy_hosts_end_with_zero(home: dict[str, str]) -> None:
    files = [str(HOSTS / f"{name}.txt") for name in ("spark-pair-a", "spark-pair-b")]
    found = typed(home, "--json", "--from", *files)
    assert found.status == 0
    assert json.loads(found.lines[-1])["counts"].keys() == {"ok", "unknown"}


@pytest.mark.parametrize(
    ("model", "state", "words"),
    [
        ("gpt-oss-120b", "ok", "gpt-oss-120b fits"),
        ("deepseek-v3", "wrong", ""),
    ],
)
def test_a_model_is_asked_about(home: dict[str, str], model: str, state: str, words: str) -> None:
    found = typed(home, "--json", "--model", model, "--from", str(HOSTS / "spark.txt"))
    (row,) = (row for row in json.loads(found.lines[-1])["checks"] if row["rule"] == "model")
    assert row["state"] == state, row
    assert words in row["found"]


def test_this_host_is_examined_and_mended(home: dict[str, str], tmp_path: Path) -> None:
    token = tmp_path / "state" / "token"
    token.parent.mkdir()
    token.write_text("abc")
    token.chmod(0o644)
    mended = typed(home, "--fix", "--yes", "--json")
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    rows = json.loads(mended.lines[-1])["checks"]
    assert {row["state"] for row in rows if row["rule"] == "secrets"} == {"ok"}


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--fix", "--from", "x.txt"), 2, "--from"),
        (("x.txt",), 1, "medley doctor --from x.txt"),
        (("--cluster", "none.toml"), 1, "none.toml"),
    ],
)
def test_what_cannot_be_meant(home: dict[str, str], words: tuple[str, ...], status: int, said: str) -> None:
    found = typed(home, *words)
    assert found.status == status
    assert any(said in line for line in found.lines), found.lines


def test_an_errand_that_cannot_mend_says_what_to_type() -> None:
    asked = {"words": ["sh", "-c", "echo no; exit 3"], "unasked": [], "root": os.geteuid() == 0}
    with pytest.raises(Problem, match="could not be mended") as raised:
        mend.run(asked, lambda _: None)
    assert raised.value.cause == "no"


def test_a_virtualenv_of_ones_own_is_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").touch()
    said = examine.run({"env": str(tmp_path)}, lambda _: None)["transcript"]
    assert "\n  bin/python\n" in said


def test_a_file_that_is_no_transcript_is_named(home: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("# a page\n\nwords\n")
    found = typed(home, "--from", str(HOSTS / "spark-pair-b.txt"), str(tmp_path / "other.txt"))
    assert found.status == 1
    assert f"medley: {tmp_path}/other.txt is no transcript" in found.lines


def test_a_transcript_that_is_not_there(home: dict[str, str]) -> None:
    found = typed(home, "--from", "nofile")
    assert found.status == 1
    assert found.lines[-3:-1] == ("medley: nofile cannot be read", "  cause: No such file or directory")
