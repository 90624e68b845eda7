"""Find slow or wrong links, and why each link was not used."""

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import IPv4Network

from medley.errors import Finding
from medley.host.facts import Facts
from medley.host.facts.network import Interface
from medley.network.fabric.choice import Endpoint, RejectedLink
from medley.network.fabric.endpoints import CandidateGroup, Candidates, EndpointCandidate
from medley.network.fabric.nccl import SUBNET_AWARE_TEXT, format_nccl_version
from medley.network.fabric.speed import FAST_MBIT, compute_link_mbit, find_second_functions, format_speed
from medley.network.fabric.subnets import SharedNetwork

_ARP = "sudo sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2"
"""With these a link answers ARP requests only for its own address."""
_FULL_WIDTH_LANES = 4
"""PCIe lanes of each function of a Spark's ConnectX-7."""
_MIN_SPEED_RATIO = 2
"""An unused port must be this many times faster than the used ones to be reported."""


def list_port_findings(
    facts: Facts,
    carrying: Iterable[EndpointCandidate],
    *,
    reports_unused: bool,
    reported: Collection[str] = (),
) -> Iterator[Finding]:
    """Yield findings on a host's QSFP ports; `reported`: interfaces that other findings report.

    `reports_unused`: also report the second interface of a QSFP port where no rank uses it.
    """
    used = list(carrying)
    names = {candidate.link.name for candidate in used}
    second_functions = find_second_functions(facts.rdma)
    for port in sorted(facts.rdma, key=lambda port: port.device):
        second_function = second_functions.get(port.device)
        if second_function is None or not {port.interface, second_function.interface} & names:
            continue
        host = used[0].host
        if port.pcie_width and port.pcie_width < _FULL_WIDTH_LANES:
            width = f"{port.pcie_width}/{_FULL_WIDTH_LANES}"
            yield Finding(
                f"{host}: {port.device} has {port.pcie_width} of {_FULL_WIDTH_LANES} PCIe lanes",
                f"firmware before April 2026 configures it so; it has {width} of its speed",
                f"on {host}: sudo fwupdmgr refresh; sudo fwupdmgr update; sudo reboot",
                topic="width",
            )
        if reports_unused and port.interface not in {*names, *reported}:
            yield _build_half_port_finding(host, port.interface or port.device, facts)


def _build_half_port_finding(host: str, interface: str, facts: Facts) -> Finding:
    link = next((link for link in facts.net.links if link.name == interface), None)
    name = shlex.quote(interface)
    if link and link.up and link.addresses:
        addresses = ", ".join(str(address.cidr) for address in link.addresses)
        networks = ", ".join(map(str, link.networks))
        cause = f"its second interface {interface} ({addresses}) is not in a shared network, or has no RDMA"
        fix = (
            "on the other hosts: ip -brief address; "
            f"bring up the same interface, with an address in {networks}"
        )
    elif link and link.up:
        cause = f"its second interface {interface} has no IPv4 address"
        fix = f"on every host: sudo ip address add 192.168.N.X/24 dev {name}, N unlike the first"
    else:
        cause = f"its second interface {interface} is down"
        fix = f"on {host}: sudo ip link set {name} up; ip -brief link show {name}"
    return Finding(f"{host}: only one interface of the QSFP port is used: half the speed", cause, fix, "half")


def build_one_subnet_finding(
    first: EndpointCandidate,
    second: EndpointCandidate,
    target_subnet: IPv4Network | None,
    used_subnets: Iterable[IPv4Network],
) -> Finding:
    """Report two links in one subnet; `target_subnet`: that of the same interface on other hosts.

    `used_subnets` are the subnets that the group uses already.
    """
    network, interface = target_subnet or find_free_network(used_subnets), second.link.name
    number = int(first.ip) - int(first.network.network_address)
    address = network.network_address + (number if number < network.num_addresses - 1 else number % 253 + 1)
    return Finding(
        f"{first.host}: {first.link.name} and {interface} are both in {first.network}",
        f"they have {first.ip} and {second.ip}; the kernel answers for each with the other's MAC address, "
        "and half the speed is lost",
        f"on {first.host}: sudo $(command -v medley) link setup --interface {interface} --address "
        f"{address}/{network.prefixlen}  # lasts; until then: {_ARP}",
        topic="subnet",
    )


