"""Decide when the memory of this host, or of this process's control group, is low or critical.

While it is low, a server refuses requests; after two critical seconds it is ended (serving/memory_guard.py).

GPU and system share the memory of a Spark or a Jetson; such hosts froze before the kernel's OOM killer acted
(vllm issues 46307, 56824). earlyoom acts at 10 % available, systemd-oomd where processes stall for 60 % of
30 s. 10 % of 128 GiB is more than a plan leaves available: it keeps 8 GiB for the system, of which the engine
uses about 5.6 GiB outside of its own accounting (planner/memory.py). So the bounds here are below 2.4 GiB.
"""

import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from medley.errors import Problem
from medley.values import Value

Level = Literal["enough", "low", "critical"]
MIB, GIB = 1 << 20, 1 << 30
_LOW_SHARE, _MIN_LOW_BYTES, _MAX_LOW_BYTES = 0.04, 512 * MIB, 2 * GIB
"""The share of all memory below which it is low, and the limits of that bound."""
_MIN_LOW_DIVISOR = 8
"""The bound is at most one eighth of all memory, which holds on small hosts."""
_RECOVERED_RATIO = 1.5
_MIN_SWAP_SHARE = 0.1
"""earlyoom's share of free swap, below which swap no longer helps."""
_MAX_STALLED_PERCENT = 50.0
"""The percent of ten seconds in which no process of the host went on: Fedora's limit of systemd-oomd."""
_CHECK_INTERVAL_S, _PATIENCE_S = 1.0, 2.0
_LARGEST_PROCESSES = 5
_V1_LIMIT_FILE = "memory.limit_in_bytes"


