"""The identity of a process: its id, and what tells it from a later process that gets the same id.

A process id is given again, after a reboot within minutes. The start time (field 22 of /proc/PID/stat, in
clock ticks since boot; proc(5)) and the kernel's boot id together are never given twice. Signals go through a
pidfd, which names the process and not the number (pidfd_open(2), Linux 5.3).
"""

import contextlib
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_STARTED, _STATE = 19, 0
"""Fields of /proc/PID/stat after the name, which may have spaces and brackets of its own."""


@dataclass(frozen=True)
class Identity:
    pid: int
    started: int
    """Clock ticks from the host's boot to its start."""
    boot: str
    """The kernel's id of that boot."""

    @property
    def alive(self) -> bool:
        """Whether it still runs; a zombie does not."""
        fields = _fields(self.pid)
        return bool(fields) and fields[_STATE] != "Z" and of(self.pid) == self

    @property
    def name(self) -> str:
        """As the kernel has it, cut off at 15 letters; none where it is gone."""
        with contextlib.suppress(OSError):
            return Path(f"/proc/{self.pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
        return ""

    def signal(self, number: signal.Signals) -> bool:
        """Send it a signal; false where it is gone, whoever has its number now."""
        try:
            handle = os.pidfd_open(self.pid)
        except (ProcessLookupError, ValueError, OverflowError):
            return False
        try:
            # The number may have been given away before the handle was opened, and cannot be after.
            if of(self.pid) != self:
                return False
            signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)
        return True


def of(pid: int) -> Identity | None:
    """That of a process that is there, also of a zombie."""
    fields = _fields(pid)
    return Identity(pid, int(fields[_STARTED]), boot()) if fields else None


def own() -> Identity:
    found = of(os.getpid())
    if found is None:
        raise AssertionError(os.getpid())
    return found


def identified(pids: Iterable[int]) -> set[Identity]:
    """Those of these ids that are there now."""
    return {found for pid in pids if (found := of(pid))}


def boot() -> str:
    return _BOOT.read_text(encoding="ascii").strip()


def _fields(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return text.rpartition(")")[2].split()
    return []
