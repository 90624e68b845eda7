"""Find which host is at the other end of each cable, by the subnets that interfaces share."""

from collections.abc import Iterator

from medley.host.facts import Facts
from medley.host.facts.network import Interface
from medley.network.fabric import cabling
from medley.network.fabric.cabling import Cable, CabledGroup, Cabling
from medley.network.fabric.endpoints import CandidateGroup, Candidates, EndpointCandidate
from medley.network.fabric.speed import FAST_MBIT
from medley.network.fabric.subnets import TEGRA_ETHERNET, SharedNetwork, find_shared_networks

_CABLE_KINDS = {"ethernet", "infiniband"}
"""The kinds of links that may be one cable: a bond, VLAN or bridge leads to a switch, and Wi-Fi has none."""
_MIN_SWITCHED_HOSTS = 3
"""The number of hosts in one network from which there must be a switch."""


def find_cabling(group: CandidateGroup) -> Cabling:
    """Find the cabling of a group; two hosts on a switch look like a pair and work like one."""
    networks = _list_shared_networks(group)
    cables = sorted(_list_cables(networks, group), key=lambda cable: (cable.hosts, cable.interfaces))
    return cabling.build_cabling(
        tuple(sorted(group.hosts)), tuple(cables), tuple(_list_stars(networks, group))
    )


def _list_shared_networks(group: CandidateGroup) -> list[SharedNetwork]:
    """Return the networks that two or more hosts of the group share."""
    by_candidates: dict[Candidates, SharedNetwork] = {}
    for subnet in sorted(
        {candidate.network for candidates in group.candidates.values() for candidate in candidates}
    ):
        members: dict[str, Candidates] = {}
        for host, candidates in group.candidates.items():
            if in_subnet := tuple(candidate for candidate in candidates if candidate.ip in subnet):
                members[host] = in_subnet
        networks = find_shared_networks(members) if len(members) > 1 else []
        by_candidates.update(
            {network.candidates: network for network in networks if network.network == subnet}
        )
    return list(by_candidates.values())


def _list_cables(networks: list[SharedNetwork], group: CandidateGroup) -> Iterator[Cable]:
    """Yield a cable for each pair of QSFP ports whose networks only two hosts share."""
    by_port: dict[tuple[object, ...], list[SharedNetwork]] = {}
    for network in networks:
        is_partial = len(group.hosts) > len(network.candidates)
        if len(network.candidates) < _MIN_SWITCHED_HOSTS and _is_for_data(
            network, group, is_partial=is_partial
        ):
            by_port.setdefault(
                (
                    network.hosts,
                    *(_find_candidate_port_key(candidate, group) for candidate in network.candidates),
                ),
                [],
            ).append(network)
    for port_networks in by_port.values():
        first, second = port_networks[0].hosts
        interfaces = (_list_interfaces(port_networks, group, 0), _list_interfaces(port_networks, group, 1))
        yield Cable((first, second), interfaces, _format_networks(port_networks))


def _list_stars(networks: list[SharedNetwork], group: CandidateGroup) -> Iterator[CabledGroup]:
    by_hosts: dict[tuple[str, ...], list[SharedNetwork]] = {}
    for network in networks:
        if len(network.candidates) >= _MIN_SWITCHED_HOSTS and _is_for_data(network, group):
            by_hosts.setdefault(network.hosts, []).append(network)
    for hosts, star_networks in by_hosts.items():
        yield CabledGroup("star", hosts, networks=_format_networks(star_networks))


def _is_for_data(network: SharedNetwork, group: CandidateGroup, *, is_partial: bool = False) -> bool:
    """Return whether a network is for data and not the LAN; `is_partial`: other hosts are not in it."""
    if any(
        candidate.link.kind not in _CABLE_KINDS or _has_default_route(candidate, group)
        for candidate in network.candidates
    ):
        return False
    has_lan = any(
        _has_default_route(candidate, group)
        for candidates in group.candidates.values()
        for candidate in candidates
    )
    return is_partial or has_lan or network.has_rdma or network.mbit >= FAST_MBIT


def _has_default_route(candidate: EndpointCandidate, group: CandidateGroup) -> bool:
    return candidate.link.name in group.hosts[candidate.host].net.default_links


def find_port_key(link: Interface, facts: Facts) -> object:
    """Return a key that is equal for both interfaces of a Spark's QSFP port, and for a Thor's lanes."""
    port = next((port for port in facts.rdma if port.interface == link.name), None)
    if port and port.port_name and port.system_guid:
        return port.system_guid, port.port_name
    return TEGRA_ETHERNET if link.driver == TEGRA_ETHERNET else link.name


def _find_candidate_port_key(candidate: EndpointCandidate, group: CandidateGroup) -> object:
    return find_port_key(candidate.link, group.hosts[candidate.host])


def _list_interfaces(networks: list[SharedNetwork], group: CandidateGroup, end: int) -> tuple[str, ...]:
    """Return the interfaces at one end (0 or 1) of the cable of these networks, in PCI order."""
    candidates = [network.candidates[end] for network in networks]
    port_keys = {_find_candidate_port_key(candidate, group) for candidate in candidates}
    for network in networks:
        for _, duplicate in network.duplicates:
            if (
                duplicate.host == candidates[0].host
                and _find_candidate_port_key(duplicate, group) in port_keys
            ):
                candidates.append(duplicate)
    in_order = sorted(candidates, key=lambda candidate: (candidate.link.pci or "", candidate.link.name))
    return tuple(dict.fromkeys(candidate.link.name for candidate in in_order))


def _format_networks(networks: list[SharedNetwork]) -> tuple[str, ...]:
    return tuple(str(subnet) for subnet in sorted(network.network for network in networks))
