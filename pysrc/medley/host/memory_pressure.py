"""Notice that this host, or the control group of this process, runs out of memory.

GPU and system share the memory of a Spark or a Jetson; such hosts froze before the kernel's OOM killer acted
(vllm issues 46307, 56824). earlyoom acts at 10 % available, systemd-oomd where processes stall for 60 % of
30 s. Of 128 GiB 10 % are more than a plan leaves: of the 8 GiB that it keeps for the system, the engine uses
5.6 GiB outside of its own accounting (planner/memory.py). The bounds here are below what remains.
"""

import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from medley.errors import Problem

Level = Literal["enough", "low", "critical"]
MIB, GIB = 1 << 20, 1 << 30
_LOW_PART, _LEAST_LOW, _MOST_LOW, _SMALL_PART = 0.04, 512 * MIB, 2 * GIB, 8
_RECOVERED = 1.5
_SWAP_FREE = 0.1
"""earlyoom's, below which swap no longer helps."""
_STALLED = 50.0
"""Percent of ten seconds in which no process of the host went on: Fedora's limit of systemd-oomd."""
_LOOK_EVERY_S, _PATIENCE_S = 1.0, 2.0
_LARGEST = 5
_FLAT = "memory.limit_in_bytes"


@dataclass(frozen=True)
class Memory:
    """Memory of the host, or of a control group with a limit, in bytes."""

    where: str
    total: int
    available: int
    swap: int = 0
    swap_free: int = 0
    stalled: float | None = None
    """`full avg10` of PSI, in percent; None where the kernel has none, as on many Jetsons."""
    cached: int = 0
    """The page cache of the host; most of it is available."""

    def bounds(self, reserve: int | None = None) -> tuple[int, int]:
        """Return the available bytes below which it is low, and critical; `reserve` replaces the first."""
        most = min(_MOST_LOW, self.total // _SMALL_PART)
        low = min(most, max(_LEAST_LOW, int(self.total * _LOW_PART))) if reserve is None else reserve
        return low, low // 2

    def level(self, reserve: int | None = None) -> Level:
        low, critical = self.bounds(reserve)
        if self.available >= low:
            return "enough"
        stalls = self.stalled is not None and self.stalled >= _STALLED
        # Free swap helps only where PSI would show that the host waits for it.
        swaps = self.stalled is not None and self.swap_free > self.swap * _SWAP_FREE
        return "critical" if stalls or (self.available < critical and not swaps) else "low"

    def __str__(self) -> str:
        swap = f", {_gib(self.swap_free)} of {_gib(self.swap)} swap free" if self.swap else ""
        stalled = "" if self.stalled is None else f", all processes stalled for {self.stalled:.0f} % of 10 s"
        return f"{_gib(self.available)} of {_gib(self.total)} available on {self.where}{swap}{stalled}"


def read(root: Path = Path("/")) -> Iterator[Memory]:
    """Yield the host's memory, then that of the control group with the least left, if one has a limit."""
    found = dict(re.findall(r"(?m)^(\w+): +(\d+) kB", _text(root / "proc/meminfo")))
    kib = {name: int(value) * 1024 for name, value in found.items()}
    if {"MemTotal", "MemAvailable"} <= kib.keys():
        swap, pressure = (kib.get("SwapTotal", 0), kib.get("SwapFree", 0)), root / "proc/pressure/memory"
        sizes = kib["MemTotal"], kib["MemAvailable"], *swap
        yield Memory("this host", *sizes, _stalled(pressure), kib.get("Cached", 0))
        groups = (each for each in _groups(root) if each.total < kib["MemTotal"])
        if least := min(groups, key=lambda each: each.available, default=None):
            yield least


def _groups(root: Path) -> Iterator[Memory]:
    """Yield the control groups of this process that have a limit; in a container their paths are not here."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        tree = root / "sys/fs/cgroup" / ("memory" if "memory" in controllers.split(",") else "")
        if tree.name != "memory" and number != "0":
            continue
        own = Path(path.lstrip("/"))
        for folder in dict.fromkeys((*(tree / each for each in (own, *own.parents)), tree)):
            flat = (folder / _FLAT).exists()
            names = (_FLAT, "memory.usage_in_bytes") if flat else ("memory.max", "memory.current")
            limit, used = (_text(folder / name).strip() for name in names)
            if limit.isdecimal() and used.isdecimal():
                stat = dict(re.findall(r"(?m)^(\w+) (\d+)$", _text(folder / "memory.stat")))
                prefix = "total_" if flat else ""
                idle, active = (int(stat.get(f"{prefix}{each}_file", 0)) for each in ("inactive", "active"))
                # As kubelet counts, and half of the files that are in use: mapped weights are such.
                left = int(limit) - int(used) + idle + active // 2
                where = f"control group {path}"
                yield Memory(where, int(limit), max(0, left), stalled=_stalled(folder / "memory.pressure"))


def _stalled(file: Path) -> float | None:
    found = re.search(r"full avg10=([\d.]+)", _text(file))
    return float(found[1]) if found else None


def _text(file: Path) -> str:
    with suppress(OSError):
        return file.read_text(encoding="utf-8", errors="replace")
    return ""


def largest(root: Path = Path("/proc")) -> list[tuple[int, str, int]]:
    """Return pid, name and resident bytes of the five largest processes; buffers of a GPU are in none."""
    found = []
    for folder in root.glob("[0-9]*"):
        fields, name = _text(folder / "statm").split(), _text(folder / "comm").strip()
        if len(fields) > 1:
            found.append((int(folder.name), name, int(fields[1]) * os.sysconf("SC_PAGE_SIZE")))
    return sorted(found, key=lambda each: -each[2])[:_LARGEST]


def kernel_kills(root: Path = Path("/")) -> int | None:
    """Return how many processes the kernel has killed for memory since its boot (vmstat, Linux 4.13)."""
    found = re.search(r"(?m)^oom_kill (\d+)$", _text(root / "proc/vmstat"))
    return int(found[1]) if found else None


def killer(before: int | None, root: Path = Path("/")) -> str:
    """Say whether the kernel killed a process; `before`: its kills when that started."""
    now = kernel_kills(root)
    if before is None or now is None:
        return "as the kernel does when memory runs out"
    if now > before:
        return f"and the kernel killed {now - before} processes for memory since it started"
    return "and not by the kernel, which killed no process for memory since it started"


class MemoryWatch:
    """Follows the level, at most every second; `look` is cheap, and called often."""

    def __init__(self, environ: Mapping[str, str] = os.environ, patience_s: float = _PATIENCE_S) -> None:
        """`patience_s`: how long memory must be critical without a break."""
        self._reserve, self._patience_s = reserve(environ), patience_s
        self._next, self._critical_since = 0.0, float("inf")
        self.low: str | None = None
        """The figures while memory is low, until half as much again as that bound is available."""

    def look(self) -> bool:
        """Return whether memory has been critical for long enough; `low` is as of the last look."""
        now = time.monotonic()
        if self._reserve == 0 or now < self._next:
            return False
        self._next = now + _LOOK_EVERY_S
        found = [(each.level(self._reserve), each) for each in read()]
        lacking = [each for level, each in found if level != "enough"]
        if lacking:
            self.low = str(min(lacking, key=lambda each: each.available))
        elif all(each.available > each.bounds(self._reserve)[0] * _RECOVERED for _, each in found):
            self.low = None
        critical = any(level == "critical" for level, _ in found)
        self._critical_since = min(self._critical_since, now) if critical else float("inf")
        return now - self._critical_since >= self._patience_s

    def problem(self, what: str) -> Problem:
        """Explain the end of `what`, with the processes that use the most."""
        users = ", ".join(f"{name} ({pid}) {_gib(size)}" for pid, name, size in largest())
        return Problem(
            f"medley ended {what} before this host's memory ran out",
            cause=f"{self.low}; largest processes: {users}",
            fix="end what else uses memory, or give the engine less: "
            "medley serve MODEL --context 8192 --concurrency 4",
        )


def reserve(environ: Mapping[str, str]) -> int | None:
    """Read MEDLEY_MEMORY_RESERVE_MIB in bytes: memory is low below it; 0 turns the watch off."""
    told = environ.get("MEDLEY_MEMORY_RESERVE_MIB", "")
    if told and not told.isdecimal():
        raise Problem(
            f"MEDLEY_MEMORY_RESERVE_MIB is {told!r}",
            cause="it is a number of MiB, such as 2048, or 0 for no watch over memory",
            fix="export MEDLEY_MEMORY_RESERVE_MIB=2048",
        )
    return int(told) * MIB if told else None


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size >> 20} MiB"
