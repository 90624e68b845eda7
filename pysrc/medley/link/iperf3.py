"""iperf3 measures TCP between two hosts: its commands, and what its JSON says."""

import json
from dataclasses import dataclass
from typing import Any

from medley.command import Command
from medley.problem import Problem
from medley.shaped import fits

PORT = 5201
_CONNECT_MS = 3000


@dataclass(frozen=True)
class Throughput:
    """What came through in one direction."""

    mbit: float
    """As it was received."""
    retransmits: int | None
    cpu_percent: float
    """Of the busier side's iperf3; before version 3.16, which has one thread, 100 is all it can use."""


def server(address: str) -> Command:
    return Command(("iperf3", "-s", "-B", address, "-p", str(PORT)))


def client(host: str, *, source: str, seconds: int, streams: int, reverse: bool) -> Command:
    """Without intervals, which nobody reads here; `reverse`: the other host sends."""
    where = ("iperf3", "-c", host, "-p", str(PORT), "-B", source, "--connect-timeout", str(_CONNECT_MS))
    how = ("-J", "-i", "0", "-t", str(seconds), "-P", str(streams))
    return Command((*where, *how, *(("-R",) if reverse else ())))


def throughput(text: str, host: str) -> Throughput:
    """What a client printed with -J. It may exit with 0 although it failed."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unreadable(text, host) from error
    if not isinstance(said, dict):
        raise _unreadable(text, host)
    if isinstance(said.get("error"), str):
        raise failed(said["error"], host)
    end = _table(said, "end")
    received = _number(_table(end, "sum_received"), "bits_per_second")
    if received is None:
        raise _unreadable(text, host)
    retransmits = _number(_table(end, "sum_sent"), "retransmits")
    cpu = _table(end, "cpu_utilization_percent")
    busier = max(_number(cpu, side) or 0.0 for side in ("host_total", "remote_total"))
    return Throughput(received / 1e6, None if retransmits is None else int(retransmits), busier)


def _table(of: dict[str, Any], key: str) -> dict[str, Any]:
    found = of.get(key)
    return found if isinstance(found, dict) else {}


def _number(of: dict[str, Any], key: str) -> float | None:
    found = of.get(key)
    return float(found or 0) if fits(found, float) else None


def failed(error: str, host: str) -> Problem:
    if "refused" in error or "timed out" in error:
        return Problem(
            f"nothing answers at {host}:{PORT}",
            cause=f"iperf3: {error}",
            fix=f"on {host}: medley link test --serve   # and let TCP port {PORT} through its firewall",
        )
    if "busy" in error:
        return Problem(
            f"{host} is in another test",
            cause=f"iperf3: {error}",
            fix=f"try again in a moment: medley link test {host}",
        )
    return Problem(
        f"iperf3 cannot measure the way to {host}", cause=f"iperf3: {error}", fix=f"ping -c 3 {host}"
    )


def _unreadable(text: str, host: str) -> Problem:
    shown = " ".join(text.split())[:200] or "nothing"
    return Problem(
        f"iperf3 cannot measure the way to {host}",
        cause=f"instead of a result it said: {shown}",
        fix=f"iperf3 --version   # 3.1 or later? then by hand: iperf3 -c {host} -J",
    )
