"""A process is told from a later one of its number, and only the one that is meant is signalled."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from medley import process_identity, storage
from medley.cli import Medley
from medley.cluster import membership, ray, units
from medley.command import Command
from medley.model import trust
from medley.process import Process, ProcessResult
from medley.process_identity import (
    ProcessIdentity,
    SharedMemoryCleaner,
    find_identity,
    read_current_identity,
    reap_orphans,
)
from medley.progress import SILENT
from medley.serving import port_claim, server_end, server_records
from tests.odd_input import COUNTS, hold, json_texts
from tests.waiting import wait_for


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    return tmp_path


@pytest.fixture
def bystander() -> Iterator["subprocess.Popen[bytes]"]:
    """A process of the same user that is none of medley's."""
    with subprocess.Popen(("sleep", "60")) as process:
        yield process
        process.kill()


def identity(process: "subprocess.Popen[bytes]") -> ProcessIdentity:
    found = find_identity(process.pid)
    assert found
    return found


def test_it_is_the_same_while_the_process_runs_and_gone_with_it(bystander: "subprocess.Popen[bytes]") -> None:
    found = identity(bystander)
    assert found.is_alive
    assert find_identity(bystander.pid) == found
    assert found.signal(signal.SIGTERM)
    os.waitid(os.P_PID, bystander.pid, os.WEXITED | os.WNOWAIT)
    assert not found.is_alive, "a zombie"
    bystander.wait()
    assert not found.is_alive
    assert not found.signal(signal.SIGKILL)
    assert find_identity(2**22 + 1) is None


@pytest.mark.parametrize(
    "another",
    [
        pytest.param({"started": 1}, id="an older one with its number"),
        pytest.param({"boot": "00000000-0000-0000-0000-000000000000"}, id="one before a reboot"),
    ],
)
def test_another_of_its_number_is_not_signalled(
    another: dict[str, object], bystander: "subprocess.Popen[bytes]"
) -> None:
    meant = identity(bystander).replace(**another)
    assert not meant.is_alive
    assert not meant.signal(signal.SIGKILL)
    process_identity.end_processes([meant], grace_s=0.1)
    assert bystander.poll() is None


def test_a_process_whose_number_is_now_a_thread_s_has_ended() -> None:
    ends = threading.Event()
    thread = threading.Thread(target=ends.wait)
    thread.start()
    assert thread.native_id
    meant = ProcessIdentity(thread.native_id, 1, "a boot before")
    assert meant.wait_for_end(0)
    assert not meant.signal(signal.SIGKILL)
    ends.set()


def test_a_name_with_brackets_and_spaces() -> None:
    program = "import sys; open('/proc/self/comm', 'w').write(') Z 1 2 ('); print('named', flush=True)"
    words = (sys.executable, "-c", f"{program}; sys.stdin.read()")
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"named\n"
        found = identity(process)
        assert found.name == ") Z 1 2 ("
        assert found.is_alive
        assert found.started > read_current_identity().started - 1
        process.kill()


def test_a_process_of_our_cluster_has_its_mark(state: Path) -> None:
    folders = (str(membership.get_ray_folder()), str(state / "other"), "")
    started = [
        subprocess.Popen(("sleep", "60"), env={ray.MARK_VARIABLE: each} if each else {}) for each in folders
    ]
    try:
        assert membership.find_processes() == {identity(started[0])}
        assert membership.end_ray() == 1
        assert [each.poll() is None for each in started[1:]] == [True, True]
    finally:
        for each in started:
            each.kill()
            each.wait()


def test_a_command_that_ended_is_not_told_from_its_number() -> None:
    """The kernel gives its number to a shell of somebody else's, whose child must be left alone."""
    ended = Process(Command(("sh", "-c", "exit 3")), lambda _: None)
    assert ended.wait(30)
    stranger = ("sh", "-c", "sleep 60 & echo $!; wait")
    with subprocess.Popen(stranger, stdout=subprocess.PIPE, process_group=0) as other:
        assert other.stdout
        child = find_identity(int(other.stdout.readline()))
        vars(ended)["_child"].pid = other.pid
        ended.stop(grace_s=0.1)
        ended.terminate()
        assert child
        assert child.is_alive
        assert other.poll() is None
        other.kill()
    process_identity.kill_processes({child})


@pytest.mark.parametrize("reaped", [True, False])
def test_a_child_that_a_dead_command_left_is_ended(*, reaped: bool) -> None:
    lines: list[str] = []
    process = Process(Command(("sh", "-c", "trap '' TERM; sleep 60 & echo $!")), lines.append)
    leader = find_identity(process.pid)
    assert process.wait(30) if reaped else leader and leader.wait_for_end(30)
    wait_for("it prints the number of its child", lambda: lines)
    left = find_identity(int(lines[0]))
    assert left
    assert left.is_alive
    process.stop(grace_s=0.1)
    assert not left.is_alive
    assert process.poll() == ProcessResult(0, tuple(lines))


def note(port: int, **more: object) -> Path:
    """The note that a serve left."""
    us = read_current_identity()
    table = {"url": f"http://127.0.0.1:{port}/v1", "model": "demo", "pid": us.pid, "started": us.started}
    file = server_records.get_records_folder() / f"{port}.json"
    storage.write_text(file, json.dumps({**table, "boot": us.boot, "state": "ready", **more}))
    return file


