"""The networks that hosts share: for each, one way to every host of the group, or why it will not do."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, ip_network
from itertools import combinations

from medley.fabric.speed import together_mbit, twins
from medley.fabric.ways import Group, Way
from medley.facts import Facts
from medley.facts.net import Route

_TEGRA_ETHERNET = "nvethernet"
"""The driver of Thor's four lanes in one QSFP28 cage."""


@dataclass(frozen=True)
class Shared:
    """A network, and by host (in the order of names) the way to it there."""

    network: IPv4Network
    ways: tuple[Way, ...]
    doubled: tuple[tuple[Way, Way], ...] = ()
    """Two ways of one host in this one network."""

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(way.host for way in self.ways)

    @property
    def mbit(self) -> int:
        """Of its slowest end."""
        return min(way.mbit for way in self.ways)

    @property
    def wired(self) -> bool:
        return all(way.wired for way in self.ways)

    @property
    def rdma(self) -> bool:
        layers = {way.port.link_layer if way.port else None for way in self.ways}
        return len(layers) == 1 and None not in layers

    @property
    def rank(self) -> tuple[bool, int, bool, int, int, int]:
        mtu = min(way.link.mtu for way in self.ways)
        lowest = int(self.network.network_address)
        return self.wired, self.mbit, self.rdma, mtu, -lowest, -self.network.prefixlen


def shared(found: Mapping[str, tuple[Way, ...]]) -> list[Shared]:
    """Every network that all these hosts are in, the best first."""
    hosts = sorted(found)
    each = {way.network for name in hosts for way in found[name]}
    met = {one.ways: one for network in sorted(each) if (one := _met(network, hosts, found))}
    return sorted(met.values(), key=lambda one: one.rank, reverse=True)


def _met(network: IPv4Network, hosts: list[str], found: Mapping[str, tuple[Way, ...]]) -> Shared | None:
    best, doubled = [], []
    for host in hosts:
        there = sorted(
            (way for way in found[host] if way.ip in network), key=lambda way: way.rank, reverse=True
        )
        if not there:
            return None
        best.append(there[0])
        doubled += [(there[0], way) for way in there[1:] if way.link.name != there[0].link.name]
    if not all(one.meets(other) for one, other in combinations(best, 2)):
        return None
    return Shared(network, tuple(best), tuple((one, two) for one, two in doubled if one.wired and two.wired))


def muddled(one: Shared, hosts: Mapping[str, Facts]) -> list[tuple[Way, Way]]:
    """Two links of a host in one subnet, where the kernel takes either and one of them is wrong.

    Both halves of a cage: it answers for either with the other's MAC address. Link-local: all cables have
    the one subnet 169.254.0.0/16, and nothing says which leads where.
    """
    local = one.network.is_link_local
    return [pair for pair in one.doubled if local or are_twins(*pair, hosts[pair[0].host])]


def are_twins(one: Way, other: Way, facts: Facts) -> bool:
    """By their interfaces, since the second half may lack its port for want of a GID."""
    of = twins(facts.rdma)
    names = {port.interface for port in facts.rdma if port.device in of}
    mates = {(port.interface, of[port.device].interface) for port in facts.rdma if port.device in of}
    return {one.link.name, other.link.name} <= names and (one.link.name, other.link.name) in mates


def of_twins(way: Way, group: Group) -> list[IPv4Network]:
    """Subnets of the other half of a way's cage, where that has its own."""
    facts = group.hosts[way.host]
    others = (other for other in group.ways[way.host] if other.network != way.network)
    return [other.network for other in others if are_twins(way, other, facts)]


def rails(best: Shared, others: Iterable[Shared], *, rdma: bool) -> list[Shared]:
    """The best one, and those that carry side by side with it: on every host a link of the same make."""
    return [best, *(one for one in others if one is not best and _beside(best, one, rdma=rdma))]


def of_one_cage(best: Shared, one: Shared) -> bool:
    return all(_one_cage(first, second) for first, second in zip(best.ways, one.ways, strict=True))


def _beside(best: Shared, one: Shared, *, rdma: bool) -> bool:
    pairs = list(zip(best.ways, one.ways, strict=True))
    if one.doubled or any(first.link.name == second.link.name for first, second in pairs):
        return False
    if not all(_alike(first, second) for first, second in pairs):
        return False
    return one.rdma if rdma else of_one_cage(best, one)


def _alike(first: Way, second: Way) -> bool:
    """As they report it, for one half of a cage may have fewer PCIe lanes than the other."""
    return (first.link.driver, first.link.mbit, first.link.mtu) == (
        second.link.driver,
        second.link.mbit,
        second.link.mtu,
    )


def _one_cage(first: Way, second: Way) -> bool:
    """Lanes that were made to be used together; any other link may be there for something else."""
    if first.link.driver == second.link.driver == _TEGRA_ETHERNET:
        return True
    one, two = first.port, second.port
    if one is None or two is None or one.system_guid is None:
        return False
    return (one.system_guid, one.port_name) == (two.system_guid, two.port_name)


def crossed(found: list[Shared]) -> bool:
    """NCCL pairs ports by their order on the bus, the first here with the first there."""
    orders = {
        tuple(sorted(range(len(found)), key=lambda n: _bus(found[n].ways[host])))
        for host in range(len(found[0].ways))
    }
    return len(orders) > 1


def _bus(way: Way) -> tuple[str, str]:
    return (way.port.pci or "", way.port.device) if way.port else ("", way.link.name)


def cables(
    found: Mapping[str, tuple[Way, ...]], facts: Mapping[str, Facts]
) -> dict[str, list[Shared]] | None:
    """For each host the RDMA networks it shares with single other hosts; None unless every pair has one."""
    cabled: dict[str, list[Shared]] = {host: [] for host in found}
    for one, other in combinations(sorted(found), 2):
        between = [
            each
            for each in shared({one: found[one], other: found[other]})
            if each.rdma and each.wired and not muddled(each, facts)
        ]
        if not between:
            return None
        for host in (one, other):
            cabled[host] += between
    return cabled


def cable_mbit(cabled: Mapping[str, list[Shared]]) -> int:
    """Of the slowest pair."""
    pairs: dict[tuple[str, ...], list[Shared]] = {}
    for each in {id(one): one for found in cabled.values() for one in found}.values():
        pairs.setdefault(each.hosts, []).append(each)
    return min(
        together_mbit((each.ways[end].link, each.ways[end].port, each.ways[end].mbit) for each in found) or 0
        for found in pairs.values()
        for end in (0, 1)
    )


def routed(found: Mapping[str, tuple[Way, ...]], facts: Mapping[str, Facts]) -> tuple[Way, ...] | None:
    """A way to each host by which it has a gateway to all the others that are no neighbours; or None."""
    hosts = sorted(found)
    chosen = tuple(
        max(leading, key=lambda way: way.rank)
        for host in hosts
        if (leading := [way for way in found[host] if any(_gateways(way, facts[host].net.routes))])
    )
    if len(chosen) < len(hosts):
        return None
    pairs = [(one, other) for one in chosen for other in chosen if one is not other]
    return chosen if all(_leads(one, other, facts[one.host]) for one, other in pairs) else None


def _gateways(way: Way, routes: Iterable[Route]) -> Iterator[Route]:
    yield from (route for route in routes if route.gateway and route.interface == way.link.name)


def _leads(one: Way, other: Way, facts: Facts) -> bool:
    if one.meets(other):
        return True
    return one.ip != other.ip and any(
        route.destination == "default" or other.ip in ip_network(route.destination, strict=False)
        for route in _gateways(one, facts.net.routes)
    )
