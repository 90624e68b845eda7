"""What works less well than it could, each with what to type."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import IPv4Interface, IPv4Network

from medley.fabric import nccl
from medley.fabric.networks import Shared
from medley.fabric.shapes import Finding
from medley.fabric.speed import shown, twins
from medley.fabric.ways import Way
from medley.facts import Facts

_ARP = "sudo sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2"
"""With these a link answers for its own address alone, and asks from it."""
_FULL_WIDTH = 4
"""PCIe lanes of each half of a Spark's ConnectX-7."""


def of_host(
    facts: Facts, carrying: Iterable[Way], *, slowest: bool, told: Collection[str] = ()
) -> Iterator[Finding]:
    """What is wrong with the halves of the cages it uses; an idle half matters at the slowest end alone.

    Of the interfaces in `told` it is known why they carry nothing.
    """
    used = list(carrying)
    names = {way.link.name for way in used}
    mates = twins(facts.rdma)
    for port in sorted(facts.rdma, key=lambda port: port.device):
        mate = mates.get(port.device)
        if mate is None or not {port.interface, mate.interface} & names:
            continue
        host = used[0].host
        if port.pcie_width and port.pcie_width < _FULL_WIDTH:
            yield _narrow(host, port.device, port.pcie_width)
        if slowest and port.interface not in {*names, *told}:
            yield _half(host, port.interface or port.device, facts)


def _narrow(host: str, device: str, width: int) -> Finding:
    return Finding(
        f"{host}: {device} has {width} of {_FULL_WIDTH} PCIe lanes",
        f"firmware from before April 2026 wires it so; it carries {width}/{_FULL_WIDTH} of its speed",
        f"on {host}: sudo fwupdmgr refresh; sudo fwupdmgr update; sudo reboot",
        topic="width",
    )


def _half(host: str, interface: str, facts: Facts) -> Finding:
    link = next((link for link in facts.net.links if link.name == interface), None)
    if link and link.up and link.addresses:
        have = ", ".join(f"{each.ip}/{each.prefix}" for each in link.addresses)
        where = ", ".join(str(IPv4Interface(f"{each.ip}/{each.prefix}").network) for each in link.addresses)
        cause, fix = (
            f"the other half of the cage, {interface} ({have}), is not shared by all, or has no RDMA",
            f"on the other hosts: ip -brief address; the like half must be up, with an address in {where}",
        )
    elif link and link.up:
        cause = f"the other half of the cage, {interface}, has no IPv4 address"
        fix = f"on every host: sudo ip address add 192.168.N.X/24 dev {interface}, N of its own for this half"
    else:
        cause = f"the other half of the cage, {interface}, is down"
        fix = f"on {host}: sudo ip link set {interface} up; ip -brief link show {interface}"
    return Finding(f"{host}: one half of the cage carries nothing: half the speed", cause, fix, "half")


def one_subnet(one: Way, other: Way, to: IPv4Network | None, taken: Iterable[IPv4Network]) -> Finding:
    """Two links in one subnet; `to`: where the other hosts have their like of `other`, if anywhere."""
    network, interface = to or _free(taken), other.link.name
    number = int(one.ip) - int(one.network.network_address)
    address = network.network_address + (number if number < network.num_addresses - 1 else number % 253 + 1)
    return Finding(
        f"{one.host}: {one.link.name} and {interface} are both in {one.network}",
        f"they have {one.ip} and {other.ip}; the kernel answers for either with the other's MAC address, and "
        "half the speed is lost",
        f"on {one.host}: sudo medley link setup --interface {interface} --address "
        f"{address}/{network.prefixlen}  # lasts; until then: {_ARP}",
        topic="subnet",
    )


def _free(taken: Iterable[IPv4Network]) -> IPv4Network:
    used, ranges = list(taken), (IPv4Network("192.168.192.0/18"), IPv4Network("172.31.0.0/16"))
    subnets = [each for wide in ranges for each in wide.subnets(new_prefix=24)]
    return next((each for each in subnets if not any(each.overlaps(one) for one in used)), subnets[-1])


def mtus(used: Iterable[Way]) -> Iterator[Finding]:
    """No Problem: TCP's ends tell each other what they take, and NCCL's RDMA takes the smaller of both.

    The latter is in src/transport/net_ib/connect.cc of https://github.com/NVIDIA/nccl, at v2.29.7-1.
    """
    by_network: dict[IPv4Network, dict[str, Way]] = {}
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
            f"{one.link.name} ({one.ip}) is taken; {other.link.name} ({other.ip}) may answer in its place",
            f"on {one.host}: sudo ip address del {other.ip}/{other.network.prefixlen} dev {other.link.name}"
            "  # and if it is needed, an address in a subnet of its own",
            topic="subnet",
        )


def crossed(chosen: Shared) -> Finding:
    return Finding(
        "the halves of the cage are in different order on these hosts: one of them is used, half the speed",
        f"NCCL before {nccl.shown(nccl.SUBNET_AWARE)} joins the first port on the bus here to the first "
        "there, and their subnets differ",
        f"on all of {', '.join(chosen.hosts)}: give the half in PCI domain 0000 the same subnet",
        topic="order",
    )


def old_for_ring(version: tuple[int, ...], mbit: int) -> Finding:
    return Finding(
        f"the cables between the hosts ({shown(mbit)}) are not used",
        f"NCCL {nccl.shown(version)} does not ask which cable leads to which host; "
        f"{nccl.shown(nccl.SUBNET_AWARE)} does (NCCL_IB_SUBNET_AWARE_ROUTING)",
        f"build the engine environment with nvidia-nccl-cu13 {nccl.shown(nccl.SUBNET_AWARE)} or later, "
        "or join all hosts by a switch",
        topic="ring",
    )


def by_route(chosen: tuple[Way, ...]) -> Finding:
    first, second = chosen[0], chosen[1]
    return Finding(
        "these hosts share no subnet: they reach each other by a gateway, if at all",
        ", ".join(f"{way.host} {way.ip}/{way.network.prefixlen} ({way.link.name})" for way in chosen),
        f"on {first.host}: ping -c 3 {second.ip}; better, join them by a switch or a cable in one subnet",
        topic="gateway",
    )


def odd_kinds(chosen: Iterable[Way]) -> Iterator[Finding]:
    for way in chosen:
        if way.link.kind in {"wifi", "tunnel", "container", "virtual", "gadget"}:
            yield Finding(
                f"{way.host} is reached by {way.link.name} ({way.link.kind})",
                "no wire reaches all hosts" if way.link.kind == "wifi" else "you named it",
                f"join the hosts by a cable, then on {way.host}: ip -brief link",
                topic="kind",
            )


def addresses(hosts: Mapping[str, tuple[Way, ...]]) -> str:
    """Each host's networks, for the cause of a Problem."""
    shown = {
        host: ", ".join(f"{way.ip}/{way.network.prefixlen} ({way.link.name})" for way in hosts[host])
        for host in sorted(hosts)
    }
    return "; ".join(f"{host}: {networks or 'none'}" for host, networks in shown.items())
