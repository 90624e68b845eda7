"""`medley chat` and `medley status` while a server of this host begins, and `medley stop` while one ends."""

import contextlib
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from medley import process_identity, storage
from medley.cli import Verb
from medley.cli.chat import ChatVerb
from medley.cli.cluster import StatusVerb
from medley.cli.server import LogsVerb, StopVerb
from medley.engine.server_spec import ServerSpec
from medley.errors import Problem
from medley.serving import server_records
from tests import damaged_state
from tests.problems import assert_problem, problem_in, raises_problem
from tests.waiting import wait_for

NOBODY = "http://127.0.0.1:9/v1"
DEMO = ServerSpec("demo", "demo", port=9)


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    monkeypatch.delenv("MEDLEY_URL", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("state", "what"),
    [
        pytest.param("starting", "demo is not ready yet: starting", id="it begins"),
        pytest.param("ready", "no server answers at ", id="it was ready, and does not answer"),
    ],
)
def test_it_says_how_the_server_is(state: str, what: str, tmp_path: Path) -> None:
    with (
        server_records.record_server(DEMO.replace(socket_folder=tmp_path), state),
        pytest.raises(Problem) as caught,
    ):
        ChatVerb.run(["medley chat", "Hello"], exit=False)
    assert caught.value.what.startswith(what)
    assert caught.value.cause == "No such file or directory"


@pytest.mark.parametrize(
    ("state", "said"),
    [("starting", f"serving demo at {NOBODY} (starting)\n"), ("ready", f"serving demo at {NOBODY}\n")],
)
def test_so_does_status(state: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with server_records.record_server(DEMO, state):
        StatusVerb.run(["medley status"], exit=False)
    assert capsys.readouterr().out.endswith(said)


@pytest.mark.parametrize(
    ("verb", "word", "fix"),
    [
        pytest.param(StopVerb, "demo", "medley stop --port 9", id="a model that is served"),
        pytest.param(StopVerb, "other", "medley stop", id="a model that is not"),
        pytest.param(LogsVerb, "demo", "medley logs", id="no host without a cluster"),
    ],
)
def test_a_model_is_no_host_and_no_port(verb: type[Verb], word: str, fix: str) -> None:
    name = "stop" if verb is StopVerb else "logs"
    with server_records.record_server(DEMO, "ready"), raises_problem(word, fix=fix):
        verb.run([f"medley {name}", word], exit=False)


# It stays for three seconds after the signal, and leaves its record, as a killed server does.
SLOW_END = """
import signal, time
def end(*_):
    time.sleep(3)
    raise SystemExit
signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGINT, end)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture
def slow_server() -> Iterator[int]:
    """A recorded server on port 9 that ends slowly; its process id."""
    with subprocess.Popen((sys.executable, "-c", SLOW_END), stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        found = process_identity.require_identity(process.pid)
        table = {"url": NOBODY, "model": "demo", "pid": found.pid, "started": found.started}
        storage.write_text(
            server_records.get_records_folder() / "9.json",
            json.dumps({**table, "boot": found.boot, "state": "ready"}),
        )
        yield process.pid
        process.kill()


def stop_in_pipe(*words: str) -> str:
    command = (sys.executable, "-m", "medley", "stop", *words)
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=True, timeout=60).stderr


def stop_in_terminal(*words: str) -> str:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, (sys.executable, "-m", "medley", "stop", *words))
    return read_terminal(pid, terminal)


def read_terminal(pid: int, terminal: int) -> str:
    """Return all that a child of pty.fork() printed."""
    shown = b""
    with contextlib.suppress(OSError):  # EIO: the program has ended
        while part := os.read(terminal, 4096):
            shown += part
    os.waitpid(pid, 0)
    os.close(terminal)
    return shown.decode()


@pytest.mark.usefixtures("slow_server")
@pytest.mark.parametrize("words", [(), ("--now",)])
def test_stop_prints_one_line_when_it_begins_and_one_when_it_ends(words: tuple[str, ...]) -> None:
    first, last = stop_in_pipe(*words).splitlines()
    assert first == "end demo on port 9 …"
    assert last.startswith("end demo on port 9: ")
    assert list(server_records.get_records_folder().glob("*.json")) == []


@pytest.mark.usefixtures("slow_server")
def test_stop_shows_open_requests_in_its_one_line_of_a_terminal() -> None:
    shown = stop_in_terminal()
    assert "its engine ends" in shown
    lines = [line for line in shown.replace("\r\x1b[2K", "\r").split("\n") if "on port 9:" in line]
    assert len(lines) == 1, lines


@pytest.mark.parametrize("stop", [stop_in_pipe, stop_in_terminal])
def test_only_a_record_that_nobody_ended_is_as_after_a_power_cut(stop: Callable[[], str]) -> None:
    gone = {"url": NOBODY, "model": "demo", "pid": 2**22 + 1, "started": 1, "boot": "b", "state": "ready"}
    storage.write_text(server_records.get_records_folder() / "9.json", json.dumps(gone))
    assert "removed 9.json: its server is gone, as after a power cut" in stop()


def test_stop_keeps_a_record_that_cannot_be_read_and_says_so(
    slow_server: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may be that of a server that runs, as after `sudo -E medley serve`."""
    (file := server_records.get_records_folder() / "8.json").mkdir()
    _, status = StopVerb.run(["medley stop"], exit=False)
    assert (status, capsys.readouterr().out) == (1, "ended 1 server\n")
    assert file.exists()
    assert (
        not process_identity.find_identity(slow_server)
        or not process_identity.require_identity(slow_server).is_alive
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can serve as another user")
def test_a_server_of_another_user_is_a_problem_that_names_its_process(tmp_path: Path) -> None:
    """It was a traceback: the kernel lets nobody end another user's process."""
    environ = {**os.environ, "MEDLEY_STATE": str(tmp_path), "MEDLEY_CACHE": str(tmp_path / "cache")}
    other = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/bin/sleep", "60")
    with server_records.record_server(DEMO, "ready"), subprocess.Popen(other) as process:
        wait_for("it is another user's", lambda: Path(f"/proc/{process.pid}").stat().st_uid == 65_534, 10)
        damaged_state.name_process(server_records.get_records_folder() / "9.json", process.pid)
        end = damaged_state.run(["stop"], environ, tmp_path)
        process.kill()
    assert end.status == 1
    assert_problem(
        problem_in(end.output), "demo on port 9", cause="another user", fix=f"sudo kill {process.pid}"
    )
