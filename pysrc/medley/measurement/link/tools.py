"""Build the commands of ping, iperf3 and perftest, and read their output."""

import json
import re
from collections.abc import Sequence

from medley.command import Command
from medley.errors import Problem
from medley.json_shape import has_type
from medley.network.ports import IPERF3_PORT, PERFTEST_BANDWIDTH_PORT, PERFTEST_LATENCY_PORT
from medley.values import Value

_IPERF3_CONNECT_MS = 3000
# perftest needs the same values on both hosts, so the user cannot choose them on one.
_PERFTEST_SECONDS = 5
_PERFTEST_QUEUE_PAIRS = 4
_PERFTEST_ROUNDS = 1000
# perftest's column names have units, and some names contain blanks.
_PERFTEST_COLUMN_PATTERN = re.compile(r"#\w+|[\w.%]+(?: [\w.%]+)*\[[^\]]+\]")
_DECIMAL_PATTERN = re.compile(r"\d+(\.\d+)?")
_PING_HEADERS_BYTES = 28  # of IPv4 and ICMP
_PING_MS = r"(\d{1,9}(?:\.\d{1,9})?)"
# The package of Debian and Ubuntu, and the attribute of nixpkgs.
_PACKAGES = {
    "ping": ("iputils-ping", "iputils"),
    "iperf3": ("iperf3", "iperf3"),
    "ib_write_bw": ("perftest", "perftest"),
    "ib_write_lat": ("perftest", "perftest"),
}


class Throughput(Value):
    """The result of iperf3 in one direction."""

    mbit: float
    retransmits: int | None
    cpu_percent: float
    """CPU use of iperf3 on the busier host; before version 3.16 it has one thread, so 100 at most."""


def build_server_command(address: str) -> Command:
    return Command(("iperf3", "-s", "-B", address, "-p", str(IPERF3_PORT)))


def build_client_command(host: str, *, source: str, seconds: int, streams: int, reverse: bool) -> Command:
    """Return the iperf3 client's command, without interim results; with `reverse` the other host sends."""
    target = ("-c", host, "-p", str(IPERF3_PORT), "-B", source, "--connect-timeout", str(_IPERF3_CONNECT_MS))
    load = ("-J", "-i", "0", "-t", str(seconds), "-P", str(streams))
    return Command(("iperf3", *target, *load, *(("-R",) if reverse else ())))


def read_throughput(text: str, host: str) -> Throughput:
    """Read the output of `iperf3 -J`, or raise a Problem; iperf3 may exit with 0 although it failed."""
    excerpt = " ".join(text.split())[:200] or "nothing"
    unreadable = Problem(
        f"iperf3 cannot measure the way to {host}",
        cause=f"instead of a result it printed: {excerpt}",
        fix=f"iperf3 --version   # 3.1 or later? then by hand: iperf3 -c {host} -J",
    )
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as cause:
        raise unreadable from cause
    if isinstance(error := _get_value(table, "error"), str):
        raise _iperf3_problem(error, host)
    received_bits = _get_number(table, "end", "sum_received", "bits_per_second")
    if received_bits is None:
        raise unreadable
    retransmits = _get_number(table, "end", "sum_sent", "retransmits")
    sides = ("host_total", "remote_total")
    cpu_percent = max(_get_number(table, "end", "cpu_utilization_percent", side) or 0.0 for side in sides)
    return Throughput(received_bits / 1e6, None if retransmits is None else int(retransmits), cpu_percent)


def _get_value(table: object, *keys: str) -> object:
    for key in keys:
        table = table.get(key) if isinstance(table, dict) else None
    return table


def _get_number(table: object, *keys: str) -> float | None:
    value = _get_value(table, *keys)
    return float(value) if isinstance(value, int | float) and has_type(value, float) else None


def _iperf3_problem(error: str, host: str) -> Problem:
    if "refused" in error or "timed out" in error:
        title = f"nothing answers at {host}:{IPERF3_PORT}"
        command = f"on {host}: medley link test --serve"
        fix = f"{command}   # and let TCP port {IPERF3_PORT} through its firewall"
    elif "busy" in error:
        title, fix = f"{host} is in another test", f"try again in a moment: medley link test {host}"
    else:
        title, fix = f"iperf3 cannot measure the way to {host}", f"ping -c 3 {host}"
    return Problem(title, cause=f"iperf3: {error}", fix=fix)


