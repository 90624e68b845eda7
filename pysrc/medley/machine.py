"""A machine is where processes start: the one module that does so.

Everything it starts is a `Command`, dies with medley, and is ended with all its children.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import IO

from medley import store, transcript
from medley.command import Command
from medley.ending import insist
from medley.family import descendants
from medley.problem import Problem, in_words
from medley.process_identity import identified

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_ASK_LIMIT_S = 60
_LAST_LINES = 400
_UNDO_LIMIT_S = 30
OnLine = Callable[[str], None]

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Finished:
    """How a command ended: its exit status (128 + signal where one killed it) and what it said last."""

    status: int
    lines: tuple[str, ...]


def ask(
    questions: Iterable[str],
    variables: Mapping[str, str] | None = None,
    *,
    limit_of_all_s: float = transcript.LIMIT_OF_ALL_S,
) -> transcript.Transcript:
    """Ask this host, in one round trip; `variables` are for the questions besides those of ours."""
    from plumbum import ProcessTimedOut, local  # noqa: PLC0415 - a tenth of a second, which keepers spare

    command = local["sh"]["-c", transcript.script(questions, limit_of_all_s=limit_of_all_s)]
    try:
        env = dict(variables or {})
        _, said, _ = command.run(retcode=None, stdin=subprocess.DEVNULL, timeout=_ASK_LIMIT_S, env=env)
    except ProcessTimedOut as error:
        raise Problem(
            "this host does not answer questions about itself",
            cause=f"a question was still open after {_ASK_LIMIT_S} s, though each has a limit",
            fix="look for a process that cannot be killed (state D): ps -eo pid,stat,args | grep ' D'",
        ) from error
    return transcript.parse(said)


def program(name: str) -> str | None:
    """Where PATH has a program, or None."""
    return which(name)


class Process:
    """A running command: its own process group, its output passed on line by line, or stderr `on_error`."""

    def __init__(
        self, command: Command, on_line: OnLine, on_error: OnLine | None = None, *, heard: bool = False
    ) -> None:
        """`heard`: it reads what `say` tells it, and not nothing."""
        self.command = command
        self.last: deque[str] = deque(maxlen=_LAST_LINES)
        stdin = subprocess.PIPE if heard else subprocess.DEVNULL
        self._child = _spawn(command, stdin, subprocess.PIPE if on_error else subprocess.STDOUT)
        told = ((self._child.stdout, on_line), (self._child.stderr, on_error))
        self._readers = [threading.Thread(target=self._read, args=each, daemon=True) for each in told]
        try:
            for reader in self._readers:
                reader.start()
        except BaseException:  # Ctrl-C: nobody else knows of it yet
            self.stop(grace_s=5)
            raise

    @property
    def pid(self) -> int:
        return int(self._child.pid)

    def say(self, line: str) -> bool:
        """A line on its standard input; false where it does not listen any more."""
        if self._child.stdin is None:
            raise AssertionError(self.command)
        with contextlib.suppress(OSError, ValueError):
            self._child.stdin.write(f"{line}\n")
            self._child.stdin.flush()
            return True
        return False

    def hang_up(self) -> None:
        """Nothing more will be said."""
        if self._child.stdin:
            with contextlib.suppress(OSError):
                self._child.stdin.close()

    def poll(self) -> Finished | None:
        """How it ended, or None while it runs."""
        status = self._child.poll()
        if status is None:
            return None
        # Children of a dead engine may hold its output open: its last lines come at once or never.
        for reader in self._readers:
            if reader.is_alive():
                reader.join(timeout=2)
        return Finished(_exit_status(status), tuple(self.last))

    def wait(self, limit_s: float | None = None) -> Finished | None:
        """How it ended, or None when `limit_s` ran out first."""
        ended = self._child.returncode is not None or _ends_within(self.pid, limit_s)
        return self.poll() if ended else None

    def interrupt(self) -> None:
        """Ask it to end, and do not wait."""
        if self._child.returncode is None:
            self._signal(signal.SIGTERM)

    def stop(self, grace_s: float = 15) -> None:
        """End it and every process it started: ask first, and insist after `grace_s` seconds."""
        family = identified(descendants(self.pid))
        self._signal(signal.SIGTERM)
        if self.wait(grace_s) is None:
            family |= identified(descendants(self.pid))
            self._signal(signal.SIGKILL)
            self._child.wait()
        if self.command.undo:
            _quietly(self.command.undo)
        insist(family)

    def _signal(self, number: signal.Signals) -> None:
        if self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)
            return
        # It is reaped, so its number may be another's: only what it left to us is of its group.
        for each in identified(descendants(os.getpid())):
            with contextlib.suppress(ProcessLookupError):
                if os.getpgid(each.pid) == self.pid:
                    each.signal(number)

    def _read(self, stream: IO[str] | None, tell: OnLine | None) -> None:
        with stream or contextlib.nullcontext(()) as lines:
            for raw in lines:
                self.last.append(raw.rstrip("\n"))
                if tell:
                    tell(raw.rstrip("\n"))


def run(command: Command, *, limit_s: float | None = None, on_line: OnLine | None = None) -> Finished:
    """Run a command to its end; past `limit_s`, or on Ctrl-C, it is ended with all its children."""
    process = Process(command, on_line or (lambda _: None))
    try:
        finished = process.wait(limit_s)
    except BaseException:
        process.stop(grace_s=5)
        raise
    if finished is None:
        process.stop(grace_s=5)
        raise Problem(
            f"{Path(command.argv[0]).name} did not finish",
            cause=f"its limit is {limit_s:.0f} s",
            fix=f"run it by itself to see where it hangs: {command}",
        )
    return finished


def attend(command: Command) -> int:
    """Run it where the user is: our terminal is its own, and it may ask there. Returns its exit status."""
    child = subprocess.Popen(command.argv, env=command.environment(os.environ), preexec_fn=_die_with_parent)  # noqa: PLW1509 - as below
    try:
        return _exit_status(child.wait())
    except BaseException:
        child.terminate()
        child.wait()
        raise


def detach(command: Command, log: Path) -> int:
    """Start it, and leave it to itself: it outlives us and our terminal. Returns its process id."""
    store.make(log.parent)
    program = which(command.argv[0])
    if program is None:
        raise Problem(f"{command.argv[0]} cannot be started", cause="there is none", fix="put it on PATH")
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    env = command.environment(os.environ)
    return os.posix_spawn(program, command.argv, env, file_actions=files, setsid=True)


def _quietly(argv: tuple[str, ...]) -> None:
    """Run what ends what is no process of ours; that it is gone already is no matter."""
    child = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
    )
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(_UNDO_LIMIT_S)


def _spawn(command: Command, stdin: int, stderr: int) -> "subprocess.Popen[str]":
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans of what we start come to us, to be ended too
    try:
        return subprocess.Popen(
            command.argv,
            env=command.environment(os.environ) | store.secrets(command.secrets),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            errors="replace",
            process_group=0,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - one C call; it takes no lock
        )
    except (FileNotFoundError, PermissionError) as error:
        raise Problem(
            f"{command.argv[0]} cannot be started",
            cause=in_words(error),
            fix=f"install it, or put it on PATH: command -v {Path(command.argv[0]).name}",
        ) from error


def _ends_within(pid: int, limit_s: float | None) -> bool:
    """Whether a child that is not yet reaped ends in time.

    Popen.wait(timeout) looks again and again, up to 50 ms apart; a pidfd tells at once.
    """
    handle = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(None if limit_s is None else max(0, limit_s) * 1000))
    finally:
        os.close(handle)


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _exit_status(status: int) -> int:
    return 128 - status if status < 0 else status
