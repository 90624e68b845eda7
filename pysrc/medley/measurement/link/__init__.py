"""Measure the link to another host with ping, iperf3 and perftest, and judge it by what it should carry."""

import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from medley import process
from medley.command import Command
from medley.errors import Problem, in_words
from medley.host.facts import Facts
from medley.measurement.link import tools
from medley.measurement.link.tools import Adapter, Ping, Throughput
from medley.network import ports
from medley.network.fabric.endpoints import EndpointCandidate, endpoint_candidates
from medley.network.fabric.types import NetworkOptions, speed_text
from medley.process import Finished, Process
from medley.progress import SILENT, Progress

_PINGS = 10
_FULL_PINGS = 3
_LISTENS_S = 0.3
"""So soon iperf3 reports that its port is taken."""
_LOOK_S = 0.5
_SLACK_S = 15
"""For connecting and for the last words, after which a tool hangs."""
_BUSY_PERCENT = 90


@dataclass(frozen=True)
class Rdma:
    device: str
    mbit: float
    latency_us: float


@dataclass(frozen=True)
class LinkMeasurement:
    host: str
    interface: str
    address: str
    """Of this end."""
    mtu: int
    reported_mbit: int | None
    """By the driver."""
    promised_mbit: int | None
    """What it can really carry: of a Spark's half, half of what is reported."""
    ping: Ping | None
    full_ping: Ping | None
    """With packets as long as the MTU."""
    there: Throughput
    back: Throughput
    rdma: Rdma | None = None


def measure(
    host: str,
    facts: Facts,
    *,
    seconds: int,
    streams: int,
    tcp_only: bool = False,
    progress: Progress = SILENT,
) -> LinkMeasurement:
    """Measure the link to a host that serves, each step with a limit."""
    address, candidate = towards(host, facts)
    rdma = adapter(candidate, tcp_only=tcp_only)
    require(("ping", "iperf3", *(("ib_write_bw", "ib_write_lat") if rdma else ())))
    source, mtu = str(candidate.ip), candidate.link.mtu

    def stream(way: str) -> Throughput:
        command = tools.client(
            address, source=source, seconds=seconds, streams=streams, reverse=way == "back"
        )
        with progress.stage(f"TCP, {way}"):
            return tools.throughput(_output(command, seconds + _SLACK_S), address)

    with progress.stage("ping"):
        short = tools.ping(_output(tools.ping_command(address, source=source, count=_PINGS)))
        filling = tools.ping_command(address, source=source, count=_FULL_PINGS, mtu=mtu)
        full = tools.ping(_output(filling)) if mtu else None
    try:
        there, back = stream("there"), stream("back")
    except Problem as problem:
        if _are_too_long(short, full):  # then TCP stands still, and this is why
            raise _too_long(host, candidate.link.name, mtu) from problem
        raise
    return LinkMeasurement(
        host=host,
        interface=candidate.link.name,
        address=source,
        mtu=mtu,
        reported_mbit=candidate.link.mbit,
        promised_mbit=candidate.mbit or None,
        ping=short,
        full_ping=full,
        there=there,
        back=back,
        rdma=measure_rdma(rdma, address, progress) if rdma else None,
    )


def measure_rdma(adapter: Adapter, address: str, progress: Progress = SILENT) -> Rdma:
    with progress.stage("RDMA"):
        latency = tools.latency_us(_output(tools.latency(adapter, address)), address)
        mbit = tools.mbit(_output(tools.bandwidth(adapter, address)), address)
    return Rdma(adapter.device, mbit, latency)


def _output(command: Command, limit_s: float = _SLACK_S) -> str:
    lines: list[str] = []
    process.run(command, limit_s=limit_s, on_line=lines.append)
    return "\n".join(lines)


def serve(
    candidate: EndpointCandidate,
    rdma: Adapter | None,
    *,
    limit_s: float,
    ready: Callable[[], None],
    progress: Progress = SILENT,
) -> None:
    """Be the far side until `limit_s` has passed, and leave nothing running; `ready` when it listens."""
    commands = [tools.server(str(candidate.ip))]
    if rdma:
        commands += [tools.bandwidth(rdma, None), tools.latency(rdma, None)]
    require(tuple(command.argv[0] for command in commands))
    running: list[Process] = []
    noted: set[str] = set()

    def ended() -> Finished | None:
        running[1:] = [_serving(each, noted, progress) for each in running[1:]]
        return running[0].poll()

    try:
        running += [Process(command, lambda _: None) for command in commands]
        finished = running[0].wait(_LISTENS_S)
        if finished is None:
            ready()
            finished = process.wait_until(ended, limit_s, every_s=_LOOK_S)
    finally:
        for each in running:
            if each.poll() is None:
                each.stop(grace_s=2)
    if finished is not None:
        said = "; ".join(line for line in finished.lines if line.strip())[-300:]
        raise Problem(
            f"iperf3 does not serve at {candidate.ip}:{ports.IPERF3_PORT}",
            cause=f"it ended with {finished.status}: {said}",
            fix=f"see who has the port, and end it: sudo ss -ltnp 'sport = :{ports.IPERF3_PORT}'",
        )


