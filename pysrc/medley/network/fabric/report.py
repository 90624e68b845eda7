"""Write a fabric as text and JSON."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from medley.errors import Finding
from medley.host.facts import Facts
from medley.network.fabric.choice import Fabric, RejectedLink
from medley.network.fabric.endpoints import EndpointCandidate
from medley.network.fabric.per_host import HostLinks
from medley.network.fabric.speed import format_speed
from medley.network.fabric.subgroups import Subgroup
from medley.network.fabric.variables import list_group_variables, list_host_variables

_PAIR_HOSTS = 2
_TRANSPORTS = {"rdma": "RDMA", "tcp": "TCP", "none": "none"}


def describe_fabric(fabric: Fabric, subgroups: Iterable[Subgroup] = ()) -> Iterator[tuple[str, str]]:
    """Yield a label and text for the choice, its reasons, faster subgroups, findings, and rejected links."""
    cables = " over a ring of cables" if fabric.is_ring and len(fabric.endpoints) > _PAIR_HOSTS else ""
    yield "transport", f"{_TRANSPORTS[fabric.transport]}{cables}"
    if fabric.cabling.groups:
        yield "cabling", str(fabric.cabling)
    if fabric.networks:
        yield "networks" if len(fabric.networks) > 1 else "network", ", ".join(fabric.networks)
    yield from (("because", why) for why in fabric.why)
    yield from (("faster", str(subgroup)) for subgroup in subgroups)
    yield from _describe_findings(fabric.findings)
    yield from _describe_rejected(fabric.rejected)


def describe_host_links(host_links: HostLinks) -> Iterator[tuple[str, str]]:
    """Yield a label and a text for what one host would bring to a group, the best first."""
    yield "alone", "one host needs no network; a group uses the best network that all of its hosts share"
    if not host_links.candidates:
        yield "best", "none: no other host can reach this one"
    yield from _describe_findings(host_links.findings)
    yield from _describe_rejected(host_links.rejected, with_host=False)


def build_fabric_table(fabric: Fabric, hosts: Mapping[str, Facts]) -> dict[str, Any]:
    """Return the fabric with the variables of each host and of the group, for JSON."""
    endpoints = {
        host: {
            **endpoint.to_table(),
            "ports": [port.nccl_name for port in endpoint.ports],
            "variables": [record.to_table() for record in list_host_variables(fabric, host, hosts[host])],
        }
        for host, endpoint in fabric.endpoints.items()
    }
    return {
        "transport": fabric.transport,
        "networks": list(fabric.networks),
        "ring": fabric.is_ring,
        "cabling": fabric.cabling.table,
        "why": list(fabric.why),
        "hosts": endpoints,
        "variables": [record.to_table() for record in list_group_variables(fabric, hosts)],
        "findings": [record.to_table() for record in fabric.findings],
        "rejected": [record.to_table() for record in fabric.rejected],
    }


def build_host_links_table(host_links: HostLinks) -> dict[str, Any]:
    """Return the links of one host, for JSON."""
    return {
        "ways": [_build_candidate_table(candidate) for candidate in host_links.candidates],
        "findings": [record.to_table() for record in host_links.findings],
        "rejected": [record.to_table() for record in host_links.rejected],
    }


def list_endpoint_rows(fabric: Fabric) -> Iterator[tuple[str, ...]]:
    """Yield a row for each host: name, interface, address, speed, MTU, and RDMA ports or lanes."""
    for host, endpoint in fabric.endpoints.items():
        ports = [port.device for port in endpoint.ports] or list(
            endpoint.lanes if len(endpoint.lanes) > 1 else ()
        )
        gid = [f"(GID {endpoint.gid_index})"] if endpoint.gid_index is not None else []
        speed = format_speed(endpoint.mbit or 0)
        yield (
            host,
            endpoint.interface,
            endpoint.address,
            speed,
            str(endpoint.mtu),
            " ".join([*ports, *gid]) or "-",
        )


def list_candidate_rows(host_links: HostLinks) -> Iterator[tuple[str, ...]]:
    """Yield a row for each usable link, the best first: name, kind, address, speed, MTU and RDMA port."""
    for candidate in host_links.candidates:
        gid = f" (GID {candidate.gid_index})" if candidate.gid_index is not None else ""
        rdma = f"{candidate.port.device}{gid}" if candidate.port else f"none: {candidate.no_rdma_reason}"
        yield (
            candidate.link.name,
            candidate.link.kind,
            str(candidate.cidr),
            format_speed(candidate.mbit),
            str(candidate.link.mtu),
            rdma,
        )


def _build_candidate_table(candidate: EndpointCandidate) -> dict[str, Any]:
    return {
        "interface": candidate.link.name,
        "kind": candidate.link.kind,
        "address": str(candidate.ip),
        "network": str(candidate.network),
        "mbit": candidate.mbit or None,
        "mtu": candidate.link.mtu,
        "port": candidate.port.nccl_name if candidate.port else None,
        "gid_index": candidate.gid_index,
        "no_rdma": candidate.no_rdma_reason or None,
    }


def _describe_findings(findings: Iterable[Finding]) -> Iterator[tuple[str, str]]:
    for finding in findings:
        yield "finding", finding.what
        yield "", f"cause: {finding.cause}"
        yield "", f"fix:   {finding.fix}"


def _describe_rejected(
    rejected: Iterable[RejectedLink], *, with_host: bool = True
) -> Iterator[tuple[str, str]]:
    """Yield links of one host with the same reason on one line, because a Jetson has eight unused ones."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for link in rejected:
        grouped.setdefault((link.host, link.why), []).append(link.interface)
    for (host, why), names in grouped.items():
        yield "not taken", f"{host + ' ' if with_host else ''}{' '.join(names)}: {why}"
