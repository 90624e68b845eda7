"""Find slow or wrong links, and why each link was not used."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import IPv4Network

from medley.errors import Finding
from medley.host.facts import Facts
from medley.host.facts.network import Interface
from medley.network.fabric import types
from medley.network.fabric.endpoints import Candidates, EndpointCandidate, Group
from medley.network.fabric.subnets import Shared
from medley.network.fabric.types import FAST_MBIT, Endpoint, RejectedLink, link_mbit, speed_text, twins

_ARP = "sudo sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2"
"""With these a link answers ARP requests only for its own address."""
_FULL_WIDTH = 4
"""PCIe lanes of each function of a Spark's ConnectX-7."""
_WORTH_TIMES = 2
"""An unused port must be this many times faster than the used ones to be reported."""


def of_host(
    facts: Facts, carrying: Iterable[EndpointCandidate], *, slowest: bool, known: Collection[str] = ()
) -> Iterator[Finding]:
    """Yield findings on its QSFP ports except interfaces in `known`; idle ones only at the slowest end."""
    used = list(carrying)
    names = {way.link.name for way in used}
    mates = twins(facts.rdma)
    for port in sorted(facts.rdma, key=lambda port: port.device):
        mate = mates.get(port.device)
        if mate is None or not {port.interface, mate.interface} & names:
            continue
        host = used[0].host
        if port.pcie_width and port.pcie_width < _FULL_WIDTH:
            width = f"{port.pcie_width}/{_FULL_WIDTH}"
            yield Finding(
                f"{host}: {port.device} has {port.pcie_width} of {_FULL_WIDTH} PCIe lanes",
                f"firmware before April 2026 configures it so; it has {width} of its speed",
                f"on {host}: sudo fwupdmgr refresh; sudo fwupdmgr update; sudo reboot",
                topic="width",
            )
        if slowest and port.interface not in {*names, *known}:
            yield _half(host, port.interface or port.device, facts)


def _half(host: str, interface: str, facts: Facts) -> Finding:
    link = next((link for link in facts.net.links if link.name == interface), None)
    if link and link.up and link.addresses:
        have = ", ".join(str(each.at) for each in link.addresses)
        where = ", ".join(map(str, link.networks))
        cause, fix = (
            f"its second interface {interface} ({have}) is not in a shared network, or has no RDMA",
            f"on the other hosts: ip -brief address; bring up the same interface, with an address in {where}",
        )
    elif link and link.up:
        cause = f"its second interface {interface} has no IPv4 address"
        fix = f"on every host: sudo ip address add 192.168.N.X/24 dev {interface}, N unlike the first"
    else:
        cause = f"its second interface {interface} is down"
        fix = f"on {host}: sudo ip link set {interface} up; ip -brief link show {interface}"
    return Finding(f"{host}: only one interface of the QSFP port is used: half the speed", cause, fix, "half")


def one_subnet(
    one: EndpointCandidate, other: EndpointCandidate, to: IPv4Network | None, taken: Iterable[IPv4Network]
) -> Finding:
    """Report two links in one subnet; `to`: the subnet of the same interface on other hosts, if any."""
    network, interface = to or free_network(taken), other.link.name
    number = int(one.ip) - int(one.network.network_address)
    address = network.network_address + (number if number < network.num_addresses - 1 else number % 253 + 1)
    return Finding(
        f"{one.host}: {one.link.name} and {interface} are both in {one.network}",
        f"they have {one.ip} and {other.ip}; the kernel answers for each with the other's MAC address, and "
        "half the speed is lost",
        f"on {one.host}: sudo $(command -v medley) link setup --interface {interface} --address "
        f"{address}/{network.prefixlen}  # lasts; until then: {_ARP}",
        topic="subnet",
    )


def free_network(taken: Iterable[IPv4Network]) -> IPv4Network:
    used, ranges = list(taken), (IPv4Network("192.168.192.0/18"), IPv4Network("172.31.0.0/16"))
    subnets = [each for wide in ranges for each in wide.subnets(new_prefix=24)]
    return next((each for each in subnets if not any(each.overlaps(one) for one in used)), subnets[-1])


def mtus(used: Iterable[EndpointCandidate]) -> Iterator[Finding]:
    """Report different MTUs; TCP and NCCL's RDMA (net_ib/connect.cc at v2.29.7-1) use the smaller one."""
    by_network: dict[IPv4Network, dict[str, EndpointCandidate]] = {}
    for way in used:
        by_network.setdefault(way.network, {})[way.host] = way
    for network, ways in sorted(by_network.items()):
        largest = max(way.link.mtu for way in ways.values())
        small = [way for way in ways.values() if way.link.mtu < largest]
        if small:
            ends = ", ".join(f"{way.host} {way.link.name} {way.link.mtu}" for way in ways.values())
            yield Finding(
                f"the ends of {network} differ in MTU",
                f"{ends}; frames above the smallest are dropped silently (ping, UDP, tests below NCCL)",
                "; ".join(f"on {way.host}: sudo ip link set {way.link.name} mtu {largest}" for way in small),
                topic="mtu",
            )


