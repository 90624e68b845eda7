import os
import sys
import time
from pathlib import Path

import pytest

from medley import process
from medley.command import SAFE_PATH, Command
from medley.process import Process
from tests.problems import raises_problem
from tests.waiting import wait_for

# A parent that starts a child in a session of its own, writes both pids and outlives SIGTERM.
STUBBORN = """
import os, pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
pathlib.Path(sys.argv[1]).write_text(f"{os.getpid()} {child.pid}")
time.sleep(60)
"""

# A family with a semaphore, which its resource tracker has to remove; nobody of it heeds SIGTERM.
SEMAPHORES = """
import multiprocessing, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
lock = multiprocessing.get_context("spawn").Lock()
print("made", flush=True)
time.sleep(60)
"""

# What a stranger's folder may hold: the name of a module that every engine imports.
HOSTILE = "import pathlib\npathlib.Path(__file__).with_name('ran').touch()\nraise SystemExit('hostile')\n"


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("-c", "import multiprocessing; print('own')"), id="-c"),
        pytest.param(("-m", "multiprocessing.process"), id="-m"),
        pytest.param(
            ("-c", "import os, sys; os.execl(sys.executable, 'python', '-c', 'import queue')"), id="child"
        ),
    ],
)
@pytest.mark.parametrize("start", ["run", "attend", "detach"])
def test_no_python_imports_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], start: str
) -> None:
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    monkeypatch.chdir(tmp_path)
    for name in ("multiprocessing.py", "queue.py"):
        (tmp_path / name).write_text(HOSTILE, encoding="utf-8")
    command = Command((sys.executable, *words))
    if start == "run":
        assert process.run(command).status == 0
    elif start == "attend":
        assert process.run_on_terminal(command) == 0
    else:
        os.waitpid(process.start_detached(command, tmp_path / "log"), 0)
    assert not (tmp_path / "ran").exists()


def test_a_program_of_the_user_has_its_own_path() -> None:
    environment = Command(("x",), unset=(SAFE_PATH,)).build_environment({"PYTHONSAFEPATH": "1", "A": "b"})
    assert environment == {"A": "b"}


def test_a_transcript_of_this_host() -> None:
    answers = process.ask_host(["echo one; echo two", "false", "medley-has-no-such-program", "cat"])
    assert answers["echo one; echo two"].text == "one\ntwo\n"
    assert answers["false"].status == 1
    assert answers["medley-has-no-such-program"].status == 127
    assert answers["cat"].status == 0, "a question must not read our own input"


@pytest.mark.parametrize(
    ("script", "status", "lines"),
    [
        pytest.param("echo out; echo err >&2", 0, ("out", "err"), id="both streams"),
        pytest.param("exit 7", 7, (), id="exit code"),
        pytest.param("kill -9 $$", 137, (), id="killed"),
    ],
)
def test_run(script: str, status: int, lines: tuple[str, ...]) -> None:
    assert process.run(Command(("sh", "-c", script))) == process.ProcessResult(status, lines)


def test_lines_come_as_they_are_said() -> None:
    said: list[str] = []
    process.run(Command(("printf", "a\\nb\\n")), on_line=said.append)
    assert said == ["a", "b"]


def test_a_missing_program_is_a_problem() -> None:
    with raises_problem(
        "medley-has-no-such-program", cause="No such file", fix="command -v medley-has-no-such-program"
    ):
        process.run(Command(("medley-has-no-such-program",)))


def test_past_its_limit_a_command_is_ended() -> None:
    began = time.monotonic()
    with raises_problem("sleep", cause=" 0 s", fix="sleep 60"):
        process.run(Command(("sleep", "60")), limit_s=0.2)
    assert time.monotonic() - began < 50


def test_stop_ends_a_family_that_does_not_want_to(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    process = Process(Command((sys.executable, "-c", STUBBORN, str(pids))), lambda _: None)
    _written(pids)
    process.stop(grace_s=0.3)
    assert [pid for pid in pids.read_text().split() if _alive(int(pid))] == []


def test_stop_leaves_no_semaphore_of_python_s_multiprocessing() -> None:
    before = set(Path("/dev/shm").glob("sem.mp-*"))
    lines: list[str] = []
    engine = Process(Command((sys.executable, "-c", SEMAPHORES)), lines.append)
    assert process.wait_until(lambda: lines, 20) == ["made"]
    assert len(set(Path("/dev/shm").glob("sem.mp-*")) - before) == 1
    engine.stop(grace_s=0.2)
    assert set(Path("/dev/shm").glob("sem.mp-*")) <= before


def test_what_we_started_dies_with_us(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    parent = f"""
import pathlib, time
from medley import process as started
from medley.command import SAFE_PATH, Command
process = started.Process(Command(("sleep", "60")), lambda _: None)
pathlib.Path({str(pids)!r}).write_text(str(process.pid))
time.sleep(60)
"""
    process = Process(Command((sys.executable, "-c", parent)), lambda _: None)
    _written(pids)
    os.kill(process.pid, 9)
    process.wait()
    wait_for("what it started ends", lambda: not _alive(int(pids.read_text())))


def _written(path: Path) -> None:
    wait_for(f"{path.name} is written", lambda: path.exists() and path.read_text())


def _alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_waiting_ends_with_the_answer_or_with_its_time() -> None:
    answers = iter((None, "", "yes", "never asked"))
    assert process.wait_until(lambda: next(answers), 10, every_s=0.01) == "yes"
    assert process.wait_until(lambda: 0, 0.05, every_s=0.01) == 0
    assert process.wait_until(lambda: "at once", 0) == "at once"


def test_a_host_whose_path_has_no_shell_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    fix = "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    with raises_problem(
        "sh did not start",
        cause="PATH is ''",
        fix=fix,
    ):
        process.ask_host(["uname -m"])
