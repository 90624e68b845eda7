"""Find which host is at the other end of each cable, by the subnets that interfaces share."""

from collections.abc import Iterator
from itertools import combinations

from medley.host.facts import Facts
from medley.host.facts.network import Interface
from medley.network.fabric import cabling
from medley.network.fabric.cabling import Cable, CabledGroup, Cabling
from medley.network.fabric.endpoints import EndpointCandidate, Group
from medley.network.fabric.subnets import TEGRA_ETHERNET, Shared, shared
from medley.network.fabric.types import FAST_MBIT

_PORTS = {"ethernet", "infiniband"}
"""A bond, VLAN or bridge leads to a switch, and Wi-Fi to no cable."""
_SWITCHED = 3
"""Hosts in one network that only a switch can join."""


def cabled(group: Group) -> Cabling:
    """Two hosts behind one switch, without a third, look like a pair and are served like one."""
    hosts = tuple(sorted(group.hosts))
    return cabling.cabling(hosts, tuple(_cables(group)), tuple(_stars(group)))


def _cables(group: Group) -> Iterator[Cable]:
    for one, other in combinations(sorted(group.ways), 2):
        by_cage: dict[tuple[object, ...], list[Shared]] = {}
        for network in shared({one: group.ways[one], other: group.ways[other]}):
            alone = len(_members(network, group)) == len(network.ways)
            if alone and _for_data(network, group, odd=len(group.hosts) > len(network.ways)):
                by_cage.setdefault(tuple(_cage(way, group) for way in network.ways), []).append(network)
        for found in by_cage.values():
            ends = (_interfaces(found, group, 0), _interfaces(found, group, 1))
            yield Cable((one, other), ends, _networks(found))


def _stars(group: Group) -> Iterator[CabledGroup]:
    found: dict[tuple[str, ...], list[Shared]] = {}
    for network in sorted({way.network for ways in group.ways.values() for way in ways}):
        members = {
            host: tuple(way for way in ways if way.network == network) for host, ways in group.ways.items()
        }
        there = {host: ways for host, ways in sorted(members.items()) if ways}
        met = next((one for one in shared(there) if one.network == network), None)
        if met and len(there) >= _SWITCHED and _for_data(met, group):
            found.setdefault(tuple(there), []).append(met)
    for hosts, networks in found.items():
        yield CabledGroup("star", hosts, networks=_networks(networks))


def _for_data(network: Shared, group: Group, *, odd: bool = False) -> bool:
    """Whether it is there to join these hosts, and is not the LAN: a fast one, or not the way to the world.

    `odd`: other hosts of the group are not in it.
    """
    if any(way.link.kind not in _PORTS or _is_default(way, group) for way in network.ways):
        return False
    beside_lan = any(_is_default(way, group) for ways in group.ways.values() for way in ways)
    return odd or beside_lan or network.rdma or network.mbit >= FAST_MBIT


def _is_default(way: EndpointCandidate, group: Group) -> bool:
    """Whether it is the way to the world, and so the LAN."""
    routes = group.hosts[way.host].net.routes
    return any((each.destination, each.interface) == ("default", way.link.name) for each in routes)


def _members(network: Shared, group: Group) -> set[str]:
    return {host for host, ways in group.ways.items() if any(way.ip in network.network for way in ways)}


def cage_of(link: Interface, facts: Facts) -> object:
    """Equal for the halves of a Spark's cage, and for the lanes of a Thor's."""
    port = next((port for port in facts.rdma if port.interface == link.name), None)
    if port and port.port_name and port.system_guid:
        return port.system_guid, port.port_name
    return TEGRA_ETHERNET if link.driver == TEGRA_ETHERNET else link.name


def _cage(way: EndpointCandidate, group: Group) -> object:
    return cage_of(way.link, group.hosts[way.host])


def _interfaces(found: list[Shared], group: Group, end: int) -> tuple[str, ...]:
    """At one end of a cable; with the other half of its cage where both are in one subnet."""
    ways = [one.ways[end] for one in found]
    cages = {_cage(way, group) for way in ways}
    beside = [two for one in found for _, two in one.doubled if two.host == ways[0].host]
    every = [*ways, *(way for way in beside if _cage(way, group) in cages)]
    in_order = sorted(every, key=lambda way: (way.link.pci or "", way.link.name))
    return tuple(dict.fromkeys(way.link.name for way in in_order))


def _networks(found: list[Shared]) -> tuple[str, ...]:
    return tuple(str(network) for network in sorted(one.network for one in found))
