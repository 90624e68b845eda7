"""Commands of ping, iperf3 and perftest, and what they print."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from medley.command import Command
from medley.errors import Problem
from medley.json_shape import fits
from medley.network.ports import IPERF3_PORT, PERFTEST_BANDWIDTH_PORT, PERFTEST_LATENCY_PORT

_IPERF3_CONNECT_MS = 3000
# Both sides of perftest must be told the same, so nothing of it can be chosen on one.
_PERFTEST_SECONDS = 5
_PERFTEST_QUEUE_PAIRS = 4
_PERFTEST_ROUNDS = 1000
# It names its columns with their units, and a name may have blanks in it.
_PERFTEST_COLUMN = re.compile(r"#\w+|[\w.%]+(?: [\w.%]+)*\[[^\]]+\]")
_DECIMAL = re.compile(r"\d+(\.\d+)?")
_PING_HEADERS_BYTES = 28  # of IPv4 and ICMP
_PING_MS = r"(\d{1,9}(?:\.\d{1,9})?)"
# Debian and Ubuntu's package, and nixpkgs' attribute.
_PACKAGES = {
    "ping": ("iputils-ping", "iputils"),
    "iperf3": ("iperf3", "iperf3"),
    "ib_write_bw": ("perftest", "perftest"),
    "ib_write_lat": ("perftest", "perftest"),
}


@dataclass(frozen=True)
class Throughput:
    mbit: float
    retransmits: int | None
    cpu_percent: float
    """Of the busier side's iperf3; before version 3.16, which has one thread, 100 is all it can use."""


def server(address: str) -> Command:
    return Command(("iperf3", "-s", "-B", address, "-p", str(IPERF3_PORT)))


def client(host: str, *, source: str, seconds: int, streams: int, reverse: bool) -> Command:
    """Without intervals, which nobody reads here; `reverse`: the other host sends."""
    where = ("-c", host, "-p", str(IPERF3_PORT), "-B", source, "--connect-timeout", str(_IPERF3_CONNECT_MS))
    how = ("-J", "-i", "0", "-t", str(seconds), "-P", str(streams))
    return Command(("iperf3", *where, *how, *(("-R",) if reverse else ())))


def throughput(text: str, host: str) -> Throughput:
    """What a client printed with -J. It may exit with 0 although it failed."""
    shown = " ".join(text.split())[:200] or "nothing"
    unreadable = Problem(
        f"iperf3 cannot measure the way to {host}",
        cause=f"instead of a result it printed: {shown}",
        fix=f"iperf3 --version   # 3.1 or later? then by hand: iperf3 -c {host} -J",
    )
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise unreadable from error
    if isinstance(refusal := _value(table, "error"), str):
        raise _failed(refusal, host)
    received = _number(table, "end", "sum_received", "bits_per_second")
    if received is None:
        raise unreadable
    retransmits = _number(table, "end", "sum_sent", "retransmits")
    sides = ("host_total", "remote_total")
    busier = max(_number(table, "end", "cpu_utilization_percent", side) or 0.0 for side in sides)
    return Throughput(received / 1e6, None if retransmits is None else int(retransmits), busier)


def _value(table: object, *keys: str) -> object:
    for key in keys:
        table = table.get(key) if isinstance(table, dict) else None
    return table


def _number(table: object, *keys: str) -> float | None:
    found = _value(table, *keys)
    return float(found) if isinstance(found, int | float) and fits(found, float) else None


def _failed(error: str, host: str) -> Problem:
    if "refused" in error or "timed out" in error:
        what = f"nothing answers at {host}:{IPERF3_PORT}"
        serve = f"on {host}: medley link test --serve"
        fix = f"{serve}   # and let TCP port {IPERF3_PORT} through its firewall"
    elif "busy" in error:
        what, fix = f"{host} is in another test", f"try again in a moment: medley link test {host}"
    else:
        what, fix = f"iperf3 cannot measure the way to {host}", f"ping -c 3 {host}"
    return Problem(what, cause=f"iperf3: {error}", fix=fix)