class Adapter(Value):
    """A port of an RDMA device, as perftest's switches name it."""

    device: str
    port: int
    gid_index: int | None
    """The row of the RoCE GID; None on InfiniBand, which needs no GID."""

    def build_command(self, program: str, *arguments: str, host: str | None) -> Command:
        """Return a command of perftest: the client's of `host`, or the server's if `host` is None."""
        gid = () if self.gid_index is None else ("-x", str(self.gid_index))
        port = ("-d", self.device, "-i", str(self.port), *gid)
        return Command((program, *port, "-F", *arguments, *([host] if host else ())))


def build_bandwidth_command(adapter: Adapter, host: str | None) -> Command:
    load = ("--report_gbits", "-D", str(_PERFTEST_SECONDS), "-q", str(_PERFTEST_QUEUE_PAIRS))
    return adapter.build_command("ib_write_bw", *load, "-p", str(PERFTEST_BANDWIDTH_PORT), host=host)


def build_latency_command(adapter: Adapter, host: str | None) -> Command:
    load = ("-n", str(_PERFTEST_ROUNDS), "-p", str(PERFTEST_LATENCY_PORT))
    return adapter.build_command("ib_write_lat", *load, host=host)


def read_mbit(text: str, host: str) -> float:
    """Read the average of `ib_write_bw --report_gbits`, in Mbit/s."""
    return _read_perftest_figure(text, "BW average[Gb/sec]", host) * 1000


def read_latency_us(text: str, host: str) -> float:
    """Read the median of `ib_write_lat`, one way, in µs."""
    return _read_perftest_figure(text, "t_typical[usec]", host)


def _read_perftest_figure(text: str, column: str, host: str) -> float:
    """Read a column of the first row below the header that has a figure for each name, or raise a Problem."""
    columns: list[str] = []
    for line in text.splitlines():
        cells = line.split()
        if "#bytes" in cells:
            columns = _PERFTEST_COLUMN_PATTERN.findall(line)
        elif column in columns and len(cells) >= len(columns) and all(map(_DECIMAL_PATTERN.fullmatch, cells)):
            return float(cells[columns.index(column)])
    lines = [stripped for line in text.splitlines() if (stripped := line.strip(" -*"))]
    excerpt = "; ".join(lines[-3:])[:300] or "nothing"
    if "connect" in excerpt.lower():
        fix = f"on {host}: medley link test --serve   # with perftest; or leave RDMA out: --tcp"
    else:
        fix = "ulimit -l (RDMA wants: unlimited); rdma link; or leave RDMA out: --tcp"
    raise Problem(f"RDMA to {host} cannot be measured", cause=f"perftest printed: {excerpt}", fix=fix)


class Ping(Value):
    """The counts and times that ping prints at its end."""

    sent: int
    received: int
    average_ms: float | None = None
    worst_ms: float | None = None


def build_ping_command(host: str, *, source: str, count: int, mtu: int | None = None) -> Command:
    """Return the command; with `mtu` each packet is as long as that, and no router may split it."""
    size = () if mtu is None else ("-M", "do", "-s", str(mtu - _PING_HEADERS_BYTES))
    load = ("-c", str(count), "-i", "0.2", "-W", "1")
    return Command(("ping", "-n", "-I", source, *load, *size, "--", host))


def read_ping(text: str) -> Ping | None:
    """Read ping's output; None if it printed something else, as that it may not open a socket."""
    counts = re.search(r"(\d{1,6}) packets transmitted, (\d{1,6}) (?:packets )?received", text)
    if counts is None:
        return None
    times = re.search(rf"= {_PING_MS}/{_PING_MS}/{_PING_MS}(?:/{_PING_MS})? ms", text)
    sent, received = int(counts[1]), int(counts[2])
    return Ping(sent, received, float(times[2]), float(times[3])) if times else Ping(sent, received)


def missing_programs_problem(names: Sequence[str]) -> Problem:
    debian = dict.fromkeys(_PACKAGES[name][0] for name in names)
    nix = dict.fromkeys(f"nixpkgs#{_PACKAGES[name][1]}" for name in names)
    tcp_advice = "; or leave RDMA out: --tcp" if all(name.startswith("ib_") for name in names) else ""
    return Problem(
        f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} not installed",
        cause=f"PATH has no {', '.join(names)}; the other host needs the same",
        fix=f"sudo apt-get install {' '.join(debian)}\nor: nix shell {' '.join(nix)}{tcp_advice}",
    )