def find_free_network(networks: Iterable[IPv4Network]) -> IPv4Network:
    """Return a private /24 that overlaps none of these networks; the last one where all are used."""
    used, ranges = list(networks), (IPv4Network("192.168.192.0/18"), IPv4Network("172.31.0.0/16"))
    subnets = [subnet for wide in ranges for subnet in wide.subnets(new_prefix=24)]
    free = (subnet for subnet in subnets if not any(map(subnet.overlaps, used)))
    return next(free, subnets[-1])


def list_mtu_findings(candidates: Iterable[EndpointCandidate]) -> Iterator[Finding]:
    """Yield networks with different MTUs: TCP and NCCL's RDMA use the smaller one.

    For NCCL see net_ib/connect.cc at v2.29.7-1.
    """
    by_network: dict[IPv4Network, dict[str, EndpointCandidate]] = {}
    for candidate in candidates:
        by_network.setdefault(candidate.network, {})[candidate.host] = candidate
    for network, on_network in sorted(by_network.items()):
        largest = max(candidate.link.mtu for candidate in on_network.values())
        below_largest = [candidate for candidate in on_network.values() if candidate.link.mtu < largest]
        if below_largest:
            ends = ", ".join(
                f"{candidate.host} {candidate.link.name} {candidate.link.mtu}"
                for candidate in on_network.values()
            )
            yield Finding(
                f"the ends of {network} differ in MTU",
                f"{ends}; frames above the smallest are dropped silently (ping, UDP, tests below NCCL)",
                "; ".join(
                    f"on {candidate.host}: sudo ip link set {candidate.link.name} mtu {largest}"
                    for candidate in below_largest
                ),
                topic="mtu",
            )


def list_duplicate_findings(chosen: SharedNetwork) -> Iterator[Finding]:
    for first, second in chosen.duplicates:
        yield Finding(
            f"{first.host} has two links in {first.network}",
            f"{first.link.name} ({first.ip}) is used; {second.link.name} ({second.ip}) may answer instead",
            f"on {first.host}: sudo ip address del {second.cidr} dev {second.link.name}"
            "  # and if you need it, give it an address in another subnet",
            topic="subnet",
        )


def build_crossed_order_finding(network: SharedNetwork) -> Finding:
    return Finding(
        "the hosts order the interfaces of the QSFP port differently: only one is used, half the speed",
        f"NCCL before {SUBNET_AWARE_TEXT} connects the first port on each bus, and their subnets differ",
        f"on all of {', '.join(network.hosts)}: give the interface in PCI domain 0000 the same subnet",
        topic="order",
    )


def build_old_nccl_finding(version: tuple[int, ...], mbit: int) -> Finding:
    return Finding(
        f"the cables between the hosts ({format_speed(mbit)}) are not used",
        f"NCCL {format_nccl_version(version)} does not check which cable leads to which host; "
        f"{SUBNET_AWARE_TEXT} does (NCCL_IB_SUBNET_AWARE_ROUTING)",
        f"build the engine environment with nvidia-nccl-cu13 {SUBNET_AWARE_TEXT} or later, "
        "or connect all hosts to a switch",
        topic="ring",
    )


def build_routed_finding(chosen: Candidates) -> Finding:
    first, second = chosen[0], chosen[1]
    return Finding(
        "these hosts share no subnet: they reach each other only through a gateway",
        ", ".join(f"{candidate.host} {candidate.cidr} ({candidate.link.name})" for candidate in chosen),
        f"on {first.host}: ping -c 3 {second.ip}; better, connect them by a switch or a cable in one subnet",
        topic="gateway",
    )


def list_kind_findings(chosen: Iterable[EndpointCandidate]) -> Iterator[Finding]:
    for candidate in chosen:
        if candidate.link.kind in {"wifi", "tunnel", "container", "virtual", "gadget"}:
            yield Finding(
                f"{candidate.host} is reached by {candidate.link.name} ({candidate.link.kind})",
                "no cabled network connects all hosts" if candidate.link.kind == "wifi" else "you named it",
                f"connect the hosts with a cable, then on {candidate.host}: ip -brief link",
                topic="kind",
            )


