"""Choose RDMA over a ring of three, or report the cable that prevents it.

NCCL connects each host of a communicator to every other, through a port that it chooses. With subnet-aware
routing it corrects that choice at one end of a connection, and RDMA does not pass through a host between
two others (src/transport/net_ib/connect.cc of https://github.com/NVIDIA/nccl at v2.30.7-1). So each two hosts
need a cable, and of the ports with one number at both, one must lead to the other host. N hosts of P ports
have N*P such ends, and N*(N-1)/2 pairs that need P each: three hosts are the most.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Interface
from itertools import combinations

from medley.errors import Finding
from medley.host.facts import Facts
from medley.host.facts.rdma import RdmaPort
from medley.network.fabric import findings, types
from medley.network.fabric.cabling import Cable, CabledGroup, missing
from medley.network.fabric.endpoints import Candidates, Group
from medley.network.fabric.neighbors import cabled, cage_of
from medley.network.fabric.subnets import Shared, cable_mbit, muddled, shared
from medley.network.fabric.types import Endpoint, speed_text

_RINGS = {"line", "ring", "mesh", "partial mesh"}
_MOST = 3


@dataclass(frozen=True)
class Ring:
    ways: Mapping[str, Candidates]
    mbit: int
    subnet_bits: int
    why: str


def ring(best: Shared, group: Group) -> Ring | Finding | None:
    """Choose RDMA over cables between all hosts, or a finding why not; None where it is not faster."""
    asked = group.options.transport == "tcp" or group.options.link is not None
    whole = None if asked else cabled(group).whole
    if whole is None or whole.shape not in _RINGS:
        return None
    found = _networks(whole, group)
    mbit = cable_mbit(found.values()) if all(found.values()) else 0
    if mbit <= best.mbit:
        return None
    if finding := unserved(whole, group):
        return finding
    if group.options.nccl < types.SUBNET_AWARE:
        return findings.old_for_ring(group.options.nccl, mbit)
    networks = [one for between in found.values() for one in between]
    bits = _telling([{int(way.ip) for way in one.ways} for one in networks])
    if bits is None:
        return None
    why = f"RDMA over a {whole.name}: a cable of {speed_text(mbit)} connects each pair of hosts"
    return Ring(_ways(networks, group), mbit, bits, why)


def unserved(whole: CabledGroup, group: Group) -> Finding | None:
    """Return why no NCCL can use these cables between all hosts, and the fix."""
    if absent := missing(whole):
        return _lacking(absent[0], whole, group)
    if len(whole.hosts) > _MOST:
        apart = _apart(whole)
        far = f"{', '.join(apart)} have none, and RDMA does not pass through a host between" if apart else ""
        each = "it chooses ports by number, which reaches every other host only among three"
        return Finding(
            f"{whole}: NCCL cannot use its cables",
            f"NCCL needs a direct cable between every two hosts: {far or each}",
            "connect the fast ports of all hosts to a switch; or cable three as a ring, and serve on them",
            topic="ring",
        )
    return _mirrored(whole, group)


def _networks(whole: CabledGroup, group: Group) -> dict[tuple[str, str], list[Shared]]:
    found: dict[tuple[str, str], list[Shared]] = {}
    for one, other in dict.fromkeys(cable.hosts for cable in whole.cables):
        between = shared({one: group.ways[one], other: group.ways[other]})
        fit = [each for each in between if each.rdma and each.wired and not muddled(each, group.hosts)]
        cabled_here = {network for cable in whole.cables for network in cable.networks}
        found[one, other] = [each for each in fit if str(each.network) in cabled_here]
    return found


def _apart(whole: CabledGroup) -> list[str]:
    joined = {cable.hosts for cable in whole.cables}
    return [" – ".join(pair) for pair in combinations(sorted(whole.hosts), 2) if pair not in joined]


def _lacking(pair: tuple[str, str], whole: CabledGroup, group: Group) -> Finding:
    ends = [(host, _free_port(group.hosts[host], host, whole)) for host in pair]
    shown = " – ".join(f"{host} {port}" if port else host for host, port in ends)
    taken = [way.network for ways in group.ways.values() for way in ways]
    network = findings.free_network(taken)
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


def _free_port(facts: Facts, host: str, whole: CabledGroup) -> str | None:
    names = {name for cable in whole.cables for name in _at(cable, host)}
    used = {cage_of(link, facts) for link in facts.net.links if link.name in names}
    ports = sorted(facts.rdma, key=lambda port: (port.pci or "", port.device))
    by_name = {link.name: link for link in facts.net.links}
    found = (by_name[port.interface] for port in ports if port.interface in by_name)
    return next((link.name for link in found if cage_of(link, facts) not in used), None)


def _mirrored(whole: CabledGroup, group: Group) -> Finding | None:
    """Report cables between ports of one number, which NCCL cannot use in a ring."""
    numbers = {
        cable: {_number(cable, host, whole, group.hosts[host]) for host in cable.hosts}
        for cable in whole.cables
    }
    bad = [cable for cable, found in numbers.items() if len(found) == 1]
    common = [host for host in whole.hosts if bad and all(host in cable.hosts for cable in bad)]
    if not common:
        return None
    names = [_at(cable, common[0])[0] for cable in bad]
    return Finding(
        f"{' and '.join(map(str, bad))}: each connects two ports of one number",
        "NCCL chooses ports of one number at both ends of a connection and corrects one of them: in a ring "
        "each cable goes from a first port to a second (NVIDIA's connect-three-sparks playbook)",
        f"on {common[0]}: swap the cables of {' and '.join(names)}, and "
        "their second addresses: sudo $(command -v medley) link setup "
        f"--interface {names[0]} --address ADDRESS",
        topic="ring",
    )


def _number(cable: Cable, host: str, whole: CabledGroup, facts: Facts) -> int:
    ports = {port.interface: port for port in facts.rdma}

    def place(each: Cable) -> tuple[str, str]:
        port = ports.get(_at(each, host)[0])
        return (port.port_name or "", port.pci or "") if port else ("", "")

    return sorted(place(each) for each in whole.cables if host in each.hosts).index(place(cable))


def _at(cable: Cable, host: str) -> tuple[str, ...]:
    return cable.interfaces[cable.hosts.index(host)] if host in cable.hosts else ()


def _ways(networks: list[Shared], group: Group) -> dict[str, Candidates]:
    found = {}
    for host in group.ways:
        own = {way.link.name: way for one in networks for way in one.ways if way.host == host}
        in_order = sorted(own.values(), key=lambda way: ((way.port and way.port.pci) or "", way.link.name))
        found[host] = tuple(in_order)
    return found


def pair_bits(hosts: Mapping[str, Facts], ends: Mapping[str, Endpoint], nccl: tuple[int, ...]) -> int | None:
    """Return the prefix length by which NCCL separates a pair's cable from others.

    For two hosts of a ring, whose list has the ports of both. None where a listed port has no address, or
    NCCL ignores subnets.
    """
    if len(hosts) != 2 or nccl < types.SUBNET_AWARE:  # noqa: PLR2004 - a pair
        return None
    listed = {port.named for end in ends.values() for port in end.ports}
    cables: dict[object, set[int]] = {}
    for host, facts in hosts.items():
        own = {port.named for port in ends[host].ports}
        for port in facts.rdma:
            if port.named in listed and port.active:
                at = _address(port, facts)
                if at is None:
                    return None
                # A port to a third host is another cable.
                cable = at.network if port.named in own else (host, port.named)
                cables.setdefault(cable, set()).add(int(at.ip))
    return _telling(list(cables.values()))


def _address(port: RdmaPort, facts: Facts) -> IPv4Interface | None:
    found = (link.addresses for link in facts.net.links if link.name == port.interface)
    return next((addresses[0].at for addresses in found if addresses), None)


def _telling(cables: list[set[int]]) -> int | None:
    bits: int
    for bits in (24, *range(31, 0, -1)):
        masks = [{ip >> (32 - bits) for ip in cable} for cable in cables]
        whole = all(len(mask) == 1 for mask in masks)
        if whole and not any(one & other for one, other in combinations(masks, 2)):
            return bits
    return None
