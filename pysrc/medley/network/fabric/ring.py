"""Choose RDMA over a ring of three, or report the cable that prevents it.

NCCL connects each host of a communicator to every other, through a port that it chooses. With subnet-aware
routing it corrects that choice at one end of a connection, and RDMA does not pass through a host between
two others (src/transport/net_ib/connect.cc of https://github.com/NVIDIA/nccl at v2.30.7-1). So each two hosts
need a cable, and of the ports with one number at both, one must lead to the other host. N hosts of P ports
have N*P such ends, and N*(N-1)/2 pairs that need P each: three hosts are the most.
"""

from collections.abc import Mapping
from ipaddress import IPv4Interface
from itertools import combinations

from medley.errors import Finding
from medley.host.facts import Facts
from medley.host.facts.rdma import RdmaPort
from medley.network.fabric import findings
from medley.network.fabric.cabling import Cable, CabledGroup, list_missing_pairs
from medley.network.fabric.choice import Endpoint
from medley.network.fabric.endpoints import CandidateGroup, Candidates
from medley.network.fabric.nccl import SUBNET_AWARE_NCCL
from medley.network.fabric.neighbors import find_cabling, find_port_key
from medley.network.fabric.speed import format_speed
from medley.network.fabric.subnets import (
    SharedNetwork,
    compute_cable_mbit,
    find_ambiguous_links,
    find_shared_networks,
)
from medley.values import Value

_RING_SHAPES = {"line", "ring", "mesh", "partial mesh"}
_MAX_RING_HOSTS = 3


class Ring(Value):
    """The cables of a ring that RDMA uses."""

    candidates: Mapping[str, Candidates]
    """The candidates of each host, one for each cable, in PCI order."""
    mbit: int
    """The speed between the slowest pair of hosts."""
    subnet_bits: int
    """The prefix length by which NCCL separates the cables' networks."""
    why: str


def choose_ring(best: SharedNetwork, group: CandidateGroup) -> Ring | Finding | None:
    """Return RDMA over cables between all hosts, or a finding why not; None where it is not faster."""
    is_excluded = group.options.transport == "tcp" or group.options.link is not None
    whole = None if is_excluded else find_cabling(group).only_group
    if whole is None or whole.shape not in _RING_SHAPES:
        return None
    networks_by_pair = _find_cable_networks(whole, group)
    mbit = compute_cable_mbit(networks_by_pair.values()) if all(networks_by_pair.values()) else 0
    if mbit <= best.mbit:
        return None
    if finding := find_ring_obstacle(whole, group):
        return finding
    if group.options.nccl_version < SUBNET_AWARE_NCCL:
        return findings.build_old_nccl_finding(group.options.nccl_version, mbit)
    networks = [network for pair_networks in networks_by_pair.values() for network in pair_networks]
    bits = _compute_subnet_bits([{int(way.ip) for way in one.candidates} for one in networks])
    if bits is None:
        return None
    why = f"RDMA over a {whole.name}: a cable of {format_speed(mbit)} connects each pair of hosts"
    return Ring(_group_by_host(networks, group), mbit, bits, why)


def find_ring_obstacle(whole: CabledGroup, group: CandidateGroup) -> Finding | None:
    """Return why no NCCL can use these cables between all hosts, and the fix."""
    if absent := list_missing_pairs(whole):
        return _build_missing_cable_finding(absent[0], whole, group)
    if len(whole.hosts) > _MAX_RING_HOSTS:
        reason = "it chooses ports by number, which reaches every other host only among three"
        if uncabled_pairs := _list_uncabled_pairs(whole):
            reason = f"{', '.join(uncabled_pairs)} have none, and RDMA does not pass through a host between"
        return Finding(
            f"{whole}: NCCL cannot use its cables",
            f"NCCL needs a direct cable between every two hosts: {reason}",
            "connect the fast ports of all hosts to a switch; or cable three as a ring, and serve on them",
            topic="ring",
        )
    return _find_mirrored_cables(whole, group)


def _find_cable_networks(
    whole: CabledGroup, group: CandidateGroup
) -> dict[tuple[str, str], list[SharedNetwork]]:
    """Return by pair of hosts the networks of its cables that RDMA can use."""
    cable_networks = {network for cable in whole.cables for network in cable.networks}
    by_pair: dict[tuple[str, str], list[SharedNetwork]] = {}
    for first, second in dict.fromkeys(cable.hosts for cable in whole.cables):
        shared_networks = find_shared_networks(
            {first: group.candidates[first], second: group.candidates[second]}
        )
        fit = [
            one
            for one in shared_networks
            if one.has_rdma and one.is_wired and not find_ambiguous_links(one, group.hosts)
        ]
        by_pair[first, second] = [one for one in fit if str(one.network) in cable_networks]
    return by_pair


def _list_uncabled_pairs(whole: CabledGroup) -> list[str]:
    cabled_pairs = {cable.hosts for cable in whole.cables}
    return [" – ".join(pair) for pair in combinations(sorted(whole.hosts), 2) if pair not in cabled_pairs]