def _serving(process: Process, noted: set[str], progress: Progress) -> Process:
    """Restart the server if it has ended: one of perftest serves one client."""
    ended = process.poll()
    if ended is None:
        return process
    note = f"{process.command.argv[0]} ended with {ended.status}: {' '.join(ended.lines[-2:])}"
    if ended.status and note not in noted:
        noted.add(note)
        progress.note(note)
    return Process(process.command, lambda _: None)


def endpoint(facts: Facts, asked: str | None) -> EndpointCandidate:
    """Find this host's end: the link or address asked for, else the fastest."""
    found, rejected = endpoint_candidates("this host", facts, NetworkOptions(link=asked))
    meant = [each for each in found if asked in {None, each.link.name, str(each.ip)}]
    if not meant:
        raise Problem(
            "this host has no link that others could reach",
            cause="; ".join(f"{each.interface}: {each.why}" for each in rejected),
            fix="ip -brief link; medley link setup",
        )
    return max(meant, key=lambda each: each.rank)


def towards(host: str, facts: Facts) -> tuple[str, EndpointCandidate]:
    """Return the other host's address, and this host's end of the link."""
    try:
        address = str(socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError) as error:
        raise Problem(
            f"there is no host {host!r}",
            cause=f"it has no IPv4 address: {in_words(error)}",
            fix="give its address on the link: medley link test 192.168.100.2",
        ) from error
    question = f"ip -json route get {address}"
    try:
        route = json.loads(process.ask([question])[question].text)[0]
        interface, source = str(route["dev"]), str(route["prefsrc"])
    except (ValueError, LookupError, TypeError) as error:
        raise Problem(
            f"this host has no route to {host}",
            cause=f"ip route get {address} finds none",
            fix="give both hosts addresses in one network: medley link setup",
        ) from error
    if interface == "lo":
        raise Problem(
            f"{host} is this host itself",
            cause=f"the way to {address} is the loopback",
            fix="name the other host: medley link test ADDRESS",
        )
    return address, endpoint(facts, source)


def adapter(candidate: EndpointCandidate, *, tcp_only: bool) -> Adapter | None:
    port = candidate.port
    return None if port is None or tcp_only else Adapter(port.device, port.port, candidate.gid_index)


def require(names: tuple[str, ...]) -> None:
    lacking = [name for name in names if process.program(name) is None]
    if lacking:
        raise tools.missing(lacking)


def problems(found: LinkMeasurement) -> Iterator[Problem]:
    """What is wrong with the link; nothing, where it carries at least half of what it should."""
    if _are_too_long(found.ping, found.full_ping):
        yield _too_long(found.host, found.interface, found.mtu)
    elif (ping := found.ping) and 0 < ping.received < ping.sent:
        yield Problem(
            f"{found.interface} loses packets",
            cause=f"{ping.sent - ping.received} of {ping.sent} pings to {found.host} were not answered",
            fix=f"reseat or change the cable; then see its errors on both hosts: medley link watch   "
            f"# or: ethtool -S {found.interface}",
        )
    promised = found.promised_mbit or 0
    if min(found.there.mbit, found.back.mbit) < promised / 2:
        yield _slow(found)
    if found.rdma and found.rdma.mbit < promised / 2:
        yield Problem(
            f"{found.rdma.device} carries less than half of what it should",
            cause=f"RDMA to {found.host}: {shown_mbit(found.rdma.mbit)} of {speed_text(promised)}",
            fix="on both hosts, the lanes in use: medley facts; a Spark with 2 instead of 4: "
            "sudo fwupdmgr update; then its errors under load: medley link watch",
        )


def _are_too_long(short: Ping | None, full: Ping | None) -> bool:
    return bool(short and short.received and full and not full.received)


def _too_long(host: str, interface: str, mtu: int) -> Problem:
    return Problem(
        f"packets of {mtu} bytes do not get through to {host}",
        cause=f"short pings are answered, and those that fill {interface}'s MTU are lost: the other "
        "end or a switch has a smaller one",
        fix=f"one MTU for both ends (and the switch): medley link setup --interface {interface} --mtu N",
    )


def _slow(found: LinkMeasurement) -> Problem:
    worse = min(found.there, found.back, key=lambda one: one.mbit)
    if worse.cpu_percent >= _BUSY_PERCENT:
        fix = "the processor is the limit, not the link: iperf3 3.16 or later uses several cores (iperf3 -v)"
    elif worse.retransmits:
        fix = (
            "packets are lost: medley link watch on both hosts while this runs names the link and its errors"
        )
    else:
        show = f"ethtool {found.interface} | grep -E 'Speed|Duplex'; tc qdisc show dev {found.interface}"
        fix = f"compare both ends: {show}"
    retransmits = "" if worse.retransmits is None else f", {worse.retransmits} segments sent again"
    return Problem(
        f"{found.interface} carries less than half of what it should",
        cause=f"TCP to {found.host}: {shown_mbit(found.there.mbit)} there, {shown_mbit(found.back.mbit)} "
        f"back, of {speed_text(found.promised_mbit or 0)}; "
        f"iperf3 used {worse.cpu_percent:.0f} % of a core{retransmits}",
        fix=fix,
    )


def shown_mbit(mbit: float) -> str:
    """With three digits, in the unit that fits."""
    return f"{mbit / 1000:.3g} Gbit/s" if mbit >= 1000 else f"{mbit:.3g} Mbit/s"  # noqa: PLR2004 - of the unit
