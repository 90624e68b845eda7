"""`medley facts` as typed."""

import json
from pathlib import Path

import pytest

from medley import machine
from medley.cli.facts import Facts
from medley.facts import QUESTIONS, facts
from medley.problem import Problem
from medley.transcript import parse

HOSTS = Path(__file__).parent / "hosts"


def run(*words: str) -> int:
    _, status = Facts.run(["medley facts", *words], exit=False)
    return int(status)


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json", "--from", str(HOSTS / "spark.txt")) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["kind"]["name"], said["problem"], said["system"]) == ("spark", None, "aarch64-linux")
    assert said["gpus"][0]["name"] == "NVIDIA GB10"


def test_json_of_a_host_of_no_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json", "--from", str(HOSTS / "rtx-stuck.txt")) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["kind"] is None
    assert set(said["problem"]) == {"what", "cause", "fix"}


def test_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--from", str(HOSTS / "rtx-two.txt")) == 0
    said = capsys.readouterr().out
    assert said.startswith("kind")
    assert "GPU 1" in said


def test_transcript_of_a_transcript(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--transcript", "--from", str(HOSTS / "spark.txt")) == 0
    assert parse(capsys.readouterr().out) == parse((HOSTS / "spark.txt").read_text())


PAIR = tuple(str(HOSTS / f"spark-pair-{half}.txt") for half in "ab")


@pytest.mark.parametrize("words", [("--from", PAIR[0], PAIR[1]), ("--from", PAIR[0], "--from", PAIR[1])])
def test_json_of_two_hosts(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json", *words) == 0
    said = json.loads(capsys.readouterr().out)
    assert [host["net"]["routes"][0]["source"] for host in said] == ["192.168.1.10", "192.168.1.11"]
    assert said[0]["rdma"][0]["gids"][1]["type"] == "RoCE v2"


def test_summary_of_two_hosts(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--from", *PAIR) == 0
    said = capsys.readouterr().out
    assert [line for line in said.splitlines() if line.endswith(":")] == [f"{file}:" for file in PAIR]


def test_a_transcript_is_of_one_host() -> None:
    with pytest.raises(Problem, match="of one host"):
        run("--transcript", "--from", *PAIR)


@pytest.mark.parametrize("name", ["nowhere.txt", "."])
def test_a_file_that_cannot_be_read(name: str, tmp_path: Path) -> None:
    with pytest.raises(Problem, match="cannot be read"):
        run("--from", str(tmp_path / name))


def test_this_host_answers() -> None:
    """The questions themselves, in this machine's own shell."""
    answers = machine.ask(QUESTIONS)
    assert tuple(answers) == QUESTIONS
    found = facts(answers)
    assert found.cpu.threads > 0
    assert 0 < found.memory.available_bytes <= found.memory.total_bytes
    assert found.software.kernel
