"""Measure the link to another host with ping, iperf3 and perftest, and serve another host's measurement."""

import json
import socket
from collections.abc import Callable

from medley import process
from medley.command import Command
from medley.errors import Problem, describe_error
from medley.host.facts import Facts
from medley.measurement.link import tools
from medley.measurement.link.result import LinkMeasurement, RdmaSpeed
from medley.measurement.link.tools import Adapter, Throughput
from medley.measurement.link.verdict import are_lost_at_mtu, mtu_problem
from medley.network import ports
from medley.network.fabric.choice import NetworkOptions
from medley.network.fabric.endpoints import EndpointCandidate, find_endpoint_candidates
from medley.process import Process, ProcessResult
from medley.progress import SILENT, Progress

_PING_COUNT = 10
_FULL_PING_COUNT = 3
_LISTEN_LIMIT_S = 0.3
"""The time after which iperf3 has reported that its port is in use."""
_POLL_INTERVAL_S = 0.5
_EXTRA_LIMIT_S = 15
"""The time to connect and to print a result; a tool that needs more hangs."""
_KILL_GRACE_S = 2


def measure_link(
    host: str,
    facts: Facts,
    *,
    seconds: int,
    streams: int,
    tcp_only: bool = False,
    progress: Progress = SILENT,
) -> LinkMeasurement:
    """Measure the link to a host that serves, for `seconds` in each direction with `streams` of TCP."""
    address, candidate = find_route(host, facts)
    rdma = find_adapter(candidate, tcp_only=tcp_only)
    require_programs(("ping", "iperf3", *(("ib_write_bw", "ib_write_lat") if rdma else ())))
    source, mtu = str(candidate.ip), candidate.link.mtu

    def measure_tcp(direction: str) -> Throughput:
        command = tools.build_client_command(
            address, source=source, seconds=seconds, streams=streams, reverse=direction == "back"
        )
        with progress.stage(f"TCP, {direction}"):
            return tools.read_throughput(_run_tool(command, seconds + _EXTRA_LIMIT_S), address)

    with progress.stage("ping"):
        short = tools.read_ping(
            _run_tool(tools.build_ping_command(address, source=source, count=_PING_COUNT))
        )
        command = tools.build_ping_command(address, source=source, count=_FULL_PING_COUNT, mtu=mtu)
        full = tools.read_ping(_run_tool(command)) if mtu else None
    try:
        forward, backward = measure_tcp("there"), measure_tcp("back")
    except Problem as problem:
        if are_lost_at_mtu(short, full):  # this is why TCP carried nothing
            raise mtu_problem(host, candidate.link.name, mtu) from problem
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
        there=forward,
        back=backward,
        rdma=measure_rdma(rdma, address, progress) if rdma else None,
    )


def measure_rdma(adapter: Adapter, address: str, progress: Progress = SILENT) -> RdmaSpeed:
    with progress.stage("RDMA"):
        latency_us = tools.read_latency_us(_run_tool(tools.build_latency_command(adapter, address)), address)
        mbit = tools.read_mbit(_run_tool(tools.build_bandwidth_command(adapter, address)), address)
    return RdmaSpeed(adapter.device, mbit, latency_us)


def _run_tool(command: Command, limit_s: float = _EXTRA_LIMIT_S) -> str:
    lines: list[str] = []
    process.run(command, limit_s=limit_s, on_line=lines.append)
    return "\n".join(lines)


def serve_link_test(
    candidate: EndpointCandidate,
    rdma: Adapter | None,
    *,
    limit_s: float,
    on_ready: Callable[[], None],
    progress: Progress = SILENT,
) -> None:
    """Serve another host's measurement for `limit_s`; call `on_ready` once the servers listen.

    Raise a Problem if iperf3 ends early. No server runs afterwards.
    """
    commands = [tools.build_server_command(str(candidate.ip))]
    if rdma:
        commands += [tools.build_bandwidth_command(rdma, None), tools.build_latency_command(rdma, None)]
    require_programs(tuple(command.argv[0] for command in commands))
    servers: list[Process] = []
    notes: set[str] = set()

    def poll_servers() -> ProcessResult | None:
        servers[1:] = [_restart_if_ended(server, notes, progress) for server in servers[1:]]
        return servers[0].poll()

    try:
        servers += [Process(command, lambda _: None) for command in commands]
        finished = servers[0].wait(_LISTEN_LIMIT_S)
        if finished is None:
            on_ready()
            finished = process.wait_until(poll_servers, limit_s, every_s=_POLL_INTERVAL_S)
    finally:
        for server in servers:
            if server.poll() is None:
                server.stop(grace_s=_KILL_GRACE_S)
    if finished is not None:
        output = "; ".join(line for line in finished.lines if line.strip())[-300:]
        raise Problem(
            f"iperf3 does not serve at {candidate.ip}:{ports.IPERF3_PORT}",
            cause=f"it ended with {finished.status}: {output}",
            fix=f"see who has the port, and end it: sudo ss -ltnp 'sport = :{ports.IPERF3_PORT}'",
        )


def _restart_if_ended(server: Process, notes: set[str], progress: Progress) -> Process:
    """Restart the server if it has ended, because a server of perftest ends after one client."""
    finished = server.poll()
    if finished is None:
        return server
    note = f"{server.command.argv[0]} ended with {finished.status}: {' '.join(finished.lines[-2:])}"
    if finished.status and note not in notes:
        notes.add(note)
        progress.note(note)
    return Process(server.command, lambda _: None)


def find_endpoint(facts: Facts, link: str | None) -> EndpointCandidate:
    """Find this host's end: the link of this name or address, or the fastest one."""
    candidates, rejected = find_endpoint_candidates("this host", facts, NetworkOptions(link=link))
    matching = [
        candidate for candidate in candidates if link in {None, candidate.link.name, str(candidate.ip)}
    ]
    if not matching:
        raise Problem(
            "this host has no link that others could reach",
            cause="; ".join(f"{rejection.interface}: {rejection.why}" for rejection in rejected),
            fix="ip -brief link; medley link setup",
        )
    return max(matching, key=lambda candidate: candidate.rank)


def find_route(host: str, facts: Facts) -> tuple[str, EndpointCandidate]:
    """Return the other host's IPv4 address, and this host's end of the link, or raise a Problem."""
    try:
        address = str(socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError) as error:
        raise Problem(
            f"there is no host {host!r}",
            cause=f"it has no IPv4 address: {describe_error(error)}",
            fix="give its address on the link: medley link test 192.168.100.2",
        ) from error
    question = f"ip -json route get {address}"
    try:
        route = json.loads(process.ask_host([question])[question].text)[0]
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
    return address, find_endpoint(facts, source)


def find_adapter(candidate: EndpointCandidate, *, tcp_only: bool) -> Adapter | None:
    """Return the RDMA adapter of this end; None without one, and with `tcp_only`."""
    port = candidate.port
    return None if port is None or tcp_only else Adapter(port.device, port.port, candidate.gid_index)


def require_programs(names: tuple[str, ...]) -> None:
    """Raise a Problem if PATH lacks one of the programs."""
    missing = [name for name in names if process.find_program(name) is None]
    if missing:
        raise tools.missing_programs_problem(missing)
