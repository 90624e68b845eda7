"""Write a fabric as text and JSON."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from medley.errors import Finding
from medley.host.facts import Facts
from medley.network.fabric.endpoints import EndpointCandidate
from medley.network.fabric.per_host import LoneHost
from medley.network.fabric.types import Endpoint, Fabric, RejectedLink, speed_text
from medley.network.fabric.variables import of_group, of_host

_PAIR = 2
_TRANSPORTS = {"rdma": "RDMA", "tcp": "TCP", "none": "none"}


def lines(fabric: Fabric) -> Iterator[tuple[str, str]]:
    """List the choice and its reasons, the findings, and the rejected links."""
    yield (
        "transport",
        _TRANSPORTS[fabric.transport]
        + (" over a ring of cables" if fabric.ring and len(fabric.ends) > _PAIR else ""),
    )
    if fabric.cabling.groups:
        yield "cabling", str(fabric.cabling)
    if fabric.networks:
        yield "networks" if len(fabric.networks) > 1 else "network", ", ".join(fabric.networks)
    yield from (("because", why) for why in fabric.why)
    yield from ((host, _end(end)) for host, end in fabric.ends.items())
    yield from _findings(fabric.findings)
    yield from _rejected(fabric.rejected)


def lines_of_one(alone: LoneHost) -> Iterator[tuple[str, str]]:
    """List the links of one host for a group, the best first."""
    yield "alone", "one host needs no network; a group uses the best network that all of its hosts share"
    for nth, way in enumerate(alone.ways):
        yield "then" if nth else "best", _way(way)
    if not alone.ways:
        yield "best", "none: no other host can reach this one"
    yield from _findings(alone.findings)
    yield from _rejected(alone.rejected, named=False)


def table(fabric: Fabric, hosts: Mapping[str, Facts]) -> dict[str, Any]:
    """Return the fabric with the variables of each host and of the group, for JSON."""
    ends = {
        host: {
            **asdict(end),
            "ports": [port.named for port in end.ports],
            "variables": [asdict(each) for each in of_host(fabric, host, hosts[host])],
        }
        for host, end in fabric.ends.items()
    }
    return {
        "transport": fabric.transport,
        "networks": list(fabric.networks),
        "ring": fabric.ring,
        "cabling": fabric.cabling.table,
        "why": list(fabric.why),
        "hosts": ends,
        "variables": [asdict(each) for each in of_group(fabric, hosts)],
        "findings": [asdict(each) for each in fabric.findings],
        "rejected": [asdict(each) for each in fabric.rejected],
    }


def table_of_one(alone: LoneHost) -> dict[str, Any]:
    return {
        "ways": [_way_table(way) for way in alone.ways],
        "findings": [asdict(each) for each in alone.findings],
        "rejected": [asdict(each) for each in alone.rejected],
    }


def _end(end: Endpoint) -> str:
    parts = [f"{end.interface} {end.address}", speed_text(end.mbit or 0), f"MTU {end.mtu}"]
    if len(end.lanes) > 1:
        parts.append(f"lanes {' '.join(end.lanes)}")
    if end.ports:
        ports = " ".join(port.device for port in end.ports)
        parts.append(f"port {ports}" if len(end.ports) == 1 else f"ports {ports}")
    if end.gid_index is not None:
        parts.append(f"GID {end.gid_index}")
    return ", ".join(parts)


def _way(way: EndpointCandidate) -> str:
    gid = f" (GID {way.gid_index})" if way.gid_index is not None else ""
    rdma = f"RDMA by {way.port.device}{gid}" if way.port else f"no RDMA: {way.no_rdma}"
    kind = [way.link.kind] if way.link.kind != "ethernet" else []
    return ", ".join([f"{way.link.name} {way.at}", *kind, speed_text(way.mbit), f"MTU {way.link.mtu}", rdma])


def _way_table(way: EndpointCandidate) -> dict[str, Any]:
    return {
        "interface": way.link.name,
        "kind": way.link.kind,
        "address": str(way.ip),
        "network": str(way.network),
        "mbit": way.mbit or None,
        "mtu": way.link.mtu,
        "port": way.port.named if way.port else None,
        "gid_index": way.gid_index,
        "no_rdma": way.no_rdma or None,
    }


def _findings(findings: Iterable[Finding]) -> Iterator[tuple[str, str]]:
    for finding in findings:
        yield "finding", finding.what
        yield "", f"cause: {finding.cause}"
        yield "", f"fix:   {finding.fix}"


def _rejected(rejected: Iterable[RejectedLink], *, named: bool = True) -> Iterator[tuple[str, str]]:
    """Put links of one host with the same reason on one line, because a Jetson has eight unused ones."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for each in rejected:
        grouped.setdefault((each.host, each.why), []).append(each.interface)
    for (host, why), names in grouped.items():
        yield "not taken", f"{host + ' ' if named else ''}{' '.join(names)}: {why}"
