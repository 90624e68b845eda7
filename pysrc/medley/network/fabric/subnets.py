"""Find shared subnets, rails, and cables between pairs of hosts."""

from collections.abc import Collection, Iterable, Mapping
from ipaddress import IPv4Network, ip_network
from itertools import combinations, permutations

from medley.host.facts import Facts
from medley.host.facts.network import Route
from medley.network.fabric.endpoints import CandidateGroup, Candidates, EndpointCandidate
from medley.network.fabric.speed import compute_pcie_mbit, find_second_functions
from medley.values import Value

TEGRA_ETHERNET = "nvethernet"
"""The driver of Thor's four lanes in one QSFP28 port."""


class SharedNetwork(Value):
    """A network, and each host's candidate in it, in the order of host names."""

    network: IPv4Network
    candidates: Candidates
    duplicates: tuple[tuple[EndpointCandidate, EndpointCandidate], ...] = ()
    """Pairs of cabled links of one host in this network; the first is used."""

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(way.host for way in self.candidates)

    @property
    def mbit(self) -> int:
        """The speed of the slowest candidate; 0 where one is unknown."""
        return min(way.mbit for way in self.candidates)

    @property
    def is_wired(self) -> bool:
        return all(way.is_wired for way in self.candidates)

    @property
    def has_rdma(self) -> bool:
        layers = {way.port.link_layer if way.port else None for way in self.candidates}
        return len(layers) == 1 and None not in layers

    @property
    def rank(self) -> tuple[bool, int, bool, int, int, int]:
        """The sort key; a higher rank is better."""
        mtu = min(way.link.mtu for way in self.candidates)
        lowest = int(self.network.network_address)
        return self.is_wired, self.mbit, self.has_rdma, mtu, -lowest, -self.network.prefixlen


def find_shared_networks(candidates: Mapping[str, Candidates]) -> list[SharedNetwork]:
    """Return the networks that all of these hosts share, the best first."""
    subnets = {candidate.network for on_host in candidates.values() for candidate in on_host}
    by_candidates: dict[Candidates, SharedNetwork] = {}
    for subnet in sorted(subnets):
        if network := _match_subnet(subnet, candidates):
            by_candidates[network.candidates] = network
    return sorted(by_candidates.values(), key=lambda network: network.rank, reverse=True)


def _match_subnet(subnet: IPv4Network, candidates: Mapping[str, Candidates]) -> SharedNetwork | None:
    """Return the network of the hosts' best candidates in a subnet; None unless all can reach each other."""
    chosen: list[EndpointCandidate] = []
    duplicates: list[tuple[EndpointCandidate, EndpointCandidate]] = []
    for host in sorted(candidates):
        in_subnet = [candidate for candidate in candidates[host] if candidate.ip in subnet]
        if not in_subnet:
            return None
        best, *others = sorted(in_subnet, key=lambda candidate: candidate.rank, reverse=True)
        chosen.append(best)
        duplicates += [
            (best, other)
            for other in others
            if other.link.name != best.link.name and best.is_wired and other.is_wired
        ]
    if not all(first.can_reach(second) for first, second in combinations(chosen, 2)):
        return None
    return SharedNetwork(subnet, tuple(chosen), tuple(duplicates))


def find_ambiguous_links(
    network: SharedNetwork, hosts: Mapping[str, Facts]
) -> list[tuple[EndpointCandidate, EndpointCandidate]]:
    """Return pairs of links of a host in one subnet, where the kernel may use the wrong one.

    Both interfaces of a QSFP port: the kernel answers for each with the other's MAC address. Link-local: all
    cables share 169.254.0.0/16, which does not identify a cable.
    """
    is_link_local = network.network.is_link_local
    return [
        pair for pair in network.duplicates if is_link_local or are_port_functions(*pair, hosts[pair[0].host])
    ]


def are_port_functions(
    link_candidate: EndpointCandidate, other_candidate: EndpointCandidate, facts: Facts
) -> bool:
    """Return whether two links are both functions of one QSFP port.

    Interfaces are compared, because a candidate without a GID has no port.
    """
    second_functions = find_second_functions(facts.rdma)
    pairs = {
        (port.interface, second_functions[port.device].interface)
        for port in facts.rdma
        if port.device in second_functions
    }
    return (link_candidate.link.name, other_candidate.link.name) in pairs


def list_second_function_subnets(candidate: EndpointCandidate, group: CandidateGroup) -> list[IPv4Network]:
    """Return the other subnets of the second interface of a candidate's port."""
    facts = group.hosts[candidate.host]
    others = (other for other in group.candidates[candidate.host] if other.network != candidate.network)
    return [other.network for other in others if are_port_functions(candidate, other, facts)]