def find_idle_ports(
    hosts: Mapping[str, Facts], ends: Mapping[str, Endpoint]
) -> dict[str, tuple[Interface, ...]]:
    """Return by host its unused fast ports, in PCI order; none unless another host has some."""
    networks = {
        host: {network for link in facts.net.links for network in _list_routable_networks(link)}
        for host, facts in hosts.items()
    }
    idle: dict[str, tuple[Interface, ...]] = {}
    for host, facts in hosts.items():
        other_networks = [network for other in networks if other != host for network in networks[other]]
        used_mbit = (ends[host].mbit or 0) if host in ends else 0
        ports = [link for link in facts.net.links if link.kind == "ethernet" and link.up and not link.master]
        min_mbit = max(FAST_MBIT, _MIN_SPEED_RATIO * used_mbit)
        fast = [link for link in ports if (compute_link_mbit(link, facts.rdma) or 0) >= min_mbit]
        free = [link for link in fast if not _has_overlap(_list_routable_networks(link), other_networks)]
        if free:
            idle[host] = tuple(sorted(free, key=lambda link: (link.pci or "", link.name)))
    return idle if len(idle) > 1 or len(hosts) == 1 else {}


def _has_overlap(networks: Iterable[IPv4Network], others: Collection[IPv4Network]) -> bool:
    return any(network.overlaps(other) for network in networks for other in others)


def list_idle_findings(
    hosts: Mapping[str, Facts], ends: Mapping[str, Endpoint], others: Iterable[Finding]
) -> Iterator[Finding]:
    """Yield the finding of idle ports, without the ports of other findings."""
    reported = {port for finding in others for port in finding.ports}
    unreported: dict[str, tuple[Interface, ...]] = {}
    for host, links in find_idle_ports(hosts, ends).items():
        names = {interface for finding_host, interface in reported if finding_host == host}
        kept_links = tuple(
            link for link in links if not names & _list_port_interfaces(link.name, hosts[host])
        )
        if kept_links:
            unreported[host] = kept_links
    if unreported:
        yield build_idle_ports_finding(unreported)


def _list_port_interfaces(interface: str, facts: Facts) -> set[str | None]:
    """Return both interfaces of this interface's QSFP port, or only itself."""
    second_functions = find_second_functions(facts.rdma)
    ports = (port for port in facts.rdma if port.interface == interface)
    return {
        interface,
        *(second_functions[port.device].interface for port in ports if port.device in second_functions),
    }


def _list_routable_networks(link: Interface) -> list[IPv4Network]:
    return [network for network in link.networks if not network.is_link_local]


def build_idle_ports_finding(idle_links: Mapping[str, tuple[Interface, ...]]) -> Finding:
    """Report unused ports; `medley link setup` configures them permanently."""
    speed = format_speed(max(link.mbit or 0 for links in idle_links.values() for link in links))
    cause = "; ".join(_describe_idle_link(host, link) for host, links in idle_links.items() for link in links)
    if len(idle_links) == 1:
        return Finding(
            f"{next(iter(idle_links))}: a fast port is up and unused ({speed})",
            cause,
            "sudo $(command -v medley) link setup  # and the same on the host at the other end of its cable",
            topic="idle",
        )
    return Finding(
        f"{' and '.join(idle_links)} have fast ports that are up and unused ({speed})",
        cause,
        "; ".join(_list_idle_fixes(idle_links)),
        topic="idle",
    )


def _describe_idle_link(host: str, link: Interface) -> str:
    if not link.addresses:
        return f"{host} {link.name} has no IPv4 address"
    if not _list_routable_networks(link):
        return f"{host} {link.name} has only a link-local address"
    addresses = ", ".join(str(address.cidr) for address in link.addresses)
    return f"{host} {link.name} has {addresses}, where no other host is"


def _list_idle_fixes(idle_links: Mapping[str, tuple[Interface, ...]]) -> Iterator[str]:
    """Yield commands: join the network of a port with an address, else let medley choose one."""
    addressed = next(
        (link for links in idle_links.values() for link in links if _list_routable_networks(link)), None
    )
    if addressed is None:
        yield f"on each of {', '.join(idle_links)}: sudo $(command -v medley) link setup"
        return
    network = _list_routable_networks(addressed)[0]
    used_addresses = {
        address.ip for links in idle_links.values() for link in links for address in link.addresses
    }
    free = (str(host_address) for host_address in network.hosts() if str(host_address) not in used_addresses)
    for host, links in idle_links.items():
        if addressed not in links:
            cidr = f"{next(free)}/{network.prefixlen}"
            setup = f"link setup --interface {links[0].name} --address {cidr}"
            yield f"on {host}: sudo $(command -v medley) {setup}"


