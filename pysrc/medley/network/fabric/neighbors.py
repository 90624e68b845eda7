"""Find which host is at the other end of each cable, by the subnets that interfaces share."""

from collections.abc import Iterator

from medley.host.facts import Facts
from medley.host.facts.network import Interface
from medley.network.fabric import cabling
from medley.network.fabric.cabling import Cable, CabledGroup, Cabling
from medley.network.fabric.endpoints import Candidates, EndpointCandidate, Group
from medley.network.fabric.subnets import TEGRA_ETHERNET, Shared, shared
from medley.network.fabric.types import FAST_MBIT

_PORTS = {"ethernet", "infiniband"}
"""A bond, VLAN or bridge leads to a switch, and Wi-Fi has no cable."""
_SWITCHED = 3
"""This many hosts in one network need a switch."""


def cabled(group: Group) -> Cabling:
    """Find the cabling of a group; two hosts on a switch look like a pair and work like one."""
    networks = _networks(group)
    cables = sorted(_cables(networks, group), key=lambda cable: (cable.hosts, cable.interfaces))
    return cabling.cabling(tuple(sorted(group.hosts)), tuple(cables), tuple(_stars(networks, group)))


def _networks(group: Group) -> list[Shared]:
    found: dict[Candidates, Shared] = {}
    for network in sorted({way.network for ways in group.ways.values() for way in ways}):
        there = {host: tuple(way for way in group.ways[host] if way.ip in network) for host in group.ways}
        members = {host: ways for host, ways in there.items() if ways}
        met = shared(members) if len(members) > 1 else []
        found.update({one.ways: one for one in met if one.network == network})
    return list(found.values())


def _cables(networks: list[Shared], group: Group) -> Iterator[Cable]:
    by_cage: dict[tuple[object, ...], list[Shared]] = {}
    for one in networks:
        odd = len(group.hosts) > len(one.ways)
        if len(one.ways) < _SWITCHED and _for_data(one, group, odd=odd):
            by_cage.setdefault((one.hosts, *(_cage(way, group) for way in one.ways)), []).append(one)
    for found in by_cage.values():
        first, second = found[0].hosts
        yield Cable(
            (first, second), (_interfaces(found, group, 0), _interfaces(found, group, 1)), _cidr(found)
        )


def _stars(networks: list[Shared], group: Group) -> Iterator[CabledGroup]:
    found: dict[tuple[str, ...], list[Shared]] = {}
    for one in networks:
        if len(one.ways) >= _SWITCHED and _for_data(one, group):
            found.setdefault(one.hosts, []).append(one)
    for hosts, switched in found.items():
        yield CabledGroup("star", hosts, networks=_cidr(switched))


def _for_data(network: Shared, group: Group, *, odd: bool = False) -> bool:
    """Whether a network is for data and not the LAN; `odd`: other hosts of the group are not in it."""
    if any(way.link.kind not in _PORTS or _is_default(way, group) for way in network.ways):
        return False
    beside_lan = any(_is_default(way, group) for ways in group.ways.values() for way in ways)
    return odd or beside_lan or network.rdma or network.mbit >= FAST_MBIT


def _is_default(way: EndpointCandidate, group: Group) -> bool:
    return way.link.name in group.hosts[way.host].net.default_links


def cage_of(link: Interface, facts: Facts) -> object:
    """Return a key that is equal for both interfaces of a Spark's QSFP port, and for a Thor's lanes."""
    port = next((port for port in facts.rdma if port.interface == link.name), None)
    if port and port.port_name and port.system_guid:
        return port.system_guid, port.port_name
    return TEGRA_ETHERNET if link.driver == TEGRA_ETHERNET else link.name


def _cage(way: EndpointCandidate, group: Group) -> object:
    return cage_of(way.link, group.hosts[way.host])


def _interfaces(found: list[Shared], group: Group, end: int) -> tuple[str, ...]:
    ways = [one.ways[end] for one in found]
    cages = {_cage(way, group) for way in ways}
    beside = [two for one in found for _, two in one.doubled if two.host == ways[0].host]
    every = [*ways, *(way for way in beside if _cage(way, group) in cages)]
    in_order = sorted(every, key=lambda way: (way.link.pci or "", way.link.name))
    return tuple(dict.fromkeys(way.link.name for way in in_order))


def _cidr(found: list[Shared]) -> tuple[str, ...]:
    return tuple(str(network) for network in sorted(one.network for one in found))