def select_rails(best: SharedNetwork, others: Iterable[SharedNetwork], *, rdma: bool) -> list[SharedNetwork]:
    """Return the best network, and those used in parallel with it: the same kind of link on every host."""
    return [
        best,
        *(network for network in others if network is not best and _is_parallel(best, network, rdma=rdma)),
    ]


def is_same_port(best: SharedNetwork, network: SharedNetwork) -> bool:
    """Return whether both networks use lanes of the same QSFP port on every host."""
    return all(
        _are_lanes_of_port(first, second)
        for first, second in zip(best.candidates, network.candidates, strict=True)
    )


def _is_parallel(best: SharedNetwork, network: SharedNetwork, *, rdma: bool) -> bool:
    """Return whether `network` has on every host the same kind of link as `best`, but another link."""
    pairs = list(zip(best.candidates, network.candidates, strict=True))
    if network.duplicates or any(first.link.name == second.link.name for first, second in pairs):
        return False
    # The reported speeds, because one function of a port may have fewer PCIe lanes.
    link_types = (
        ((candidate.link.driver, candidate.link.mbit, candidate.link.mtu) for candidate in pair)
        for pair in pairs
    )
    if not all(first == second for first, second in link_types):
        return False
    return network.has_rdma if rdma else is_same_port(best, network)


def _are_lanes_of_port(first: EndpointCandidate, second: EndpointCandidate) -> bool:
    """Return whether both are lanes of one QSFP port; other links may have another purpose."""
    if first.link.driver == second.link.driver == TEGRA_ETHERNET:
        return True
    first_port, second_port = first.port, second.port
    if first_port is None or second_port is None or first_port.system_guid is None:
        return False
    return (first_port.system_guid, first_port.port_name) == (second_port.system_guid, second_port.port_name)


def is_port_order_crossed(networks: list[SharedNetwork]) -> bool:
    """Return whether the hosts order their ports differently on the PCI bus, by which NCCL pairs them."""
    orders = set()
    for on_host in zip(*(network.candidates for network in networks), strict=True):
        ports = [candidate.port for candidate in on_host]
        places = [(port.pci or "", port.device) if port else ("", "") for port in ports]
        orders.add(tuple(sorted(range(len(places)), key=places.__getitem__)))
    return len(orders) > 1


def compute_cable_mbit(pairs: Iterable[list[SharedNetwork]]) -> int:
    """Return the speed of the slowest pair; each item has the networks of the cables of two hosts."""
    return min(
        compute_parallel_mbit([network.candidates[end] for network in networks]) or 0
        for networks in pairs
        for end in (0, 1)
    )


def compute_parallel_mbit(carrying: Collection[EndpointCandidate]) -> int | None:
    """Return the speed of parallel links: a multiple of the slowest, within cables and PCIe slots."""
    cables: dict[object, int] = {}
    slots: dict[object, int] = {}
    for candidate in carrying:
        link, port = candidate.link, candidate.port
        reported = link.mbit or (port and port.mbit) or candidate.mbit
        port_key = (port.system_guid, port.port_name) if port and port.port_name else link.name
        cables[port_key] = max(cables.get(port_key, 0), reported)
        # Both QSFP ports of a Spark share PCIe lanes, so a second cable adds little.
        slot = port.pci.rpartition(".")[0] if port and port.pci else link.name
        slots[slot] = max(slots.get(slot, 0), (port and compute_pcie_mbit(port)) or reported)
    slowest = min((candidate.mbit for candidate in carrying), default=0)
    return min(slowest * len(carrying), sum(cables.values()), sum(slots.values())) or None


def find_routed_candidates(
    candidates: Mapping[str, Candidates], facts: Mapping[str, Facts]
) -> Candidates | None:
    """Return a candidate of each host with a gateway to all others outside its network; None without."""

    def gateways(candidate: EndpointCandidate) -> list[Route]:
        routes = facts[candidate.host].net.routes
        return [route for route in routes if route.gateway and route.interface == candidate.link.name]

    def leads(one: EndpointCandidate, other: EndpointCandidate) -> bool:
        return one.can_reach(other) or any(
            route.destination == "default" or other.ip in ip_network(route.destination, strict=False)
            for route in gateways(one)
            if one.ip != other.ip
        )

    leading = [
        [candidate for candidate in candidates[host] if gateways(candidate)] for host in sorted(candidates)
    ]
    if not all(leading):
        return None
    chosen = tuple(max(each, key=lambda candidate: candidate.rank) for each in leading)
    return chosen if all(leads(*pair) for pair in permutations(chosen, 2)) else None