def doubled(chosen: Shared) -> Iterator[Finding]:
    for one, other in chosen.doubled:
        yield Finding(
            f"{one.host} has two links in {one.network}",
            f"{one.link.name} ({one.ip}) is used; {other.link.name} ({other.ip}) may answer instead",
            f"on {one.host}: sudo ip address del {other.ip}/{other.network.prefixlen} dev {other.link.name}"
            "  # and if you need it, give it an address in another subnet",
            topic="subnet",
        )


def crossed(chosen: Shared) -> Finding:
    return Finding(
        "the hosts order the interfaces of the QSFP port differently: only one is used, half the speed",
        f"NCCL before {types.AWARE_TEXT} connects the first port on each bus, and their subnets differ",
        f"on all of {', '.join(chosen.hosts)}: give the interface in PCI domain 0000 the same subnet",
        topic="order",
    )


def old_for_ring(version: tuple[int, ...], mbit: int) -> Finding:
    return Finding(
        f"the cables between the hosts ({speed_text(mbit)}) are not used",
        f"NCCL {types.nccl_text(version)} does not check which cable leads to which host; "
        f"{types.AWARE_TEXT} does (NCCL_IB_SUBNET_AWARE_ROUTING)",
        f"build the engine environment with nvidia-nccl-cu13 {types.AWARE_TEXT} or later, "
        "or connect all hosts to a switch",
        topic="ring",
    )


def by_route(chosen: Candidates) -> Finding:
    first, second = chosen[0], chosen[1]
    return Finding(
        "these hosts share no subnet: they reach each other only through a gateway",
        ", ".join(f"{way.host} {way.at} ({way.link.name})" for way in chosen),
        f"on {first.host}: ping -c 3 {second.ip}; better, connect them by a switch or a cable in one subnet",
        topic="gateway",
    )


def odd_kinds(chosen: Iterable[EndpointCandidate]) -> Iterator[Finding]:
    for way in chosen:
        if way.link.kind in {"wifi", "tunnel", "container", "virtual", "gadget"}:
            yield Finding(
                f"{way.host} is reached by {way.link.name} ({way.link.kind})",
                "no cabled network connects all hosts" if way.link.kind == "wifi" else "you named it",
                f"connect the hosts with a cable, then on {way.host}: ip -brief link",
                topic="kind",
            )


def idle_ports(hosts: Mapping[str, Facts], ends: Mapping[str, Endpoint]) -> dict[str, tuple[Interface, ...]]:
    """Return by host its unused fast ports, in PCI order; none unless another host has some."""
    networks = {
        host: {each for link in facts.net.links for each in _routable(link)} for host, facts in hosts.items()
    }
    found: dict[str, tuple[Interface, ...]] = {}
    for host, facts in hosts.items():
        others = [each for other, them in networks.items() if other != host for each in them]
        now = (ends[host].mbit or 0) if host in ends else 0
        ports = [link for link in facts.net.links if link.kind == "ethernet" and link.up and not link.master]
        worth = max(FAST_MBIT, _WORTH_TIMES * now)
        fast = [link for link in ports if (link_mbit(link, facts.rdma) or 0) >= worth]
        free = [link for link in fast if not any(a.overlaps(b) for a in _routable(link) for b in others)]
        if free:
            found[host] = tuple(sorted(free, key=lambda link: (link.pci or "", link.name)))
    return found if len(found) > 1 or len(hosts) == 1 else {}


def idle_findings(
    hosts: Mapping[str, Facts], ends: Mapping[str, Endpoint], others: Iterable[Finding]
) -> Iterator[Finding]:
    """Yield the finding of idle ports, without the ports of other findings."""
    named = {port for finding in others for port in finding.ports}
    found = idle_ports(hosts, ends)
    left = {
        host: tuple(
            link for link in links if not any((host, each) in named for each in _cage(link.name, hosts[host]))
        )
        for host, links in found.items()
    }
    if left := {host: links for host, links in left.items() if links}:
        yield idle_finding(left)


def _cage(interface: str, facts: Facts) -> set[str | None]:
    mates = twins(facts.rdma)
    ports = (port for port in facts.rdma if port.interface == interface)
    return {interface, *(mates[port.device].interface for port in ports if port.device in mates)}


def _routable(link: Interface) -> list[IPv4Network]:
    return [network for network in link.networks if not network.is_link_local]


