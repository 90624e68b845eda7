"""`medley check` as typed."""

import json
from pathlib import Path

import pytest

from medley import process
from medley.cli.info import CheckVerb, FactsVerb
from medley.host.facts import QUESTIONS, read_facts
from medley.transcript import parse_transcript
from tests.problems import raises_problem


def run(*words: str) -> int:
    _, status = CheckVerb.run(["medley check", *words], exit=False)
    return int(status)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MEDLEY_CLUSTER", raising=False)
    monkeypatch.setenv("MEDLEY_CONFIG", str(tmp_path / "mine"))


def test_all_that_come_with_medley_are_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    assert " tables, 0 wrong\n" in capsys.readouterr().out


def test_the_cluster_that_is_here_is_one_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    Path("cluster.toml").write_text("[hosts.spark-1]\n", encoding="utf-8")
    assert run("--json") == 0
    assert json.loads(capsys.readouterr().out)["tables"]["cluster.toml"] is None


def test_it_checks_a_file_whose_programs_are_not_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    """Because it runs none of them."""
    Path("cluster.toml").write_text('[hosts.a]\nenv = "x"\n', encoding="utf-8")
    assert run("--json") == 0
    assert json.loads(capsys.readouterr().out)["tables"]["cluster.toml"] is None


def test_accepting_prints_the_programs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    Path("cluster.toml").write_text('[hosts.a]\nenv = "x"\n', encoding="utf-8")
    assert run("--json", "--accept", "cluster.toml") == 0
    assert json.loads(capsys.readouterr().out)["programs"] == ['hosts.a.env = "x"']


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("[hosts.spark-1]\nkindd = 1\n", "kindd", id="a key nobody knows"),
        pytest.param(
            '[hosts.a]\nrole = "head"\n[hosts.b]\nrole = "head"\n', "has only one head", id="two heads"
        ),
    ],
)
def test_what_is_wrong_with_it_is_said(capsys: pytest.CaptureFixture[str], text: str, said: str) -> None:
    Path("cluster.toml").write_text(text, encoding="utf-8")
    assert run() == 1
    spoken = capsys.readouterr()
    assert said in spoken.err
    assert spoken.out.endswith(" 1 wrong\n")


def test_that_of_the_flake_s_template_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_CLUSTER", str(Path(__file__).parents[2] / "nix/template/cluster.toml"))
    assert run() == 0


HOSTS = Path(__file__).parents[1] / "host" / "recorded"


def facts_cli_run(*words: str) -> int:
    _, status = FactsVerb.run(["medley facts", *words], exit=False)
    return int(status)


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert facts_cli_run("--json", "--from", str(HOSTS / "spark.txt")) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["kind"]["name"], said["problem"], said["system"]) == ("spark", None, "aarch64-linux")
    assert said["gpus"][0]["name"] == "NVIDIA GB10"


def test_json_of_a_host_of_no_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert facts_cli_run("--json", "--from", str(HOSTS / "rtx-stuck.txt")) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["kind"] is None
    assert set(said["problem"]) == {"what", "cause", "fix"}


def test_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert facts_cli_run("--from", str(HOSTS / "rtx-two.txt")) == 0
    said = capsys.readouterr().out
    assert said.startswith("kind")
    assert "GPU 1" in said


def test_transcript_of_a_transcript(capsys: pytest.CaptureFixture[str]) -> None:
    assert facts_cli_run("--transcript", "--from", str(HOSTS / "spark.txt")) == 0
    assert parse_transcript(capsys.readouterr().out) == parse_transcript((HOSTS / "spark.txt").read_text())


PAIR = tuple(str(HOSTS / f"spark-pair-{half}.txt") for half in "ab")


@pytest.mark.parametrize("words", [("--from", PAIR[0], PAIR[1]), ("--from", PAIR[0], "--from", PAIR[1])])
def test_json_of_two_hosts(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert facts_cli_run("--json", *words) == 0
    said = json.loads(capsys.readouterr().out)
    assert [host["net"]["routes"][0]["source"] for host in said] == ["192.168.1.10", "192.168.1.11"]
    assert said[0]["rdma"][0]["gids"][1]["type"] == "RoCE v2"


def test_summary_of_two_hosts(capsys: pytest.CaptureFixture[str]) -> None:
    assert facts_cli_run("--from", *PAIR) == 0
    said = capsys.readouterr().out
    assert [line for line in said.splitlines() if line.endswith(":")] == [f"{file}:" for file in PAIR]


def test_a_transcript_is_of_one_host() -> None:
    with raises_problem(cause="2 files", fix=f"medley facts --transcript --from {PAIR[0]}"):
        facts_cli_run("--transcript", "--from", *PAIR)


@pytest.mark.parametrize("name", ["nowhere.txt", "."])
def test_a_file_that_cannot_be_read(name: str, tmp_path: Path) -> None:
    with raises_problem(str(tmp_path / name), fix="name a file that medley facts --transcript wrote"):
        facts_cli_run("--from", str(tmp_path / name))


def test_this_host_answers() -> None:
    """The questions themselves, in this machine's own shell."""
    answers = process.ask_host(QUESTIONS)
    assert tuple(answers) == QUESTIONS
    found = read_facts(answers)
    assert found.cpu.threads > 0
    assert 0 < found.memory.available_bytes <= found.memory.total_bytes
    assert found.software.kernel
