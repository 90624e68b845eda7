"""A trial runs the tools over a wire: one host serves them for a while, the other measures."""

import json
import socket
import time
from collections.abc import Callable

from medley import machine
from medley.command import Command
from medley.fabric.shapes import Wishes
from medley.fabric.ways import Way, ways
from medley.facts import Facts
from medley.link import iperf3, perftest, ping, programs, verdict
from medley.link.verdict import Measured, Rdma
from medley.problem import Problem, in_words
from medley.watch import SILENT, Watch

_PINGS = 10
_FULL_PINGS = 3
_LISTENS_S = 0.3
"""So soon iperf3 says that its port is taken."""
_LOOK_S = 0.5
_SLACK_S = 15
"""For connecting and for the last words, after which a tool hangs."""


def end(facts: Facts, asked: str | None) -> Way:
    """The end at this host: the link or address asked for, else the fastest."""
    found, rejected = ways("this host", facts, Wishes(link=asked))
    meant = [way for way in found if asked in {None, way.link.name, str(way.ip)}]
    if not meant:
        why = "; ".join(f"{each.interface}: {each.why}" for each in rejected)
        raise Problem(
            "this host has no link that others could reach",
            cause=why,
            fix="ip -brief link; medley link setup",
        )
    return max(meant, key=lambda way: way.rank)


def towards(host: str, facts: Facts) -> tuple[str, Way]:
    """The other host's address, and this host's end of the way there."""
    address = _resolved(host)
    question = f"ip -json route get {address}"
    try:
        route = json.loads(machine.ask([question])[question].text)[0]
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
    return address, end(facts, source)


def _resolved(host: str) -> str:
    try:
        return str(socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError) as error:
        raise Problem(
            f"there is no host {host!r}",
            cause=f"it has no IPv4 address: {in_words(error)}",
            fix="give its address on the wire: medley link test 192.168.100.2",
        ) from error


def adapter(way: Way, *, tcp_only: bool) -> perftest.Adapter | None:
    if way.port is None or tcp_only:
        return None
    return perftest.Adapter(way.port.device, way.port.port, way.gid_index)


def require(names: tuple[str, ...]) -> None:
    lacking = [name for name in names if machine.program(name) is None]
    if lacking:
        raise programs.missing(lacking)


def measure(
    host: str, facts: Facts, *, seconds: int, streams: int, tcp_only: bool = False, watch: Watch = SILENT
) -> Measured:
    """Everything there is to know of the way to a host that serves; each step ends in time."""
    address, way = towards(host, facts)
    rdma = adapter(way, tcp_only=tcp_only)
    require(("ping", "iperf3", *(("ib_write_bw", "ib_write_lat") if rdma else ())))
    source, mtu = str(way.ip), way.link.mtu
    with watch.stage("ping"):
        short = _pinged(ping.command(address, source=source, count=_PINGS))
        full = _pinged(ping.command(address, source=source, count=_FULL_PINGS, mtu=mtu)) if mtu else None
    try:
        there = _streamed(address, source, seconds, streams, reverse=False, watch=watch)
        back = _streamed(address, source, seconds, streams, reverse=True, watch=watch)
    except Problem as problem:
        if verdict.are_too_long(short, full):  # then TCP stands still, and this is why
            raise verdict.too_long(host, way.link.name, mtu) from problem
        raise
    return Measured(
        host=host,
        interface=way.link.name,
        address=source,
        mtu=mtu,
        reported_mbit=way.link.mbit,
        promised_mbit=way.mbit or None,
        ping=short,
        full_ping=full,
        there=there,
        back=back,
        rdma=written(rdma, address, watch) if rdma else None,
    )


def _pinged(command: Command) -> ping.Ping | None:
    return ping.ping(_said(command, _SLACK_S))


def _streamed(
    address: str, source: str, seconds: int, streams: int, *, reverse: bool, watch: Watch
) -> iperf3.Throughput:
    command = iperf3.client(address, source=source, seconds=seconds, streams=streams, reverse=reverse)
    with watch.stage(f"TCP, {'back' if reverse else 'there'}"):
        return iperf3.throughput(_said(command, seconds + _SLACK_S), address)


def written(adapter: perftest.Adapter, address: str, watch: Watch = SILENT) -> Rdma:
    """What RDMA carries to a host that serves it."""
    with watch.stage("RDMA"):
        latency = perftest.latency_us(_said(perftest.latency(adapter, address), _SLACK_S), address)
        speed = perftest.mbit(_said(perftest.bandwidth(adapter, address), _SLACK_S), address)
    return Rdma(adapter.device, speed, latency)


def _said(command: Command, limit_s: float) -> str:
    lines: list[str] = []
    machine.run(command, limit_s=limit_s, on_line=lines.append)
    return "\n".join(lines)


def serve(
    way: Way,
    rdma: perftest.Adapter | None,
    *,
    limit_s: float,
    ready: Callable[[], None],
    watch: Watch = SILENT,
) -> None:
    """Be the far side until `limit_s` has passed, and leave nothing running; `ready` when it listens."""
    commands = [iperf3.server(str(way.ip))]
    if rdma:
        commands += [perftest.bandwidth(rdma, None), perftest.latency(rdma, None)]
    require(tuple(command.argv[0] for command in commands))
    deadline = time.monotonic() + limit_s
    running: list[machine.Process] = []
    said: set[str] = set()
    try:
        running += [machine.Process(command, lambda _: None) for command in commands]
        ended = running[0].wait(_LISTENS_S)
        if ended is None:
            ready()
        while ended is None and time.monotonic() < deadline:
            ended = running[0].wait(_LOOK_S)
            running[1:] = [_again(each, said, watch) for each in running[1:]]
    finally:
        for each in running:
            if each.poll() is None:
                each.stop(grace_s=2)
    if ended is not None:
        raise _not_served(way, ended)


def _again(process: machine.Process, said: set[str], watch: Watch) -> machine.Process:
    """A server of perftest is for one client."""
    ended = process.poll()
    if ended is None:
        return process
    note = f"{process.command.argv[0]} ended with {ended.status}: {' '.join(ended.lines[-2:])}"
    if ended.status and note not in said:
        said.add(note)
        watch.note(note)
    return machine.Process(process.command, lambda _: None)


def _not_served(way: Way, ended: machine.Finished) -> Problem:
    said = "; ".join(line for line in ended.lines if line.strip())[-300:]
    return Problem(
        f"iperf3 does not serve at {way.ip}:{iperf3.PORT}",
        cause=f"it ended with {ended.status}: {said}",
        fix=f"see who has the port, and end it: sudo ss -ltnp 'sport = :{iperf3.PORT}'",
    )
