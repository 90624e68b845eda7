"""`medley link show` as typed."""

import json
import platform
from pathlib import Path

import pytest

from medley.cli import replay
from medley.cli.link import Link
from medley.cli.link.show import Show
from medley.cli.verb import Usage
from medley.problem import Problem

HOSTS = Path(__file__).parent / "hosts"
PAIR = tuple(str(HOSTS / f"spark-pair-{half}.txt") for half in "ab")


def run(*words: str) -> int:
    _, status = Show.run(["medley link show", *words], exit=False)
    return int(status)


@pytest.mark.parametrize("words", [("--from", PAIR[0], PAIR[1]), ("--from", PAIR[0], "--from", PAIR[1])])
def test_two_hosts(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].split() == ["transport", "RDMA"]
    assert [line.split()[:2] for line in said if line.startswith("spark-")] == [
        ["spark-pair-a", "enp1s0f1np1"],
        ["spark-pair-b", "enp1s0f0np0"],
    ]
    # A heading that lines share stands once.
    assert len([line for line in said if line.startswith("not taken")]) == 1
    assert [line for line in said if line.startswith(" ") and "spark-pair-b docker0: it belongs" in line]


def test_json_of_two_hosts(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json", "--from", *PAIR) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["transport"], list(said["hosts"])) == ("rdma", ["spark-pair-a", "spark-pair-b"])
    assert "ways" not in said


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(("--link", "enP7s7"), ("tcp", "enP7s7"), id="a link"),
        pytest.param(("--transport", "tcp"), ("tcp", "enp1s0f1np1"), id="a transport"),
        pytest.param(
            ("--exclude", "enp1s0f1np1", "--exclude", "enp1s0f0np0"),
            ("rdma", "enP2p1s0f1np1"),
            id="links out",
        ),
    ],
)
def test_wishes(
    words: tuple[str, ...], expected: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--json", *words, "--from", *PAIR) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["transport"], said["hosts"]["spark-pair-a"]["interface"]) == expected


def test_one_host(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--from", PAIR[0]) == 0
    said = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert ["best", "enp1s0f1np1"] in said
    assert ["not", "taken"] in said


def test_json_of_one_host(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json", "--from", PAIR[0]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["transport"] == "none"
    assert [way["mbit"] for way in said["ways"]] == [126_030, 126_030, 1000]
    assert "one host alone needs no network" not in {each["why"] for each in said["rejected"]}


@pytest.mark.skipif(not Path("/sys/class/net").is_dir(), reason="Nix's sandbox has no /sys")
def test_this_host(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert list(said["hosts"]) == [platform.node()]
    # No more than the kernel has; less where iproute2 is not there to tell.
    shown = {each["interface"] for each in (*said["ways"], *said["rejected"])}
    assert shown <= {link.name for link in Path("/sys/class/net").iterdir()}


def test_it_is_a_verb_of_link(capsys: pytest.CaptureFixture[str]) -> None:
    _, status = Link.run(["medley link", "show", "--help"], exit=False)
    assert status == 0
    assert "\n    medley link show --from spark-1.txt spark-2.txt\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--from", "nowhere.txt"), "nowhere.txt cannot be read"),
        (("--from", PAIR[0], PAIR[0]), "spark-pair-a, spark-pair-a-2 have no network in common"),
        (("--link", "eth9", "--from", *PAIR), "spark-pair-a has no link eth9"),
        (
            ("--transport", "rdma", "--from", PAIR[0], str(HOSTS / "thor-mgbe-a.txt")),
            "not every host can do RDMA",
        ),
    ],
    ids=["no file", "one host twice", "no link", "no RDMA"],
)
def test_a_problem(words: tuple[str, ...], problem: str) -> None:
    with pytest.raises(Problem, match=problem):
        run(*words)


def test_another_transport_is_wrong_usage() -> None:
    with pytest.raises(Usage, match="expected to be"):
        run("--transport", "udp")


def test_hosts_are_called_after_their_files_and_each_otherwise(tmp_path: Path) -> None:
    files = []
    for folder in ("x", "y", "z"):
        (tmp_path / folder).mkdir()
        files.append(tmp_path / folder / ("a-2.txt" if folder == "x" else "a.txt"))
        files[-1].write_text((HOSTS / "spark.txt").read_text())
    assert list(replay.by_host(map(str, files))) == ["a-2", "a", "a-3"]
