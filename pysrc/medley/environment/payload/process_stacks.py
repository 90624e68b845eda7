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
from typing import TypedDict

STACK_SIGNAL, STACK_FILE = 50, "memfd:medley-stacks"
_TITLE_PREFIXES = ("VLLM::", "sglang::", "ray::")
_ALL_LIMIT_S, _PROCESS_LIMIT_S, _QUIET_S = 8.0, 2.0, 0.15
"""Seconds for all stacks, for one stack, and without output after its last line."""
_MAX_ALL_BYTES, _MAX_STACK_BYTES = 1 << 20, 48 << 10
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_COUNTER_PATTERNS = "class/net/*/statistics/*", "class/infiniband/*/ports/*/*counters/*"
_RAY_HELPERS = ("ray::IDLE", "ray::DashboardAgent", "ray::RuntimeEnvAgent")
_GPU_COMMAND = ("nvidia-smi", "-q", "-d", "UTILIZATION,POWER,MEMORY,TEMPERATURE,PERFORMANCE")


class _RequiredOfRow(TypedDict):
    pid: int
    name: str
    state: str
    """The letter in /proc/PID/stat: D is uninterruptible sleep, R runs or waits for a core, T is stopped."""
    wchan: str
    """The kernel function in which it waits, or 0."""
    cpu_s: float


class ProcessRow(_RequiredOfRow, total=False):
    """One process; `stack` only where stacks were requested."""

    stack: str


class _RequiredOfReport(TypedDict):
    at_s: float
    """The time of the sample, by this host's monotonic clock."""
    processes: Sequence[ProcessRow]


class HostReport(_RequiredOfReport, total=False):
    """The processes of a host; `host`, its counters, only where stacks were requested."""

    host: str


def describe_processes(roots: Iterable[int] | None, *, stacks: bool = False) -> HostReport:
    """Return these processes and their descendants (None: all processes), in the order of their numbers."""
    at_s = time.monotonic()
    processes = [row for pid in sorted(_find_process_tree(roots)) if (row := _describe_process(pid))]
    if not stacks:
        return {"at_s": at_s, "processes": processes}
    deadline, left_bytes = time.monotonic() + _ALL_LIMIT_S, _MAX_ALL_BYTES
    for row in processes:
        row["stack"] = _read_stack(row, deadline)[: min(left_bytes, _MAX_STACK_BYTES)]
        left_bytes -= len(row["stack"])
    return {"at_s": at_s, "processes": processes, "host": describe_host()}


def describe_ranks(*, stacks: bool, ends_stopped: bool) -> HostReport:
    """Return the ranks that this task's Ray has on this host; `ends_stopped`: kill stopped ones."""
    description = describe_processes([os.getppid()], stacks=stacks)
    ranks = [
        row
        for row in description["processes"]
        if row["name"].startswith(_TITLE_PREFIXES)
        and not row["name"].startswith(_RAY_HELPERS)
        and row["pid"] != os.getpid()
    ]
    for row in ranks:
        if ends_stopped and row["state"] == "T":  # a stopped rank does not notice that its model has ended
            with suppress(OSError):
                os.kill(row["pid"], 9)
    description["processes"] = ranks
    return description


def _find_process_tree(roots: Iterable[int] | None) -> set[int]:
    parents = {int(folder.name): _read_stat(int(folder.name))[1:2] for folder in Path("/proc").glob("[0-9]*")}
    if roots is None:
        return set(parents)
    pids = set(roots)
    while children := {
        pid for pid, parent in parents.items() if parent and int(parent[0]) in pids and pid not in pids
    }:
        pids |= children
    return pids


def _read_stat(pid: int) -> list[str]:
    return _read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _describe_process(pid: int) -> ProcessRow | None:
    fields, words = _read_stat(pid), _read_text(f"/proc/{pid}/cmdline").split("\0")
    if not fields or fields[0] == "Z":
        return None
    title = next((word for word in words if word.startswith(_TITLE_PREFIXES)), "")
    return {
        "pid": pid,
        "name": (title or _read_text(f"/proc/{pid}/comm")).strip()[:80],
        "state": fields[0].upper(),
        "wchan": _read_text(f"/proc/{pid}/wchan"),
        "cpu_s": (int(fields[11]) + int(fields[12])) / _TICKS_PER_S,
    }


def _read_stack(row: ProcessRow, deadline: float) -> str:
    if row["state"] in "TDX":
        return "none: a process in this state handles no signal"
    file = _find_stack_file(row["pid"])
    with suppress(OSError):
        if file and _is_signal_handled(row["pid"]):
            return _request_stack(row["pid"], file, min(deadline, time.monotonic() + _PROCESS_LIMIT_S))
    program = shutil.which("py-spy")
    if not program or time.monotonic() > deadline:
        return "none: it does not handle the signal"
    words = [program, "dump", "--nonblocking", "--pid", str(row["pid"])]
    with suppress(OSError, subprocess.TimeoutExpired):
        return _run(words)
    return "none: py-spy did not answer"


def _run(words: Sequence[str]) -> str:
    return subprocess.run(words, capture_output=True, text=True, timeout=_PROCESS_LIMIT_S, check=False).stdout  # noqa: S603 - our own words


def _request_stack(pid: int, path: str, deadline: float) -> str:
    with open(path, "rb") as stack_file:  # noqa: PTH123 - a file without a path
        start_bytes = size_bytes = stack_file.seek(0, os.SEEK_END)
        os.kill(pid, STACK_SIGNAL)
        while time.monotonic() < deadline:
            time.sleep(_QUIET_S)
            old_bytes, size_bytes = size_bytes, stack_file.seek(0, os.SEEK_END)
            if size_bytes == old_bytes > start_bytes:
                break
        stack_file.seek(start_bytes)
        return (
            stack_file.read(_MAX_STACK_BYTES).decode(errors="replace") or "none: it did not answer the signal"
        )


def _find_stack_file(pid: int) -> str:
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if STACK_FILE in os.readlink(descriptor):  # noqa: PTH115 - it is no path
                    return str(descriptor)
    return ""


def _is_signal_handled(pid: int) -> bool:
    lines = _read_text(f"/proc/{pid}/status").splitlines()  # empty after the process has ended
    handled_mask = next((line.split()[1] for line in lines if line.startswith("SigCgt:")), "0")
    return bool(int(handled_mask, 16) >> (STACK_SIGNAL - 1) & 1)


def describe_host() -> str:
    """Return memory, pressure, links and GPUs in the kernel's and the driver's words, in bounded text."""
    return "\n".join(line[:200] for line in _list_host_lines())[: 64 << 10]


def _list_host_lines() -> Iterator[str]:
    for name in ("meminfo", "pressure/memory", "pressure/io", "pressure/cpu", "loadavg"):
        yield f"/proc/{name}"
        yield from _read_text(f"/proc/{name}").splitlines()[:12]
    for pattern in _COUNTER_PATTERNS:
        for file in sorted(Path("/sys").glob(pattern)):
            if (value := _read_text(str(file)).strip()) not in {"0", ""} and "/lo/" not in str(file):
                yield f"{file}: {value}"
    if shutil.which(_GPU_COMMAND[0]):
        with suppress(OSError, subprocess.TimeoutExpired):
            yield from (line for line in _run(_GPU_COMMAND).splitlines() if "N/A" not in line)


def _read_text(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


if __name__ == "__main__":
    verb, *pids = sys.argv[1:]
    print(
        json.dumps(describe_processes(None if pids == ["all"] else map(int, pids), stacks=verb == "stacks"))
    )
