"""How a process of medley's starts another, and what of PATH it is given."""

import json
import os
import shlex
import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from medley import storage
from medley.cluster import remote, self_command, units
from medley.cluster.cluster_file import Cluster, ClusterHost
from medley.cluster.fleet import Fleet, is_this_host
from medley.cluster.remote import Remote
from medley.command import Command
from tests.problems import raises_problem
from tests.waiting import wait_for


def made(at: Path, holds: Mapping[str, Sequence[str]]) -> str:
    """A PATH of these folders, which hold these programs."""
    for folder, names in holds.items():
        (at / folder).mkdir()
        for name in names:
            (at / folder / name).touch(mode=0o755)
    return ":".join(str(at / folder) for folder in holds)


@pytest.mark.parametrize(
    ("holds", "kept"),
    [
        pytest.param({"games": ["chess"], "nix": ["nix"]}, ["nix"], id="without what is somebody's own"),
        pytest.param({"one": ["nvcc"], "two": ["nvcc"]}, ["one"], id="where it is found first"),
        pytest.param({"one": ["python3.11"], "two": ["python3"]}, ["one", "two"], id="every Python"),
        pytest.param({"one": ["python3-config", "pythonista"]}, [], id="what is no Python"),
        pytest.param({"one": []}, [], id="nothing in it"),
    ],
)
def test_the_folders_that_matter(
    holds: Mapping[str, Sequence[str]], kept: Sequence[str], tmp_path: Path
) -> None:
    assert self_command.reduce_path(made(tmp_path, holds)) == ":".join(str(tmp_path / each) for each in kept)


def test_the_systems_own_stay_in_their_order(tmp_path: Path) -> None:
    cuda = made(tmp_path, {"cuda": ["nvcc"]})
    usual = f"{cuda}:/usr/local/bin:/usr/bin:/bin:/nix/store/x-uv/bin:/run/current-system/sw/bin"
    assert self_command.reduce_path(f"{usual}::relative/bin:/nowhere/bin:/usr/bin") == usual


def test_what_is_no_program_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "nvcc").touch(mode=0o644)
    assert self_command.reduce_path(str(tmp_path / "docs")) == ""


def test_a_unit_is_given_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    junk = made(tmp_path, {"junk": ["chess"]})
    monkeypatch.setenv("PATH", f"{junk}:/usr/bin")
    monkeypatch.setenv("MEDLEY_ODD", "1")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    given = self_command.list_own_variables()
    assert (given["PATH"], given["MEDLEY_ODD"]) == ("/usr/bin", "1")
    assert "HF_TOKEN" not in given


SAYS = "import sys, time; print('welcome'); print(sys.argv[1], flush=True); sys.stdin.readline(); "
HELLO = json.dumps({"medley": "1", "host": "b", "epoch_s": 0})


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))


def spoken(rest: str, hello: str = HELLO) -> Remote:
    """One that prints a shell's welcome and then its own."""
    return Remote("b", "b", Command(("python3", "-c", SAYS + rest, hello)))


def test_it_says_what_it_is_and_answers_and_a_verb_is_typed_there() -> None:
    said: list[str] = []
    with remote.connect_local("me") as there:
        greeting = there.read_greeting()
        assert greeting["medley"] == self_command.compute_source_digest()
        assert greeting["host"] == socket.gethostname()
        assert abs(there.clock_ahead_s) < 5
        look = there.ask("look", {}, 60)
        assert look["membership"] is None
        assert look["free_bytes"] > 0
        assert look["transcript"].startswith("$ ")
        with raises_problem("me: ", "'dance'"):
            there.ask("dance", {}, 10)
        assert there.ask("listen", {"address": "127.0.0.1", "starts": False, "head": False}, 10)["ports"]
        done = there.ask("type", {"words": ["plan"]}, 60, said.append)
    assert done["status"] == 2
    assert said[0].startswith("2medley plan: ")