def format_addresses(candidates: Mapping[str, Candidates]) -> str:
    """Return the addresses of each host as text, in the order of names."""
    texts = []
    for host in sorted(candidates):
        shown = ", ".join(f"{candidate.cidr} ({candidate.link.name})" for candidate in candidates[host])
        texts.append(f"{host}: {shown or 'none'}")
    return "; ".join(texts)


def list_rejections(
    group: CandidateGroup,
    chosen: Iterable[EndpointCandidate],
    best: SharedNetwork | None,
    others: list[SharedNetwork],
) -> Iterator[RejectedLink]:
    """Yield why each usable link was not used; find_endpoint_candidates rejects the others."""
    used_links = {(candidate.host, candidate.link.name) for candidate in chosen}
    for host in sorted(group.candidates):
        by_link = {candidate.link.name: candidate for candidate in reversed(group.candidates[host])}
        for name in sorted(by_link):
            if (host, name) not in used_links:
                yield RejectedLink(host, name, _explain_rejection(by_link[name], group, best, others))


def _explain_rejection(
    candidate: EndpointCandidate,
    group: CandidateGroup,
    best: SharedNetwork | None,
    networks: list[SharedNetwork],
) -> str:
    if not group.is_allowed(candidate):
        return f"you asked for {group.options.find_link(candidate.host)}"
    other_candidates = {
        host: group.candidates[host] for host in sorted(group.candidates) if host != candidate.host
    }
    if same := [
        host for host, on_host in other_candidates.items() if candidate.ip in {other.ip for other in on_host}
    ]:
        return f"{', '.join(same)} has the same address {candidate.ip}"
    absent = [
        host for host, on_host in other_candidates.items() if not any(map(candidate.can_reach, on_host))
    ]
    if len(absent) == len(other_candidates):
        return f"no other host of the group is in {candidate.network}"
    if absent:
        return f"{', '.join(absent)} is not in {candidate.network}"
    network = next((network for network in networks if candidate in network.candidates), None)
    return (
        _explain_second_link(candidate, best, networks)
        if network is None
        else _explain_worse_network(candidate, network, best)
    )


def _explain_second_link(
    candidate: EndpointCandidate, best: SharedNetwork | None, networks: list[SharedNetwork]
) -> str:
    """Return why another link of this host is used in the candidate's network."""
    all_candidates = (
        other for network in ([best] if best else []) + networks for other in network.candidates
    )
    first = next(
        (other for other in all_candidates if other.host == candidate.host and other.ip in candidate.network),
        None,
    )
    if first is None:
        return f"two links of one host are in {candidate.network}, and each may answer for the other"
    if not candidate.is_wired:
        return f"Wi-Fi, and {first.link.name} is a cabled link to the same network"
    return f"{first.link.name} is in {candidate.network} too, and is used"


def _explain_worse_network(
    candidate: EndpointCandidate, network: SharedNetwork, best: SharedNetwork | None
) -> str:
    """Return why the best network is used instead of this one."""
    if best is None:
        return f"{network.network} is not used"
    if not network.is_wired and best.is_wired:
        wifi_hosts = ", ".join(other.host for other in network.candidates if not other.is_wired)
        wifi = "Wi-Fi" if not candidate.is_wired else f"{wifi_hosts} uses Wi-Fi"
        return f"{wifi}, and all hosts have a cabled link in {best.network}"
    if network.mbit < best.mbit:
        slow = min(network.candidates, key=lambda candidate: candidate.mbit)
        better = f"{best.network} {format_speed(best.mbit)}"
        return f"{network.network} has {format_speed(slow.mbit)} at {slow.host}, {better}"
    if best.has_rdma and not network.has_rdma:
        return f"as fast as {best.network}, which can do RDMA on every host"
    return f"no faster than {best.network}, which has a larger MTU or a lower address"