def idle_finding(found: Mapping[str, tuple[Interface, ...]]) -> Finding:
    """Report unused ports; `medley link setup` configures them permanently."""
    speed = speed_text(max(link.mbit or 0 for links in found.values() for link in links))
    said = "; ".join(_said(host, link) for host, links in found.items() for link in links)
    if len(found) == 1:
        return Finding(
            f"{next(iter(found))}: a fast port is up and unused ({speed})",
            said,
            "sudo $(command -v medley) link setup  # and the same on the host at the other end of its cable",
            topic="idle",
        )
    return Finding(
        f"{' and '.join(found)} have fast ports that are up and unused ({speed})",
        said,
        "; ".join(_fixes(found)),
        topic="idle",
    )


def _said(host: str, link: Interface) -> str:
    if not link.addresses:
        return f"{host} {link.name} has no IPv4 address"
    if not _routable(link):
        return f"{host} {link.name} has only a link-local address"
    have = ", ".join(str(each.at) for each in link.addresses)
    return f"{host} {link.name} has {have}, where no other host is"


def _fixes(found: Mapping[str, tuple[Interface, ...]]) -> Iterator[str]:
    """Yield commands: join the network of a port with an address, else let medley choose one."""
    addressed = next((link for links in found.values() for link in links if _routable(link)), None)
    if addressed is None:
        yield f"on each of {', '.join(found)}: sudo $(command -v medley) link setup"
        return
    network = _routable(addressed)[0]
    taken = {each.ip for links in found.values() for link in links for each in link.addresses}
    free = (str(each) for each in network.hosts() if str(each) not in taken)
    for host, links in found.items():
        if addressed not in links:
            at = f"{next(free)}/{network.prefixlen}"
            setup = f"link setup --interface {links[0].name} --address {at}"
            yield f"on {host}: sudo $(command -v medley) {setup}"


def addresses(hosts: Mapping[str, Candidates]) -> str:
    shown = {host: ", ".join(f"{way.at} ({way.link.name})" for way in hosts[host]) for host in sorted(hosts)}
    return "; ".join(f"{host}: {networks or 'none'}" for host, networks in shown.items())


def rejections(
    group: Group, chosen: Iterable[EndpointCandidate], best: Shared | None, others: list[Shared]
) -> Iterator[RejectedLink]:
    """Yield why each usable link was not used; endpoint_candidates rejects the others."""
    taken = {(way.host, way.link.name) for way in chosen}
    for host in sorted(group.ways):
        by_link = {way.link.name: way for way in reversed(group.ways[host])}
        for name in sorted(by_link):
            if (host, name) not in taken:
                yield RejectedLink(host, name, _why(by_link[name], group, best, others))


def _why(way: EndpointCandidate, group: Group, best: Shared | None, others: list[Shared]) -> str:
    if not group.is_wanted(way):
        return f"you asked for {group.options.link_of(way.host)}"
    others_ways = {host: group.ways[host] for host in sorted(group.ways) if host != way.host}
    if same := [host for host, ways in others_ways.items() if any(way.ip == each.ip for each in ways)]:
        return f"{', '.join(same)} has the same address {way.ip}"
    absent = [host for host, ways in others_ways.items() if not any(map(way.meets, ways))]
    if len(absent) == len(others_ways):
        return f"no other host of the group is in {way.network}"
    if absent:
        return f"{', '.join(absent)} is not in {way.network}"
    one = next((one for one in others if way in one.ways), None)
    return _second(way, best, others) if one is None else _beaten(way, one, best)


def _second(way: EndpointCandidate, best: Shared | None, others: list[Shared]) -> str:
    ways = (each for one in ([best] if best else []) + others for each in one.ways)
    first = next((each for each in ways if each.host == way.host and each.ip in way.network), None)
    if first is None:
        return f"two links of one host are in {way.network}, and each may answer for the other"
    if not way.wired:
        return f"Wi-Fi, and {first.link.name} is a cabled link to the same network"
    return f"{first.link.name} is in {way.network} too, and is used"


def _beaten(way: EndpointCandidate, one: Shared, best: Shared | None) -> str:
    if best is None:
        return f"{one.network} is not used"
    if not one.wired and best.wired:
        there = ", ".join(each.host for each in one.ways if not each.wired)
        wifi = "Wi-Fi" if not way.wired else f"{there} uses Wi-Fi"
        return f"{wifi}, and all hosts have a cabled link in {best.network}"
    if one.mbit < best.mbit:
        slow = min(one.ways, key=lambda way: way.mbit)
        better = f"{best.network} {speed_text(best.mbit)}"
        return f"{one.network} has {speed_text(slow.mbit)} at {slow.host}, {better}"
    if best.rdma and not one.rdma:
        return f"as fast as {best.network}, which can do RDMA on every host"
    return f"no faster than {best.network}, which has a larger MTU or a lower address"
