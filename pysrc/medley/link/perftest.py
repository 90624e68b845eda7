"""perftest measures RDMA between two hosts: its commands, and what it prints."""

import re
from dataclasses import dataclass

from medley.command import Command
from medley.problem import Problem

# Both sides must be told the same, so nothing of it can be chosen on one.
_SECONDS = 5
_QUEUE_PAIRS = 4
_ROUNDS = 1000
_BANDWIDTH_PORT = 18515
_LATENCY_PORT = 18516

PORTS = (_BANDWIDTH_PORT, _LATENCY_PORT)
# It names its columns with their units, and a name may have blanks in it.
_COLUMN = re.compile(r"#\w+|[\w.%]+(?: [\w.%]+)*\[[^\]]+\]")


@dataclass(frozen=True)
class Adapter:
    """The RDMA port at one end."""

    device: str
    port: int
    gid_index: int | None
    """None on InfiniBand, which needs no GID."""


def bandwidth(adapter: Adapter, host: str | None) -> Command:
    """`host` is None where it serves."""
    how = ("-F", "--report_gbits", "-D", str(_SECONDS), "-q", str(_QUEUE_PAIRS), "-p", str(_BANDWIDTH_PORT))
    return Command(("ib_write_bw", *_of(adapter), *how, *([host] if host else ())))


def latency(adapter: Adapter, host: str | None) -> Command:
    how = ("-F", "-n", str(_ROUNDS), "-p", str(_LATENCY_PORT))
    return Command(("ib_write_lat", *_of(adapter), *how, *([host] if host else ())))


def _of(adapter: Adapter) -> tuple[str, ...]:
    gid = () if adapter.gid_index is None else ("-x", str(adapter.gid_index))
    return ("-d", adapter.device, "-i", str(adapter.port), *gid)


def mbit(text: str, host: str) -> float:
    """The average of `ib_write_bw --report_gbits`."""
    return _figure(text, "BW average[Gb/sec]", host) * 1000


def latency_us(text: str, host: str) -> float:
    """The median of `ib_write_lat`, one way."""
    return _figure(text, "t_typical[usec]", host)


def _figure(text: str, column: str, host: str) -> float:
    """Of the row below the names; remarks about the processor's frequency may stand between."""
    columns: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if "#bytes" in words:
            columns = _COLUMN.findall(line)
        elif column in columns and _is_row(words, len(columns)):
            return float(words[columns.index(column)])
    raise _unmeasured(text, host)


def _is_row(words: list[str], names: int) -> bool:
    """It may have more figures than names, as in some versions; of fewer nobody knows which is missing."""
    return len(words) >= names and all(re.fullmatch(r"\d+(\.\d+)?", word) for word in words)


def _unmeasured(text: str, host: str) -> Problem:
    said = [line.strip(" -*") for line in text.splitlines()]
    shown = "; ".join([line for line in said if line][-3:])[:300] or "nothing"
    if "connect" in shown.lower():
        fix = f"on {host}: medley link test --serve   # with perftest; or leave RDMA out: --tcp"
    else:
        fix = "ulimit -l (RDMA wants: unlimited); rdma link; or leave RDMA out: --tcp"
    return Problem(f"RDMA to {host} cannot be measured", cause=f"perftest said: {shown}", fix=fix)
