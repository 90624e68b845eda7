"""Write a fabric as text and JSON."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from medley.errors import Finding
from medley.host.facts import Facts
from medley.network.fabric.endpoints import EndpointCandidate
from medley.network.fabric.per_host import LoneHost
from medley.network.fabric.subgroups import Subgroup
from medley.network.fabric.types import Fabric, RejectedLink, speed_text
from medley.network.fabric.variables import of_group, of_host

_PAIR = 2
_TRANSPORTS = {"rdma": "RDMA", "tcp": "TCP", "none": "none"}


def lines(fabric: Fabric, subgroups: Iterable[Subgroup] = ()) -> Iterator[tuple[str, str]]:
    """List the choice and its reasons, faster subgroups, the findings, and the rejected links."""
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
    yield from (("faster", str(each)) for each in subgroups)
    yield from _findings(fabric.findings)
    yield from _rejected(fabric.rejected)


def lines_of_one(alone: LoneHost) -> Iterator[tuple[str, str]]:
    """List what one host would bring to a group, the best first."""
    yield "alone", "one host needs no network; a group uses the best network that all of its hosts share"
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


def rows(fabric: Fabric) -> Iterator[tuple[str, ...]]:
    """Of each host: its name, interface, address, speed, MTU, and RDMA ports or the lanes of one address."""
    for host, end in fabric.ends.items():
        ports = [port.device for port in end.ports] or list(end.lanes if len(end.lanes) > 1 else ())
        gid = [f"(GID {end.gid_index})"] if end.gid_index is not None else []
        speed = speed_text(end.mbit or 0)
        yield host, end.interface, end.address, speed, str(end.mtu), " ".join([*ports, *gid]) or "-"


def rows_of_one(alone: LoneHost) -> Iterator[tuple[str, ...]]:
    """Of each usable link, the best first: its name, kind, address, speed, MTU and RDMA port."""
    for way in alone.ways:
        gid = f" (GID {way.gid_index})" if way.gid_index is not None else ""
        rdma = f"{way.port.device}{gid}" if way.port else f"none: {way.no_rdma}"
        yield way.link.name, way.link.kind, str(way.at), speed_text(way.mbit), str(way.link.mtu), rdma


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
