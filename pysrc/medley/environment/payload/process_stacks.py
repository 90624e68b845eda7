"""Describe the processes of an engine, with their stacks, and this host; prints one JSON object.

    python process_stacks.py look PID…     those processes, and all below them; PID `all`: every one
    python process_stacks.py stacks PID…   also their stacks, and the counters of this host

A process is sent the signal of stacks/sitecustomize.py only if it handles that.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

SIGNAL, FILE = 50, "memfd:medley-stacks"
_TITLES = ("VLLM::", "sglang::", "ray::")
_LIMIT_S, _WAIT_S, _QUIET_S = 8.0, 2.0, 0.15
"""For all stacks; for one; after its last line."""
_MOST_BYTES, _MOST_OF_ONE = 1 << 20, 48 << 10
_TICKS = os.sysconf("SC_CLK_TCK")
_COUNTERS = "class/net/*/statistics/*", "class/infiniband/*/ports/*/*counters/*"
_ASIDE = ("ray::IDLE", "ray::DashboardAgent", "ray::RuntimeEnvAgent")
_GPU = ("nvidia-smi", "-q", "-d", "UTILIZATION,POWER,MEMORY,TEMPERATURE,PERFORMANCE")


def look(roots: Iterable[int] | None, *, stacks: bool = False) -> dict[str, Any]:
    """Describe the processes below and with these (None: all), in the order of their numbers.

    `at_s`: when, by this host's monotonic clock.
    """
    at_s, found = time.monotonic(), [row for pid in sorted(_family(roots)) if (row := _described(pid))]
    if not stacks:
        return {"at_s": at_s, "processes": found}
    deadline, left = time.monotonic() + _LIMIT_S, _MOST_BYTES
    for row in found:
        row["stack"] = _stack(row, deadline)[: min(left, _MOST_OF_ONE)]
        left -= len(row["stack"])
    return {"at_s": at_s, "processes": found, "host": host()}


def of_raylet(*, stacks: bool, end: bool) -> dict[str, Any]:
    """Describe the ranks that this task's Ray has on this host; `end`: kill those that are stopped."""
    found = look([os.getppid()], stacks=stacks)
    ranks = [
        row
        for row in found["processes"]
        if row["name"].startswith(_TITLES)
        and not row["name"].startswith(_ASIDE)
        and row["pid"] != os.getpid()
    ]
    for row in ranks:
        if end and row["state"] == "T":  # it does not hear that its model has ended
            with suppress(OSError):
                os.kill(row["pid"], 9)
    return {**found, "processes": ranks}


def _family(roots: Iterable[int] | None) -> set[int]:
    parents = {int(each.name): _fields(int(each.name))[1:2] for each in Path("/proc").glob("[0-9]*")}
    if roots is None:
        return set(parents)
    found = set(roots)
    while more := {pid for pid, up in parents.items() if up and int(up[0]) in found and pid not in found}:
        found |= more
    return found


def _fields(pid: int) -> list[str]:
    return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _described(pid: int) -> dict[str, Any] | None:
    fields, words = _fields(pid), _read(f"/proc/{pid}/cmdline").split("\0")
    if not fields or fields[0] == "Z":
        return None
    title = next((word for word in words if word.startswith(_TITLES)), "")
    return {
        "pid": pid,
        "name": (title or _read(f"/proc/{pid}/comm")).strip()[:80],
        "state": fields[0].upper(),
        "wchan": _read(f"/proc/{pid}/wchan"),
        "cpu_s": (int(fields[11]) + int(fields[12])) / _TICKS,
    }


def _stack(row: dict[str, Any], deadline: float) -> str:
    if row["state"] in "TDX":
        return "none: a process in this state handles no signal"
    file = _file(row["pid"])
    with suppress(OSError):
        if file and _handles(row["pid"]):
            return _asked(row["pid"], file, min(deadline, time.monotonic() + _WAIT_S))
    program = shutil.which("py-spy")
    if not program or time.monotonic() > deadline:
        return "none: it does not handle the signal"
    words = [program, "dump", "--nonblocking", "--pid", str(row["pid"])]
    with suppress(OSError, subprocess.TimeoutExpired):
        return _ran(words)
    return "none: py-spy did not answer"


def _ran(words: Sequence[str]) -> str:
    return subprocess.run(words, capture_output=True, text=True, timeout=_WAIT_S, check=False).stdout  # noqa: S603 - our own words


def _asked(pid: int, file: str, deadline: float) -> str:
    with open(file, "rb") as found:  # noqa: PTH123 - a file without a path
        begun = size = found.seek(0, os.SEEK_END)
        os.kill(pid, SIGNAL)
        while time.monotonic() < deadline:
            time.sleep(_QUIET_S)
            before, size = size, found.seek(0, os.SEEK_END)
            if size == before > begun:
                break
        found.seek(begun)
        return found.read(_MOST_OF_ONE).decode(errors="replace") or "none: it did not answer the signal"


def _file(pid: int) -> str:
    with suppress(OSError):
        for each in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if FILE in os.readlink(each):  # noqa: PTH115 - it is no path
                    return str(each)
    return ""


def _handles(pid: int) -> bool:
    lines = _read(f"/proc/{pid}/status").splitlines()  # none of a process that has ended
    caught = next((line.split()[1] for line in lines if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (SIGNAL - 1) & 1)


def host() -> str:
    """Describe memory, pressure, links and GPUs as the kernel and the driver do, in bounded text."""
    return "\n".join(line[:200] for line in _host())[: 64 << 10]


def _host() -> Iterator[str]:
    for name in ("meminfo", "pressure/memory", "pressure/io", "pressure/cpu", "loadavg"):
        yield f"/proc/{name}"
        yield from _read(f"/proc/{name}").splitlines()[:12]
    for pattern in _COUNTERS:
        for file in sorted(Path("/sys").glob(pattern)):
            if (value := _read(str(file)).strip()) not in {"0", ""} and "/lo/" not in str(file):
                yield f"{file}: {value}"
    if shutil.which(_GPU[0]):
        with suppress(OSError, subprocess.TimeoutExpired):
            yield from (line for line in _ran(_GPU).splitlines() if "N/A" not in line)


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


if __name__ == "__main__":
    verb, *pids = sys.argv[1:]
    print(json.dumps(look(None if pids == ["all"] else map(int, pids), stacks=verb == "stacks")))
