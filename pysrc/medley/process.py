"""Start, watch and end processes; the only module that may.

Everything it starts is a `Command`, ends with medley, and is ended with all its children.
"""

import ctypes
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from shutil import which
from typing import IO, TypeVar

from medley import storage, transcript
from medley.command import Command
from medley.errors import Problem, describe_error
from medley.process_identity import (
    ProcessIdentity,
    end_processes,
    find_identity,
    kill_processes,
    list_descendants,
    require_identity,
)
from medley.values import Value

_QUESTIONS_LIMIT_S = 60
_UNDO_LIMIT_S = 30
_MAX_LINE_CHARS, _MAX_STORED_CHARS = 8 << 20, 64 << 10
_MAX_LAST_LINES = 400
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_M_ARENA_MAX = -8

OnLine = Callable[[str], None]
T = TypeVar("T")
_libc = ctypes.CDLL(None, use_errno=True)
if hasattr(_libc, "mallopt"):  # glibc gives each thread a heap of its own, which hardly shrinks: mallopt(3)
    _libc.mallopt(_M_ARENA_MAX, 1)


class ProcessResult(Value):
    """The end of a command: its exit status (128 + signal if killed) and its last lines."""

    status: int
    lines: tuple[str, ...]


class ProcessTimeout(Problem):
    """A command ran past its limit."""


def run(command: Command, *, limit_s: float | None = None, on_line: OnLine | None = None) -> ProcessResult:
    """Run a command to its end; after `limit_s`, or on Ctrl-C, end it with all its children."""
    process = Process(command, on_line or (lambda _: None))
    finished = None
    try:
        finished = process.wait(limit_s)
    finally:
        if finished is None:
            process.stop(grace_s=5)
    if finished is None:
        raise ProcessTimeout(
            f"{Path(command.argv[0]).name} did not finish",
            cause=f"its limit is {limit_s:.0f} s",
            fix=f"run it by hand to see where it hangs: {command}",
        )
    return finished