def _build_missing_cable_finding(pair: tuple[str, str], whole: CabledGroup, group: CandidateGroup) -> Finding:
    ends = [(host, _find_free_port(group.hosts[host], host, whole)) for host in pair]
    shown = " – ".join(f"{host} {port}" if port else host for host, port in ends)
    used_subnets = [way.network for ways in group.candidates.values() for way in ways]
    network = findings.find_free_network(used_subnets)
    steps = "; ".join(
        f"on {host}: sudo $(command -v medley) link setup --interface {port or 'NAME'} "
        f"--address {network.network_address + number}/{network.prefixlen}"
        for number, (host, port) in enumerate(ends, 1)
    )
    return Finding(
        f"{shown} is missing: a ring of three needs it",
        f"{whole}: NCCL needs a direct cable between every two hosts",
        f"plug in that cable; {steps}",
        topic="ring",
        ports=tuple((host, port) for host, port in ends if port),
    )


def _find_free_port(facts: Facts, host: str, whole: CabledGroup) -> str | None:
    """Return an interface of the host's first QSFP port without a cable of the group; None without one."""
    names = {name for cable in whole.cables for name in _list_interfaces_at(cable, host)}
    used = {find_port_key(link, facts) for link in facts.net.links if link.name in names}
    ports = sorted(facts.rdma, key=lambda port: (port.pci or "", port.device))
    by_name = {link.name: link for link in facts.net.links}
    cabled_links = (by_name[port.interface] for port in ports if port.interface in by_name)
    return next((link.name for link in cabled_links if find_port_key(link, facts) not in used), None)


def _find_mirrored_cables(whole: CabledGroup, group: CandidateGroup) -> Finding | None:
    """Report cables between ports of one number, which NCCL cannot use in a ring."""
    numbers = {
        cable: {_find_port_number(cable, host, whole, group.hosts[host]) for host in cable.hosts}
        for cable in whole.cables
    }
    mirrored_cables = [cable for cable, port_numbers in numbers.items() if len(port_numbers) == 1]
    common_hosts = [
        host
        for host in whole.hosts
        if mirrored_cables and all(host in cable.hosts for cable in mirrored_cables)
    ]
    if not common_hosts:
        return None
    names = [_list_interfaces_at(cable, common_hosts[0])[0] for cable in mirrored_cables]
    return Finding(
        f"{' and '.join(map(str, mirrored_cables))}: each connects two ports of one number",
        "NCCL chooses ports of one number at both ends of a connection and corrects one of them: in a ring "
        "each cable goes from a first port to a second (NVIDIA's connect-three-sparks playbook)",
        f"on {common_hosts[0]}: swap the cables of {' and '.join(names)}, and "
        "their second addresses: sudo $(command -v medley) link setup "
        f"--interface {names[0]} --address ADDRESS",
        topic="ring",
    )


def _find_port_number(cable: Cable, host: str, whole: CabledGroup, facts: Facts) -> int:
    """Return the place, from 0, of the cable's port among the cabled ports of the host."""
    ports = {port.interface: port for port in facts.rdma}

    def find_place(other_cable: Cable) -> tuple[str, str]:
        port = ports.get(_list_interfaces_at(other_cable, host)[0])
        return (port.port_name or "", port.pci or "") if port else ("", "")

    return sorted(find_place(other_cable) for other_cable in whole.cables if host in other_cable.hosts).index(
        find_place(cable)
    )


def _list_interfaces_at(cable: Cable, host: str) -> tuple[str, ...]:
    return cable.interfaces[cable.hosts.index(host)] if host in cable.hosts else ()


def _group_by_host(networks: list[SharedNetwork], group: CandidateGroup) -> dict[str, Candidates]:
    """Return by host its candidates in these networks, in PCI order."""
    by_host = {}
    for host in group.candidates:
        by_link = {
            way.link.name: way for network in networks for way in network.candidates if way.host == host
        }
        in_order = sorted(
            by_link.values(), key=lambda way: ((way.port and way.port.pci) or "", way.link.name)
        )
        by_host[host] = tuple(in_order)
    return by_host


def compute_pair_bits(
    hosts: Mapping[str, Facts], ends: Mapping[str, Endpoint], nccl: tuple[int, ...]
) -> int | None:
    """Return the prefix length by which NCCL separates the cable of two hosts of a ring from others.

    The list of ports that NCCL gets has those of both hosts. Return None where a listed port has no address,
    or NCCL ignores subnets.
    """
    if len(hosts) != 2 or nccl < SUBNET_AWARE_NCCL:  # noqa: PLR2004 - a pair
        return None
    listed_ports = {port.nccl_name for end in ends.values() for port in end.ports}
    cables: dict[object, set[int]] = {}
    for host, facts in hosts.items():
        host_ports = {port.nccl_name for port in ends[host].ports}
        for port in facts.rdma:
            if port.nccl_name in listed_ports and port.active:
                interface_address = _find_port_address(port, facts)
                if interface_address is None:
                    return None
                # A port to a third host is another cable.
                cable = interface_address.network if port.nccl_name in host_ports else (host, port.nccl_name)
                cables.setdefault(cable, set()).add(int(interface_address.ip))
    return _compute_subnet_bits(list(cables.values()))


def _find_port_address(port: RdmaPort, facts: Facts) -> IPv4Interface | None:
    addresses_lists = (link.addresses for link in facts.net.links if link.name == port.interface)
    return next((addresses[0].cidr for addresses in addresses_lists if addresses), None)


def _compute_subnet_bits(cables: list[set[int]]) -> int | None:
    """Return a prefix length that is equal for the addresses of one cable and differs between cables."""
    bits: int
    for bits in (24, *range(31, 0, -1)):
        masks = [{ip >> (32 - bits) for ip in cable} for cable in cables]
        is_distinct = all(len(mask) == 1 for mask in masks)
        if is_distinct and not any(first & second for first, second in combinations(masks, 2)):
            return bits
    return None