class MemoryState(Value):
    """The memory of the host, or of a control group with a limit, in bytes."""

    where: str
    total: int
    available: int
    swap: int = 0
    swap_free: int = 0
    stalled: float | None = None
    """`full avg10` of PSI, in percent; None where the kernel has none, as on many Jetsons."""
    cached: int = 0
    """The page cache of the host; most of it is available."""

    def compute_bounds(self, reserve: int | None = None) -> tuple[int, int]:
        """Return the available bytes below which it is low, and critical; `reserve` replaces the first."""
        low = reserve
        if low is None:
            most = min(_MAX_LOW_BYTES, self.total // _MIN_LOW_DIVISOR)
            low = min(most, max(_MIN_LOW_BYTES, int(self.total * _LOW_SHARE)))
        return low, low // 2

    def classify(self, reserve: int | None = None) -> Level:
        low, critical = self.compute_bounds(reserve)
        if self.available >= low:
            return "enough"
        is_stalled = self.stalled is not None and self.stalled >= _MAX_STALLED_PERCENT
        # Free swap helps only where PSI would show that the host waits for it.
        can_swap = self.stalled is not None and self.swap_free > self.swap * _MIN_SWAP_SHARE
        return "critical" if is_stalled or (self.available < critical and not can_swap) else "low"

    def __str__(self) -> str:
        swap = (
            f", {_format_bytes(self.swap_free)} of {_format_bytes(self.swap)} swap free" if self.swap else ""
        )
        stalled = "" if self.stalled is None else f", all processes stalled for {self.stalled:.0f} % of 10 s"
        available = f"{_format_bytes(self.available)} of {_format_bytes(self.total)} available"
        return f"{available} on {self.where}{swap}{stalled}"


class HostMemory(NamedTuple):
    """The memory that limits this process."""

    host: MemoryState
    group: MemoryState | None
    """The memory of the control group with the least left; None if none has a lower limit."""

    @property
    def states(self) -> tuple[MemoryState, ...]:
        """The memory of the host, and of the group if there is one."""
        return (self.host, self.group) if self.group else (self.host,)


def read_memory(root: Path = Path("/")) -> HostMemory | None:
    """Return the memory of this host and of its control group; None where /proc does not show it."""
    entries = dict(re.findall(r"(?m)^(\w+): +(\d+) kB", _read_text(root / "proc/meminfo")))
    sizes = {name: int(kib) * 1024 for name, kib in entries.items()}
    if not {"MemTotal", "MemAvailable"} <= sizes.keys():
        return None
    host = MemoryState(
        "this host",
        total=sizes["MemTotal"],
        available=sizes["MemAvailable"],
        swap=sizes.get("SwapTotal", 0),
        swap_free=sizes.get("SwapFree", 0),
        stalled=_read_stalled(root / "proc/pressure/memory"),
        cached=sizes.get("Cached", 0),
    )
    groups = (group for group in _list_groups(root) if group.total < host.total)
    return HostMemory(host, min(groups, key=lambda group: group.available, default=None))


def _list_groups(root: Path) -> Iterator[MemoryState]:
    """Yield the control groups of this process that have a limit.

    In a container the paths in /proc/self/cgroup may not exist, so every parent is tried.
    """
    for line in _read_text(root / "proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        tree = root / "sys/fs/cgroup" / ("memory" if "memory" in controllers.split(",") else "")
        if tree.name != "memory" and number != "0":
            continue
        group = Path(path.lstrip("/"))
        for folder in dict.fromkeys((*(tree / ancestor for ancestor in (group, *group.parents)), tree)):
            is_v1 = (folder / _V1_LIMIT_FILE).exists()
            names = (_V1_LIMIT_FILE, "memory.usage_in_bytes") if is_v1 else ("memory.max", "memory.current")
            limit, used = (_read_text(folder / name).strip() for name in names)
            if limit.isdecimal() and used.isdecimal():
                stat = dict(re.findall(r"(?m)^(\w+) (\d+)$", _read_text(folder / "memory.stat")))
                prefix = "total_" if is_v1 else ""
                idle, active = (int(stat.get(f"{prefix}{state}_file", 0)) for state in ("inactive", "active"))
                # The count of kubelet, and half of the files in use: mapped weights are among them.
                available = max(0, int(limit) - int(used) + idle + active // 2)
                stalled = _read_stalled(folder / "memory.pressure")
                yield MemoryState(f"control group {path}", int(limit), available, stalled=stalled)


def _read_stalled(file: Path) -> float | None:
    match = re.search(r"full avg10=([\d.]+)", _read_text(file))
    return float(match[1]) if match else None


def _read_text(file: Path) -> str:
    with suppress(OSError):
        return file.read_text(encoding="utf-8", errors="replace")
    return ""


def list_largest_processes(root: Path = Path("/proc")) -> list[tuple[int, str, int]]:
    """Return pid, name and resident bytes of the five largest processes; buffers of a GPU are in none."""
    processes = []
    for folder in root.glob("[0-9]*"):
        fields, name = _read_text(folder / "statm").split(), _read_text(folder / "comm").strip()
        if len(fields) > 1:
            processes.append((int(folder.name), name, int(fields[1]) * os.sysconf("SC_PAGE_SIZE")))
    return sorted(processes, key=lambda process: -process[2])[:_LARGEST_PROCESSES]


def count_kernel_kills(root: Path = Path("/")) -> int | None:
    """Return the number of processes that the kernel killed for memory since its boot; None if unknown.

    /proc/vmstat has it since Linux 4.13.
    """
    match = re.search(r"(?m)^oom_kill (\d+)$", _read_text(root / "proc/vmstat"))
    return int(match[1]) if match else None


def describe_killer(kills_before: int | None, root: Path = Path("/")) -> str:
    """Return whether the kernel killed a process, as a clause that follows "it was killed, ".

    `kills_before`: the kernel's kills when that process started.
    """
    kills = count_kernel_kills(root)
    if kills_before is None or kills is None:
        return "as the kernel does when memory runs out"
    if kills > kills_before:
        return f"and the kernel killed {kills - kills_before} processes for memory since it started"
    return "and not by the kernel, which killed no process for memory since it started"


class MemoryWatch:
    """A watch of the level, at most every second; `check` is cheap, and called often."""

    def __init__(self, environ: Mapping[str, str] = os.environ, patience_s: float = _PATIENCE_S) -> None:
        """Read MEDLEY_MEMORY_RESERVE_MIB; `patience_s`: the time for which memory may be critical."""
        self._reserve, self._patience_s = read_reserve(environ), patience_s
        self._next, self._critical_since = 0.0, float("inf")
        self.low: str | None = None
        """The figures while memory is low; None again once 1.5 times the bound is available."""

    def check(self) -> bool:
        """Return whether memory has been critical for long enough; `low` is as of the last look."""
        now = time.monotonic()
        if self._reserve == 0 or now < self._next:
            return False
        self._next = now + _CHECK_INTERVAL_S
        host_memory = read_memory()
        states = host_memory.states if host_memory else ()
        levels = [(memory.classify(self._reserve), memory) for memory in states]
        low = [memory for level, memory in levels if level != "enough"]
        if low:
            self.low = str(min(low, key=lambda memory: memory.available))
        elif all(self._has_recovered(memory) for _, memory in levels):
            self.low = None
        is_critical = any(level == "critical" for level, _ in levels)
        self._critical_since = min(self._critical_since, now) if is_critical else float("inf")
        return now - self._critical_since >= self._patience_s

    def _has_recovered(self, memory: MemoryState) -> bool:
        return memory.available > memory.compute_bounds(self._reserve)[0] * _RECOVERED_RATIO

    def build_problem(self, what: str) -> Problem:
        """Explain the end of `what`, with the processes that use the most."""
        users = ", ".join(
            f"{name} ({pid}) {_format_bytes(size)}" for pid, name, size in list_largest_processes()
        )
        return Problem(
            f"medley ended {what} before this host's memory ran out",
            cause=f"{self.low}; largest processes: {users}",
            fix="end what else uses memory, or give the engine less: "
            "medley serve MODEL --context 8192 --concurrency 4",
        )


def read_reserve(environ: Mapping[str, str]) -> int | None:
    """Return MEDLEY_MEMORY_RESERVE_MIB in bytes: memory is low below it; 0 turns the watch off."""
    mib = environ.get("MEDLEY_MEMORY_RESERVE_MIB", "")
    if mib and not mib.isdecimal():
        raise Problem(
            f"MEDLEY_MEMORY_RESERVE_MIB is {mib!r}",
            cause="it is a number of MiB, such as 2048, or 0 for no watch over memory",
            fix="export MEDLEY_MEMORY_RESERVE_MIB=2048",
        )
    return int(mib) * MIB if mib else None


def _format_bytes(size: int) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size >> 20} MiB"