def ask_host(
    questions: Iterable[str],
    variables: Mapping[str, str] | None = None,
    *,
    limit_of_all_s: float = transcript.SESSION_LIMIT_S,
) -> transcript.Transcript:
    """Run these questions in one shell on this host; `variables` are added to medley's environment."""
    command = ("sh", "-c", transcript.build_script(questions, limit_of_all_s=limit_of_all_s))
    env = {**os.environ, **(variables or {})}
    try:
        result = subprocess.run(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_QUESTIONS_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Problem(
            "this host does not answer questions about itself",
            cause=f"its commands did not all end within {_QUESTIONS_LIMIT_S} s, although each has a limit",
            fix="find the process that cannot be killed (state D): ps -eo pid,stat,args | grep ' D'",
        ) from error
    except OSError as error:
        raise Problem(
            "sh did not start, which asks this host about itself",
            cause=f"{describe_error(error)}; PATH is {env.get('PATH', 'not set')!r}",
            fix="export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        ) from error
    return transcript.parse_transcript(result.stdout.decode("utf-8", "ignore"))


def run_on_terminal(command: Command) -> int:
    """Run a command on this terminal, where it may ask the user; return its exit status."""
    child = subprocess.Popen(
        command.argv,
        env=command.build_environment(os.environ),
        preexec_fn=_die_with_parent,  # noqa: PLW1509 - one C call; it takes no lock
    )
    try:
        return _to_shell_status(child.wait())
    except BaseException:
        child.terminate()
        child.wait()
        raise


def start_detached(command: Command, log: Path) -> int:
    """Start a command that outlives medley and the terminal; return its process id."""
    storage.make_folder(log.parent)
    executable = which(command.argv[0])
    if executable is None:
        raise Problem(f"{command.argv[0]} not found", cause="it is not on PATH", fix="install it")
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    env = command.build_environment(os.environ)
    with storage.explain_errors(log, "written"):  # posix_spawn would not name the log in its error
        os.close(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o644))
    return os.posix_spawn(executable, command.argv, env, file_actions=files, setsid=True)


def find_program(name: str) -> str | None:
    """Find a program on PATH."""
    return which(name)


def wait_until(predicate: Callable[[], T], limit_s: float, *, every_s: float = 0.05) -> T:
    """Call `predicate` until it is true or `limit_s` has passed; return the last result."""
    deadline = time.monotonic() + limit_s
    while not (result := predicate()) and time.monotonic() < deadline:
        time.sleep(every_s)
    return result


class Process:
    """A running command in its own process group; stderr goes to `on_error`, if given, else to `on_line`."""

    def __init__(
        self, command: Command, on_line: OnLine, on_error: OnLine | None = None, *, has_stdin: bool = False
    ) -> None:
        """Start the command; with `has_stdin`, `write_line` writes to its stdin, which else is empty."""
        self.command = command
        self.last_lines: deque[str] = deque(maxlen=_MAX_LAST_LINES)
        stdin = subprocess.PIPE if has_stdin else subprocess.DEVNULL
        self._child = _spawn(command, stdin, subprocess.PIPE if on_error else subprocess.STDOUT)
        self._reaping = threading.Lock()
        self._identity = require_identity(self.pid)  # at least as a zombie, until it is reaped
        streams = ((self._child.stdout, on_line), (self._child.stderr, on_error))
        self._readers = [threading.Thread(target=self._read, args=stream, daemon=True) for stream in streams]
        try:
            for reader in self._readers:
                reader.start()
        except BaseException:  # Ctrl-C: no one else can end it yet
            self.stop(grace_s=5)
            raise

    @property
    def pid(self) -> int:
        return int(self._child.pid)

    @property
    def written_bytes(self) -> int:
        """The bytes that it has written to files, or what the kernel counts as such; 0 once it is gone."""
        with suppress(OSError, ValueError):
            table = Path(f"/proc/{self.pid}/io").read_text(encoding="ascii")
            return int(dict(line.split(": ") for line in table.splitlines())["wchar"])
        return 0

    def write_line(self, line: str) -> bool:
        """Write a line to its standard input; False where that is closed."""
        if self._child.stdin is None:
            raise AssertionError(self.command)
        with suppress(OSError, ValueError):
            self._child.stdin.write(f"{line}\n")
            self._child.stdin.flush()
            return True
        return False

    def close_stdin(self) -> None:
        if self._child.stdin:
            with suppress(OSError):
                self._child.stdin.close()

    def poll(self) -> ProcessResult | None:
        """Return its end, or None while it runs."""
        with self._reaping:
            status = self._child.poll()
        if status is None:
            return None
        # Children of a dead engine may hold its output open, so wait only briefly for its last lines.
        for reader in self._readers:
            if reader.is_alive():
                reader.join(timeout=2)
        return ProcessResult(_to_shell_status(status), tuple(self.last_lines))

    def wait(self, limit_s: float | None = None) -> ProcessResult | None:
        """Return its end, or None after `limit_s`."""
        return self.poll() if self._identity.wait_for_end(limit_s) else None

    def prefer_for_oom_kill(self) -> None:
        """Let the kernel kill it, and what it starts from now on, before medley and sshd without memory."""
        with suppress(OSError):  # proc_pid_oom_score_adj(5): a larger value needs no privilege
            Path(f"/proc/{self.pid}/oom_score_adj").write_text("500", encoding="ascii")

    def terminate(self) -> None:
        """Send SIGTERM, and do not wait."""
        self._signal(signal.SIGTERM)

    def stop(self, grace_s: float = 15) -> None:
        """End it and every process it started: SIGTERM, and SIGKILL after `grace_s` seconds."""
        tree = self._find_descendants()
        if self._identity.wait_for_end(0):
            end_processes(tree, grace_s)
        else:
            self._signal(signal.SIGTERM)
            if not self._identity.wait_for_end(grace_s):
                tree |= self._find_descendants()
                self._identity.signal(signal.SIGKILL)
                self._identity.wait_for_end(None)
                tree |= self._find_descendants()
        if self.command.undo:  # a container, which may be gone already
            undo = subprocess.Popen(
                self.command.undo,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.STDOUT,
            )
            with suppress(subprocess.TimeoutExpired):
                undo.wait(_UNDO_LIMIT_S)
        kill_processes(tree)
        self.poll()

    def _signal(self, number: signal.Signals) -> None:
        """Send its group a signal, unless it is reaped and its number may be reused."""
        with self._reaping:  # another thread may reap it now
            if find_identity(self.pid) == self._identity:
                os.killpg(self.pid, number)

    def _find_descendants(self) -> set[ProcessIdentity]:
        """Return its descendants, and orphans of its group."""
        with self._reaping:
            identity = find_identity(self.pid)
            if identity not in {None, self._identity}:  # its number was reused, so its group is gone
                return set()
            tree = list_descendants(self.pid) if identity else set()
        for process in list_descendants(os.getpid()):
            with suppress(ProcessLookupError):
                if os.getpgid(process.pid) == self.pid:
                    tree.add(process)
        return tree - {self._identity}

    def _read(self, stream: IO[str] | None, on_line: OnLine | None) -> None:
        """Pass on each line; one of more than 8 MiB comes in parts, so that it cannot fill the memory."""
        if stream is None:
            return
        with stream:
            while raw := stream.readline(_MAX_LINE_CHARS):
                line = raw.rstrip("\n")
                self.last_lines.append(line[:_MAX_STORED_CHARS])
                if on_line:
                    on_line(line)


def _spawn(command: Command, stdin: int, stderr: int) -> "subprocess.Popen[str]":
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # adopt orphans of started processes, to end them too
    try:
        return subprocess.Popen(
            command.argv,
            env=command.build_environment(os.environ) | storage.read_secrets(command.secrets),
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
            f"{command.argv[0]} did not start",
            cause=describe_error(error),
            fix=f"install it, or put it on PATH: command -v {Path(command.argv[0]).name}",
        ) from error


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _to_shell_status(status: int) -> int:
    """Return the exit status as a shell has it: 128 + the signal that killed the process."""
    return 128 - status if status < 0 else status
