"""Identify processes by pid, start time and boot id; find and end them.

The kernel reuses process ids, after a reboot within minutes. The start time (field 22 of /proc/PID/stat, in
clock ticks since boot; proc(5)) and the kernel's boot id together are never reused. psutil's
create time is since the epoch and moves when the clock is set, so it cannot be recorded.
Signals go through a pidfd, which names the process and not the number (pidfd_open(2), Linux 5.3).

psutil is imported late, because that takes 20 ms.
"""

import os
import select
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from medley.values import Value

if TYPE_CHECKING:
    import psutil

_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
_START_FIELD, _STATE_FIELD = 19, 0
"""Fields of /proc/PID/stat after the name, which may have spaces and brackets."""
_SEGMENT_CHECK_S = 5.0
_TRACKERS_LIMIT_S = 2
_SEGMENT_PATTERN = "/dev/shm/psm_*"  # noqa: S108 - it is the name that Python gives them
T = TypeVar("T")


class ProcessIdentity(Value):
    """A process, distinct from all others with its number."""

    pid: int
    started: int
    """Clock ticks from the host's boot to its start."""
    boot: str
    """The kernel's id of that boot."""

    @property
    def is_alive(self) -> bool:
        fields = _read_fields(self.pid)
        return bool(fields) and fields[_STATE_FIELD] != "Z" and find_identity(self.pid) == self

    @property
    def is_of_user(self) -> bool:
        """Whether this user may end it; also where it is gone."""
        with suppress(ProcessLookupError, OverflowError):
            try:
                os.kill(self.pid, 0)
            except PermissionError:
                return False
        return True

    @property
    def name(self) -> str:
        """Its name of up to 15 characters; empty where it is gone."""
        with suppress(OSError):
            return Path(f"/proc/{self.pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
        return ""

    @property
    def is_stopped(self) -> bool:
        """Whether it is stopped, as SIGSTOP and a debugger leave it."""
        return _read_fields(self.pid)[:1] in (["T"], ["t"])

    def ignores(self, number: signal.Signals) -> bool:
        """Return whether it ignores a signal, as SIGINT where a shell script started it with `&`."""
        with suppress(OSError, ValueError):
            status = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8", errors="replace")
            mask = next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:"))
            return bool(int(mask, 16) >> (number - 1) & 1)
        return False

    def signal(self, number: signal.Signals) -> bool:
        """Send it a signal; False where it is gone."""
        with self._handle() as handle, suppress(ProcessLookupError):
            if handle is not None:
                signal.pidfd_send_signal(handle, number)
                return True
        return False

    def wait_for_end(self, limit_s: float | None) -> bool:
        """Wait for its end; a zombie has ended."""
        with self._handle() as handle:
            if handle is None:
                return True
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            return bool(poll.poll(None if limit_s is None else max(0, limit_s) * 1000))

    @property
    def is_resource_tracker(self) -> bool:
        """Whether it is a resource tracker of Python's multiprocessing."""
        with suppress(OSError):
            return b"multiprocessing.resource_tracker" in Path(f"/proc/{self.pid}/cmdline").read_bytes()
        return False

    @property
    def shared_memory_segments(self) -> Iterator[Path]:
        """Segments of Python's multiprocessing.shared_memory that it has open."""
        with suppress(OSError):
            for descriptor in Path(f"/proc/{self.pid}/fd").iterdir():
                with suppress(OSError):
                    if (segment := descriptor.readlink()).match(_SEGMENT_PATTERN):
                        yield segment

    def reap(self) -> None:
        """Let the kernel forget it, if it has ended and is a child of this process."""
        with self._handle() as handle, suppress(ChildProcessError):
            if handle is not None:
                os.waitid(os.P_PIDFD, handle, os.WEXITED | os.WNOHANG)

    @contextmanager
    def _handle(self) -> Iterator[int | None]:
        try:
            handle = os.pidfd_open(self.pid)
        except (ProcessLookupError, FileNotFoundError, ValueError, OverflowError):
            yield None  # Linux 6.15 finds no file where the number is that of another process's thread
            return
        try:
            # The number may have been reused before the handle was opened, and cannot be after.
            yield handle if find_identity(self.pid) == self else None
        finally:
            os.close(handle)


@dataclass
class FailedProcessFinder:
    """Finds processes that have ended, or are stopped for `limit_s` seconds, so that others hang."""

    limit_s: float
    _since: dict[ProcessIdentity, float] = field(default_factory=dict)

    def find(self, processes: Iterable[ProcessIdentity]) -> list[ProcessIdentity]:
        now = time.monotonic()
        alive = {process: process.is_alive for process in processes}
        self._since = {process: self._since.get(process, now) for process in alive if process.is_stopped}
        return [
            process
            for process in alive
            if not alive[process] or now - self._since.get(process, now) >= self.limit_s
        ]


@dataclass
class SharedMemoryCleaner:
    """Removes the shared-memory segments of dead descendants, once no process has them open."""

    _holders: dict[Path, set[ProcessIdentity]] = field(default_factory=dict)
    _next_check_s: float = 0

    def check(self) -> None:
        """Note who has which, at most every few seconds; call it often, and `remove_unused` at the end."""
        if time.monotonic() >= self._next_check_s:
            self._next_check_s = time.monotonic() + _SEGMENT_CHECK_S
            self.remove_unused()

    def remove_unused(self) -> None:
        for process in list_descendants(os.getpid()):
            for segment in process.shared_memory_segments:
                self._holders.setdefault(segment, set()).add(process)
        unused = {
            segment
            for segment, holders in self._holders.items()
            if not any(process.is_alive for process in holders)
        }
        if unused:
            unused -= {
                segment
                for process, _ in _inspect(lambda process: process.pid)
                for segment in process.shared_memory_segments
            }
        for segment in unused:
            with suppress(OSError):  # its owner removed it
                segment.unlink()
            del self._holders[segment]


def reap_orphans() -> None:
    """Reap the processes that this process adopted.

    Its own children lead process groups, and the module `process` reaps them.
    """
    for process in list_descendants(os.getpid()):
        with suppress(ProcessLookupError):
            if os.getpgid(process.pid) != process.pid and not process.is_alive:
                process.reap()


def find_identity(pid: int) -> ProcessIdentity | None:
    """Return the identity of a process or zombie."""
    fields = _read_fields(pid)
    if not fields:
        return None
    return ProcessIdentity(pid, int(fields[_START_FIELD]), _BOOT_ID_FILE.read_text(encoding="ascii").strip())


def read_current_identity() -> ProcessIdentity:
    return require_identity(os.getpid())


def require_identity(pid: int) -> ProcessIdentity:
    """Return the identity of a process that must exist."""
    identity = find_identity(pid)
    if identity is None:
        raise AssertionError(pid)
    return identity


def _read_fields(pid: int) -> list[str]:
    with suppress(OSError):
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return text.rpartition(")")[2].split()
    return []


def read_environments() -> dict[ProcessIdentity, dict[str, str]]:
    """Return the initial environment of each process of this user."""
    return dict(_inspect(lambda process: process.environ()))


def find_file_holder(file: Path, *words: str) -> ProcessIdentity | None:
    """Return the process that has this file open and whose command ends with these words."""

    def holds(process: "psutil.Process") -> bool:
        return tuple(process.cmdline()[-len(words) :]) == words and any(
            file.samefile(opened.path) for opened in process.open_files()
        )

    return next((identity for identity, is_holder in _inspect(holds) if is_holder), None)


def _inspect(inspect: "Callable[[psutil.Process], T]") -> Iterator[tuple[ProcessIdentity, T]]:
    """Inspect each process that this user may inspect; psutil.process_iter() would skip reused numbers."""
    import psutil  # noqa: PLC0415 - as the module says

    for pid in psutil.pids():
        with suppress(psutil.Error, OSError):  # it ended, is another user's, or closed a file meanwhile
            process = psutil.Process(pid)
            result = inspect(process)
            if identity := _identify(process):
                yield identity, result


def list_descendants(root: int) -> set[ProcessIdentity]:
    """Return every process below the one that has this id now."""
    import psutil  # noqa: PLC0415 - as the module says

    with suppress(psutil.NoSuchProcess):
        return {
            identity
            for child in psutil.Process(root).children(recursive=True)
            if (identity := _identify(child))
        }
    return set()


def _identify(process: "psutil.Process") -> ProcessIdentity | None:
    """Return its identity; None where its number was reused since psutil found it."""
    identity = find_identity(process.pid)
    return identity if process.is_running() else None


def end_processes(processes: Collection[ProcessIdentity], grace_s: float) -> None:
    """Ask processes to end, and kill them after `grace_s` seconds."""
    _signal_all(processes, signal.SIGTERM, grace_s)
    kill_processes(processes)


def kill_processes(processes: Collection[ProcessIdentity], limit_s: float = 3) -> None:
    """Kill processes, and wait until they are gone.

    Python's resource trackers come last: once the others are gone, they remove their semaphores and end.
    """
    trackers = [process for process in processes if process.is_resource_tracker]
    _signal_all([process for process in processes if process not in trackers], signal.SIGKILL, limit_s)
    _signal_all(trackers, signal.SIGCONT, _TRACKERS_LIMIT_S)  # also one that is stopped
    _signal_all(trackers, signal.SIGKILL, limit_s)
    # Also those that ended by themselves, because a zombie keeps its namespace alive.
    for process in processes:
        process.reap()


def _signal_all(processes: Collection[ProcessIdentity], number: signal.Signals, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    for process in processes:
        process.signal(number)
    for process in processes:
        process.wait_for_end(deadline - time.monotonic())