@pytest.mark.parametrize("words", [("stop",), ("stop", "--port", "8000")], ids=" ".join)
def test_stop_leaves_a_bystander_alone_that_has_the_number_of_a_server_before_a_power_cut(
    words: tuple[str, ...], bystander: "subprocess.Popen[bytes]", capsys: pytest.CaptureFixture[str]
) -> None:
    whole = note(8000, pid=bystander.pid, boot="00000000-0000-0000-0000-000000000000")
    old = server_records.get_records_folder() / "8001.json"
    storage.write_text(
        old, json.dumps({"url": "http://127.0.0.1:8001/v1", "model": "demo", "pid": bystander.pid})
    )
    port_claim.require_unused_port(8000)
    port_claim.require_unused_port(8001)
    Medley.run(["medley", *words], exit=False)
    assert bystander.poll() is None
    assert "nothing is served here" in capsys.readouterr().out
    assert not whole.exists()
    assert old.exists() == ("--port" in words)


def test_a_server_that_lives_is_ended(bystander: "subprocess.Popen[bytes]") -> None:
    found = identity(bystander)
    note(8000, pid=found.pid, started=found.started)
    assert server_end.end_servers(8000, SILENT) == 1
    assert not found.is_alive


@pytest.mark.parametrize(
    ("ignored", "number"),
    [
        pytest.param(signal.SIGINT, signal.SIGHUP, id="begun by & in a script, which ignores Ctrl-C"),
        pytest.param(signal.SIGUSR1, signal.SIGINT, id="begun on a terminal"),
    ],
)
def test_stop_now_ends_a_server_at_once_however_it_was_begun(
    ignored: signal.Signals, number: signal.Signals
) -> None:
    def ignore() -> None:
        for each in (signal.SIGINT, signal.SIGUSR1):
            signal.signal(each, signal.SIG_IGN if each is ignored else signal.SIG_DFL)

    with subprocess.Popen(("sleep", "60"), preexec_fn=ignore) as process:  # noqa: PLW1509 - two system calls
        found = identity(process)
        note(8000, pid=found.pid, started=found.started)
        assert server_end.end_servers(8000, SILENT, is_immediate=True) == 1
        assert process.wait(0) == -number


SERVER = {
    "url": "http://127.0.0.1:8000/v1",
    "model": "m",
    "pid": 1,
    "started": 2,
    "boot": "b",
    "since_s": 1.5,
}
STATE = {"name": "a", "keeper": 1, "running": True, "since_s": 2.0, "next_s": None}
UNIT = {"name": "a", "title": "t", "command": {"argv": ["x"]}, "restart": None, "after": None}
PIN = {"m": {"commit": None, "files": {"a.py": "0" * 64}, "when": "2026-01-01"}}
MEMBER = {
    "role": "head",
    "head": "h:1",
    "address": "10.0.0.1",
    "interface": "eth0",
    "environment": "/e",
    "token": "/t",
    "image": None,
}
READERS: dict[str, tuple[Callable[[], object], object]] = {
    "serving/8000.json": (server_records.list_servers, SERVER),
    "units/a.state": (lambda: units.read_state("a"), STATE),
    "units/a.json": (lambda: units.read_unit("a"), UNIT),
    "remote-code.json": (lambda: trust.read_pin("m"), PIN),
    "ray.json": (membership.read_membership, MEMBER),
}


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", READERS)
def test_odd_input_of_state_files(name: str, count: int, state: Path) -> None:
    """A power cut may leave anything in them."""
    read, sample = READERS[name]
    file = state / name
    file.parent.mkdir(parents=True, exist_ok=True)

    def torn(text: str) -> None:
        file.write_bytes(text.encode("utf-8", "replace"))
        read()

    hold(torn, json_texts([sample]), count)


def test_a_file_s_mode_is_the_user_s_wish_and_a_secret_is_closed(state: Path) -> None:
    before = os.umask(0o077)
    try:
        storage.write_text(state / "plain", "x")
    finally:
        os.umask(before)
    storage.write_text(state / "usual", "x")
    storage.write_text(state / "secret", "x", secret=True)
    modes = {each.name: each.stat().st_mode & 0o777 for each in state.iterdir() if each.is_file()}
    assert modes == {"plain": 0o600, "usual": 0o666 & ~before, "secret": 0o600}


SHARES = """
import os, sys, time
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
resource_tracker.register = lambda *_: None  # as where it was killed too
found = SharedMemory(sys.argv[1] or None, create=not sys.argv[1], size=4096)
print(found._name, flush=True)
time.sleep(60)
"""


def sharing(name: str = "") -> tuple["subprocess.Popen[str]", str]:
    made = subprocess.Popen((sys.executable, "-c", SHARES, name), stdout=subprocess.PIPE, text=True)
    assert made.stdout
    return made, made.stdout.readline().strip()


def test_shared_memory_of_processes_that_were_killed_is_removed_once_nobody_has_it() -> None:
    first, name = sharing()
    second, _ = sharing(name)
    segment, watched = Path(f"/dev/shm{name}"), SharedMemoryCleaner()
    try:
        watched.check()
        first.kill()
        first.wait()
        watched.remove_unused()
        assert segment.exists(), "the second has it"
        second.kill()
        second.wait()
        watched.remove_unused()
        assert not segment.exists()
    finally:
        for each in (first, second):
            each.kill()
            each.communicate()
        segment.unlink(missing_ok=True)


def test_an_orphan_that_was_adopted_is_reaped_and_a_child_of_ours_is_not() -> None:
    lines: list[str] = []
    parent = Process(Command(("sh", "-c", "sleep 0.3 & echo $!; exit 7")), lines.append)
    assert parent.wait(30) is not None
    orphan = find_identity(int(lines[0]))
    assert orphan
    assert orphan.wait_for_end(30)
    child = Process(Command(("sh", "-c", "exit 3")), lines.append)
    assert Path(f"/proc/{orphan.pid}").exists()
    assert process_identity.require_identity(child.pid).wait_for_end(30)
    reap_orphans()
    assert not Path(f"/proc/{orphan.pid}").exists()
    assert child.poll() == ProcessResult(3, ())
