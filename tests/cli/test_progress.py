import contextlib
import os
import pty
import select
import signal
import sys
import time

import pytest

from medley.cli import progress


def test_plain_lines_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    watch = progress.start_progress()
    assert isinstance(watch, progress.PlainProgress)
    with watch.stage("download"):
        watch.line("Downloading torch (182.9MiB)")
    watch.note("a third-party build")
    said = capsys.readouterr()
    assert said.out == "", "stdout is for results"
    assert said.err == "download …\na third-party build\n"


def test_a_spinner_says_what_took_its_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_MIN_NOTED_DURATION_S", -1.0)
    spinner = progress.Spinner()
    spinner.line("before any stage")
    with spinner.stage("download"):
        spinner.line("Downloading torch (182.9MiB) " + "x" * 200)
        spinner.line("")
    said = capsys.readouterr()
    assert said.out == ""
    assert "download: 0 s" in said.err
    assert sys.stderr


LONG = """
import sys
from medley.cli.progress import start_progress
with start_progress().stage("slow"):
    watch_line = "curl " + "x" * 300
    print(watch_line)
    print(watch_line, file=sys.stderr, flush=True)
"""


def test_a_line_printed_beside_a_spinner_is_not_wrapped() -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, (sys.executable, "-c", LONG))
    said = b""
    with contextlib.suppress(OSError):  # EIO: the program has ended
        while part := os.read(terminal, 4096):
            said += part
    os.waitpid(pid, 0)
    os.close(terminal)
    assert said.count(b"curl " + b"x" * 300) == 2


def test_logs_have_a_transfer_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = progress.PlainProgress()
    with watch.stage("weights"):
        watch.moved("0.1 of 2.0 GB")
        assert capsys.readouterr().err == "weights …\n", "it has only begun"
        monkeypatch.setattr(progress, "_NOTE_INTERVAL_S", 0.0)
        watch.moved("0.2 of 2.0 GB")
    assert capsys.readouterr().err == "weights: 0.2 of 2.0 GB\n"


SLOW = """
import sys, time
from medley.cli.progress import start_progress
with start_progress().stage("slow"):
    try:
        print("begun", flush=True)
        # Python 3.11 sleeps on if a signal comes after its last look at signals and before its system call;
        # the thread of the spinner makes that gap wide.
        while True:
            time.sleep(0.1)
    except KeyboardInterrupt:
        time.sleep(1.5)
        print("ended", flush=True)
        raise
"""


def test_ctrl_c_is_answered_before_the_end() -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", SLOW])
    try:
        read(terminal, "begun")
        os.write(terminal, b"\x03")
        said = read(terminal, "ended")
        assert said.index("medley: stopping …") < said.index("ended")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def read(terminal: int, text: str) -> str:
    said, deadline = b"", time.monotonic() + 20
    while text.encode() not in said:
        assert select.select([terminal], [], [], max(0, deadline - time.monotonic()))[0], said
        said += os.read(terminal, 4096)
    return said.decode(errors="replace")


def test_a_signal_that_is_ignored_stays_so() -> None:
    """As of what a script starts with & behind it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        progress.start_progress()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
