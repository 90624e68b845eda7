"""Find shared subnets, rails, and cables between pairs of hosts."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, ip_network
from itertools import combinations, permutations

from medley.host.facts import Facts
from medley.host.facts.network import Route
from medley.network.fabric.endpoints import Candidates, EndpointCandidate, Group
from medley.network.fabric.types import pcie_mbit, twins

TEGRA_ETHERNET = "nvethernet"
"""The driver of Thor's four lanes in one QSFP28 port."""


@dataclass(frozen=True)
class Shared:
    """A network, and each host's way to it, in the order of names."""

    network: IPv4Network
    ways: Candidates
    doubled: tuple[tuple[EndpointCandidate, EndpointCandidate], ...] = ()

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(way.host for way in self.ways)

    @property
    def mbit(self) -> int:
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


def shared(found: Mapping[str, Candidates]) -> list[Shared]:
    hosts = sorted(found)
    each = {way.network for name in hosts for way in found[name]}
    met = {one.ways: one for network in sorted(each) if (one := _met(network, hosts, found))}
    return sorted(met.values(), key=lambda one: one.rank, reverse=True)


def _met(network: IPv4Network, hosts: list[str], found: Mapping[str, Candidates]) -> Shared | None:
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


def muddled(one: Shared, hosts: Mapping[str, Facts]) -> list[tuple[EndpointCandidate, EndpointCandidate]]:
    """Return pairs of links of a host in one subnet, where the kernel may use the wrong one.

    Both interfaces of a QSFP port: the kernel answers for each with the other's MAC address. Link-local: all
    cables share 169.254.0.0/16, which does not identify a cable.
    """
    local = one.network.is_link_local
    return [pair for pair in one.doubled if local or are_twins(*pair, hosts[pair[0].host])]


def are_twins(one: EndpointCandidate, other: EndpointCandidate, facts: Facts) -> bool:
    """Compare interfaces, because the second one may lack its port without a GID."""
    of = twins(facts.rdma)
    mates = {(port.interface, of[port.device].interface) for port in facts.rdma if port.device in of}
    return (one.link.name, other.link.name) in mates


def of_twins(way: EndpointCandidate, group: Group) -> list[IPv4Network]:
    """Return other subnets of the second interface of a way's port."""
    facts = group.hosts[way.host]
    others = (other for other in group.ways[way.host] if other.network != way.network)
    return [other.network for other in others if are_twins(way, other, facts)]


def rails(best: Shared, others: Iterable[Shared], *, rdma: bool) -> list[Shared]:
    """Return the best network, and those used in parallel with it: the same kind of link on every host."""
    return [best, *(one for one in others if one is not best and _beside(best, one, rdma=rdma))]


def of_one_cage(best: Shared, one: Shared) -> bool:
    return all(_one_cage(first, second) for first, second in zip(best.ways, one.ways, strict=True))


def _beside(best: Shared, one: Shared, *, rdma: bool) -> bool:
    pairs = list(zip(best.ways, one.ways, strict=True))
    if one.doubled or any(first.link.name == second.link.name for first, second in pairs):
        return False
    # The reported speeds, because one function of a port may have fewer PCIe lanes.
    makes = (((way.link.driver, way.link.mbit, way.link.mtu) for way in pair) for pair in pairs)
    if not all(first == second for first, second in makes):
        return False
    return one.rdma if rdma else of_one_cage(best, one)


def _one_cage(first: EndpointCandidate, second: EndpointCandidate) -> bool:
    """Whether both are lanes of one QSFP port; other links may have another purpose."""
    if first.link.driver == second.link.driver == TEGRA_ETHERNET:
        return True
    one, two = first.port, second.port
    if one is None or two is None or one.system_guid is None:
        return False
    return (one.system_guid, one.port_name) == (two.system_guid, two.port_name)


def crossed(found: list[Shared]) -> bool:
    """Whether the hosts order their ports differently on the bus, by which NCCL pairs them."""
    ports = [[way.port for way in ways] for ways in zip(*(one.ways for one in found), strict=True)]
    places = [[(port.pci or "", port.device) if port else ("", "") for port in each] for each in ports]
    orders = {tuple(sorted(range(len(each)), key=each.__getitem__)) for each in places}
    return len(orders) > 1


def cable_mbit(pairs: Iterable[list[Shared]]) -> int:
    return min(together_mbit([each.ways[end] for each in found]) or 0 for found in pairs for end in (0, 1))


def together_mbit(carrying: Collection[EndpointCandidate]) -> int | None:
    """Return the speed of parallel links: a multiple of the slowest, within cables and PCIe slots."""
    cables: dict[object, int] = {}
    slots: dict[object, int] = {}
    for way in carrying:
        link, port = way.link, way.port
        reported = link.mbit or (port and port.mbit) or way.mbit
        cage = (port.system_guid, port.port_name) if port and port.port_name else link.name
        cables[cage] = max(cables.get(cage, 0), reported)
        # Both QSFP ports of a Spark share PCIe lanes, so a second cable adds little.
        slot = port.pci.rpartition(".")[0] if port and port.pci else link.name
        slots[slot] = max(slots.get(slot, 0), (port and pcie_mbit(port)) or reported)
    slowest = min((way.mbit for way in carrying), default=0)
    return min(slowest * len(carrying), sum(cables.values()), sum(slots.values())) or None


def routed(found: Mapping[str, Candidates], facts: Mapping[str, Facts]) -> Candidates | None:
    """Return a way of each host with a gateway to all others outside its network; or None."""

    def gateways(way: EndpointCandidate) -> list[Route]:
        routes = facts[way.host].net.routes
        return [route for route in routes if route.gateway and route.interface == way.link.name]

    def leads(one: EndpointCandidate, other: EndpointCandidate) -> bool:
        return one.meets(other) or any(
            route.destination == "default" or other.ip in ip_network(route.destination, strict=False)
            for route in gateways(one)
            if one.ip != other.ip
        )

    leading = [[way for way in found[host] if gateways(way)] for host in sorted(found)]
    if not all(leading):
        return None
    chosen = tuple(max(each, key=lambda way: way.rank) for each in leading)
    return chosen if all(leads(*pair) for pair in permutations(chosen, 2)) else None