@dataclass(frozen=True)
class Adapter:
    device: str
    port: int
    gid_index: int | None
    """None on InfiniBand, which needs no GID."""

    def command(self, program: str, *words: str, host: str | None) -> Command:
        """`host` is None where it serves."""
        gid = () if self.gid_index is None else ("-x", str(self.gid_index))
        port = ("-d", self.device, "-i", str(self.port), *gid)
        return Command((program, *port, "-F", *words, *([host] if host else ())))


def bandwidth(adapter: Adapter, host: str | None) -> Command:
    how = ("--report_gbits", "-D", str(_PERFTEST_SECONDS), "-q", str(_PERFTEST_QUEUE_PAIRS))
    return adapter.command("ib_write_bw", *how, "-p", str(PERFTEST_BANDWIDTH_PORT), host=host)


def latency(adapter: Adapter, host: str | None) -> Command:
    how = ("-n", str(_PERFTEST_ROUNDS), "-p", str(PERFTEST_LATENCY_PORT))
    return adapter.command("ib_write_lat", *how, host=host)


def mbit(text: str, host: str) -> float:
    """The average of `ib_write_bw --report_gbits`."""
    return _perftest_figure(text, "BW average[Gb/sec]", host) * 1000


def latency_us(text: str, host: str) -> float:
    """The median of `ib_write_lat`, one way."""
    return _perftest_figure(text, "t_typical[usec]", host)


def _perftest_figure(text: str, column: str, host: str) -> float:
    """Read a column of the first row below the names that has at least as many figures as there are names."""
    columns: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if "#bytes" in words:
            columns = _PERFTEST_COLUMN.findall(line)
        elif column in columns and len(words) >= len(columns) and all(map(_DECIMAL.fullmatch, words)):
            return float(words[columns.index(column)])
    lines = [stripped for line in text.splitlines() if (stripped := line.strip(" -*"))]
    shown = "; ".join(lines[-3:])[:300] or "nothing"
    if "connect" in shown.lower():
        fix = f"on {host}: medley link test --serve   # with perftest; or leave RDMA out: --tcp"
    else:
        fix = "ulimit -l (RDMA wants: unlimited); rdma link; or leave RDMA out: --tcp"
    raise Problem(f"RDMA to {host} cannot be measured", cause=f"perftest printed: {shown}", fix=fix)


@dataclass(frozen=True)
class Ping:
    sent: int
    received: int
    average_ms: float | None = None
    worst_ms: float | None = None


def ping_command(host: str, *, source: str, count: int, mtu: int | None = None) -> Command:
    """With `mtu` each packet fills it and must not be split on the way."""
    full = () if mtu is None else ("-M", "do", "-s", str(mtu - _PING_HEADERS_BYTES))
    how = ("-c", str(count), "-i", "0.2", "-W", "1")
    return Command(("ping", "-n", "-I", source, *how, *full, "--", host))


def ping(text: str) -> Ping | None:
    """None where it printed something else, as that it may not open a socket."""
    counts = re.search(r"(\d{1,6}) packets transmitted, (\d{1,6}) (?:packets )?received", text)
    if counts is None:
        return None
    times = re.search(rf"= {_PING_MS}/{_PING_MS}/{_PING_MS}(?:/{_PING_MS})? ms", text)
    sent, received = int(counts[1]), int(counts[2])
    return Ping(sent, received, float(times[2]), float(times[3])) if times else Ping(sent, received)


def missing(lacking: Sequence[str]) -> Problem:
    debian = dict.fromkeys(_PACKAGES[name][0] for name in lacking)
    nix = dict.fromkeys(f"nixpkgs#{_PACKAGES[name][1]}" for name in lacking)
    without = "; or leave RDMA out: --tcp" if all(name.startswith("ib_") for name in lacking) else ""
    return Problem(
        f"{' and '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} not installed",
        cause=f"PATH has no {', '.join(lacking)}; the other host needs the same",
        fix=f"sudo apt-get install {' '.join(debian)}\nor: nix shell {' '.join(nix)}{without}",
    )