@pytest.mark.parametrize(
    "flood",
    [
        pytest.param("sys.stdout.write('x' * 65536)", id="a line without an end"),
        pytest.param("print('{' + 'x' * 1_000_000)", id="lines without an end"),
        pytest.param("sys.stderr.write('x' * 65536)", id="errors without an end"),
    ],
)
def test_a_host_cannot_fill_the_memory_of_another(flood: str) -> None:
    """Before the bound a line without an end took 4 GiB in 20 s."""
    before = _rss_bytes()
    there = spoken(f"\nwhile True: {flood}")
    try:
        there.read_greeting()
        with raises_problem("b did not answer in time", fix="ssh b"):
            there.ask("look", {}, 4)
        assert _rss_bytes() - before < 400 << 20
    finally:
        there.close(0.1)


def _rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_when_we_hang_up_it_ends_what_it_is_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    storage.write_text(units.get_log_file("medley-ray"), "2026-01-01T00:00:01 a line\n")
    there = remote.connect_local("me")
    there.read_greeting()
    there._process.write_line(json.dumps({"do": "log", "with": {"lines": 1, "follow": True}}))  # noqa: SLF001 - without waiting for it
    wait_for("it follows the log", lambda: any("a line" in line for line in list(there._process.last_lines)))  # noqa: SLF001 - the same
    there.close()
    assert there._process.poll()  # noqa: SLF001 - the same


def test_a_lost_connection() -> None:
    with spoken("sys.exit('Connection to b closed by remote host.')") as there:
        assert there.read_greeting()["medley"] == "1"
        with raises_problem(" b ", cause="Connection to b closed by remote host."):
            there.ask("look", {}, 10)


def test_a_silent_one() -> None:
    with spoken("time.sleep(600)") as there:
        there.read_greeting()
        with raises_problem("b ", cause=("'look'", "0 s"), fix=("ssh b", "--without b")):
            there.ask("look", {}, 0.5)
        there.close(limit_s=0.2)
    with (
        spoken("", hello="no greeting") as there,
        raises_problem("b ", cause="ssh b", fix=("ssh b true", "--without b")),
    ):
        there.read_greeting(limit_s=0.5)


@pytest.mark.parametrize("target", ["ann@b;id", "ssh://b:22/$(id)", "b'`id`"])
def test_a_target_in_a_fix_is_one_word(target: str) -> None:
    """A table of hosts may come from another user, and a fix is pasted."""
    with Remote("b", target, Command(("python3", "-c", SAYS + "time.sleep(600)", HELLO))) as there:
        there.read_greeting()
        with raises_problem("b ", fix=f"ssh {shlex.quote(target)}"):
            there.ask("look", {}, 0.1)
        there.close(limit_s=0.2)


def test_everyone_keeps_every_failure() -> None:
    found = Cluster(hosts={"me": ClusterHost(ssh="127.0.0.1"), "gone": ClusterHost(ssh="nobody.invalid")})
    with Fleet(found) as everyone:
        assert everyone.answering_hosts == ["me"]
        assert "gone" in everyone.failed["gone"].what
        answers = everyone.ask(
            "listen", lambda _: {"address": "127.0.0.1", "starts": False, "head": False}, limit_s=20
        )
        assert list(answers) == ["me"]
        everyone.ask("listen", lambda _: {"address": "203.0.113.1", "starts": True, "head": True}, limit_s=20)
        assert everyone.failed["me"].what.startswith("me: port")
        assert everyone.answering_hosts == []


@pytest.mark.parametrize(
    ("target", "here"),
    [("127.0.0.1", True), ("me@localhost", True), (socket.gethostname(), True), ("203.0.113.9", False)],
)
def test_which_host_is_this_one(target: str, *, here: bool) -> None:
    assert is_this_host(Cluster(hosts={"x": ClusterHost(ssh=target)}), "x") is here


def test_our_own_command_starts_from_anywhere() -> None:
    words = self_command.get_own_command()
    assert Path(words[0]).is_absolute()
    assert os.access(words[0], os.X_OK)
    assert signal.SIGTERM
