"""Check the shared network, links, subnets, MTU and GIDs."""

from collections.abc import Iterator
from ipaddress import IPv4Network

from medley.doctor.checks import (
    ALL_HOSTS,
    NOT_RECORDED,
    Check,
    Examination,
    Rule,
    State,
    Subject,
    all_hosts_check,
    host_check,
)
from medley.doctor.checks import ExaminedHost as Host
from medley.errors import Finding
from medley.host.facts.network import Interface
from medley.network.fabric.per_host import rank_host_links
from medley.network.fabric.speed import format_speed
from medley.network.fabric.subgroups import Subgroup, find_faster_subgroups

_TRANSPORT_TEXTS = {"tcp": "TCP", "rdma": "RDMA", "none": "none needed"}
_CABLE_KINDS = {"ethernet", "infiniband", "bond"}
_USUAL_MTU = 1500


@all_hosts_check("wire", "shared network")
def shared_network(examination: Examination) -> Iterator[Check]:
    """Report the network and the transport that all hosts share, and subgroups with a faster one."""
    for name, problem in examination.network_problems.items():
        yield Subject(name).report_problem(problem)
    for host in examination.hosts.values():
        if not host.facts.net.links:
            yield host.report_unknown("its list of links is missing")
    if examination.fabric is None:
        if not examination.has_several_hosts:
            yield ALL_HOSTS.report_ok("one host needs no network")
        return
    for name, end in examination.fabric.endpoints.items():
        speed = format_speed(end.mbit) if end.mbit else "speed unknown"
        gid = f", GID {end.gid_index}" if end.gid_index is not None else ""
        rdma = f", RDMA by {' and '.join(port.device for port in end.ports)}{gid}" if end.ports else ""
        yield Subject(name).report_ok(f"{end.interface} {end.address}, {speed}{rdma}")
    yield ALL_HOSTS.report_ok(
        f"{_TRANSPORT_TEXTS[examination.fabric.transport]}: {'; '.join(examination.fabric.why)}"
    )
    yield from (ALL_HOSTS.report_ok(str(part)) for part in _find_subgroups(examination)[0])


@all_hosts_check("down", "links that are down")
def down_links(examination: Examination) -> Iterator[Check]:
    """Find links without a carrier that have an address in a network of other hosts."""
    for host in examination.hosts.values():
        links = host.facts.net.links
        idle_links = [link for link in links if not link.up and link.kind in _CABLE_KINDS]
        lost_links = [
            (link, address)
            for link in idle_links
            if (address := _find_shared_address(link, examination, host.name))
        ]
        for link, address in lost_links:
            peers = _list_hosts_in_network(address, examination, host.name)
            yield host.report_wrong(
                f"{link.name} is down, or its cable is unplugged",
                cause=f"it has {address}, where {peers} also has an address",
                fix=host.build_fix("ip", "link", "set", link.name, "up", needs_root=True),
            )
        if not lost_links:
            names = [link.name for link in links if link.up and link.kind not in {"loopback", "container"}]
            yield host.report_ok(f"{', '.join(names) or 'no link'} {'are' if len(names) > 1 else 'is'} up")


def _find_shared_address(link: Interface, examination: Examination, name: str) -> str | None:
    """Return the link's address in a network of another host, or in the one that the user chose."""
    choice = examination.network_options.find_link(name)
    for address in link.addresses:
        text = str(address.cidr)
        is_chosen = choice in {link.name, address.ip, str(address.cidr.network)}
        if is_chosen or _list_hosts_in_network(text, examination, name):
            return text
    return None


def _list_hosts_in_network(address: str, examination: Examination, excluded: str) -> str:
    """List in a text the other hosts with a cabled link in the network of this address, as 10.0.0.1/24."""
    network = IPv4Network(address, strict=False)
    names = [
        name
        for name, host in examination.hosts.items()
        for link in host.facts.net.links
        if name != excluded and link.kind in _CABLE_KINDS and _is_in_network(link, network)
    ]
    return ", ".join(names)


def _is_in_network(link: Interface, network: IPv4Network) -> bool:
    return any(address.cidr.network == network for address in link.addresses)


@all_hosts_check("twice", "duplicate addresses")
def duplicate_addresses(examination: Examination) -> Iterator[Check]:
    """Find addresses that two hosts have; USB gadgets, whose makers give all the same one, do not count."""
    places: dict[str, list[str]] = {}
    for name, host in examination.hosts.items():
        for link in host.facts.net.links:
            for address in link.addresses if link.kind in _CABLE_KINDS and link.up else ():
                places.setdefault(address.ip, []).append(f"{name} ({link.name})")
    duplicates = {ip: owners for ip, owners in places.items() if len(owners) > 1}
    for ip, owners in duplicates.items():
        yield ALL_HOSTS.report_wrong(
            f"{ip} is the address of {' and '.join(owners)}",
            cause="packets to this address reach whichever host answers first",
            fix="medley link setup --dry-run  # on one of them; --number gives it another",
        )
    if len(examination.hosts) > 1 and not duplicates:
        yield ALL_HOSTS.report_ok("every address belongs to one host")


def _build_fabric_rule(
    name: str, topic: str, *topics: str, summary: str, state: State = "better", needs_rdma: bool = False
) -> Rule:
    """Build a rule from the fabric's findings about `topics`; hosts without findings get `summary`.

    A rule that `needs_rdma` says nothing about hosts without RDMA devices.
    """

    def run(examination: Examination) -> Iterator[Check]:
        clean_hosts = set(examination.hosts)
        for finding in _list_findings(examination):
            if finding.topic in topics:
                names = [name for name in examination.hosts if name in finding.what]
                clean_hosts.difference_update(names)
                host_name = _find_subject(finding, names)
                fix = finding.fix.removeprefix(f"on {host_name}: ")
                title = finding.what.removeprefix(f"{host_name}: ")
                yield Subject(host_name).report(state, title, cause=finding.cause, fix=fix)
        for host in examination.hosts.values():
            is_concerned = host.facts.rdma if needs_rdma else len(host.facts.net.links) > 1
            if host.name in clean_hosts and is_concerned:
                yield host.report_ok(summary)

    return Rule(name, topic, run)


def _find_subject(finding: Finding, names: list[str]) -> str:
    """Return the host that the finding's text begins with, or ALL_HOSTS_NAME if with two or none."""
    for name in names:
        if finding.what.startswith((f"{name}:", f"{name} ")):
            return ALL_HOSTS.name if finding.what.startswith(f"{name} and ") else name
    return ALL_HOSTS.name


def _find_subgroups(examination: Examination) -> tuple[tuple[Subgroup, ...], tuple[Finding, ...]]:
    if examination.fabric is None:
        return (), ()
    facts = {name: examination.hosts[name].facts for name in examination.fabric.endpoints}
    return find_faster_subgroups(facts, examination.fabric, examination.network_options)


def _list_findings(examination: Examination) -> Iterator[Finding]:
    if examination.fabric:
        yield from examination.fabric.findings
        yield from _find_subgroups(examination)[1]
    elif len(examination.hosts) == 1 and not examination.network_problems:
        for name, host in examination.hosts.items():
            yield from rank_host_links(name, host.facts, examination.network_options).findings


one_subnet = _build_fabric_rule(
    "one-subnet", "subnets of links", "subnet", state="wrong", summary="every link has its own subnet"
)
half_cage = _build_fabric_rule(
    "half-cage",
    "both interfaces of a used port",
    "half",
    summary="no used port has an idle interface",
    needs_rdma=True,
)
interface_order = _build_fabric_rule(
    "order",
    "order of port interfaces",
    "order",
    summary="links are paired the way NCCL pairs them",
    needs_rdma=True,
)
ring_cabling = _build_fabric_rule(
    "ring", "ring cabling", "ring", summary="every cable is in the right port", needs_rdma=True
)
pcie_lanes = _build_fabric_rule(
    "pcie", "PCIe lanes", "width", summary="every port has all its lanes", needs_rdma=True
)
route = _build_fabric_rule("way", "route to other hosts", "kind", "gateway", summary="direct")
idle_port = _build_fabric_rule("idle-port", "unused fast ports", "idle", "names", summary="none")


@all_hosts_check("mtu", "MTU")
def mtu(examination: Examination) -> Iterator[Check]:
    """Compare the MTUs in each used network; `medley link setup` sets the largest one for good."""
    for network in examination.fabric.networks if examination.fabric else ():
        ends = list(_list_used_links(IPv4Network(network), examination))
        largest = max((link.mtu for _, link, _ in ends), default=0)
        mtus = ", ".join(f"{host.name} {link.name} {link.mtu}" for host, link, _ in ends)
        for host, link, address in ends:
            if link.mtu == largest:
                yield host.report_ok(f"{link.name} has {link.mtu}, as does every host in {network}")
                continue
            command = ("medley", "link", "setup", "--interface", link.name, "--address", address)
            yield host.report_wrong(
                f"{link.name} has MTU {link.mtu}, and its peers in {network} have {largest}",
                cause=f"{mtus}; frames above the smallest are dropped silently",
                fix=host.build_fix(
                    *command, "--mtu", str(largest), consent_arguments=("--yes",), needs_root=True
                ),
            )


def _list_used_links(network: IPv4Network, examination: Examination) -> Iterator[tuple[Host, Interface, str]]:
    """Yield for each host the link that it uses in this network, and the link's address."""
    ends = examination.fabric.endpoints if examination.fabric else {}
    for name, end in ends.items():
        used_names = {end.interface, *end.lanes, *(port.interface for port in end.ports)}
        links = [
            (examination.hosts[name], link, str(address.cidr))
            for link in examination.hosts[name].facts.net.links
            for address in link.addresses
            if link.name in used_names and address.cidr.network == network
        ]
        yield from links[-1:]


@all_hosts_check("link-speed", "link speeds of equal hosts")
def link_speed(examination: Examination) -> Iterator[Check]:
    """Compare the speeds of links that hosts of one kind have in each used network."""
    for network in examination.fabric.networks if examination.fabric else ():
        used_links = _list_used_links(IPv4Network(network), examination)
        # Computers without a GPU, and those of no known kind, have nothing in common.
        ends = [(host, link, link.mbit) for host, link, _ in used_links if link.mbit and host.gpu_kind]
        for host, link, mbit in ends:
            max_mbit, best = max((speed, peer.name) for peer, _, speed in ends if peer.kind == host.kind)
            if mbit == max_mbit:
                yield host.report_ok(f"{link.name} has {format_speed(mbit)}")
                continue
            yield host.report_improvable(
                f"{link.name} has {format_speed(mbit)}, "
                f"and {best}, of the same kind, has {format_speed(max_mbit)}",
                cause=f"in {network}: a bad cable, a slower port of the switch, or a slower card",
                fix=f"reseat or replace the cable, or use another port; then: ethtool {link.name}",
            )


@all_hosts_check("boot-mtu", "MTU after a reboot")
def boot_mtu(examination: Examination) -> Iterator[Check]:
    """Check that some file sets the MTU of each used link at boot."""
    for name, host in examination.hosts.items():
        settings = host.health.settings
        end = examination.fabric.endpoints.get(name) if examination.fabric else None
        if settings is None:
            yield host.report_unknown(NOT_RECORDED)
        elif end is None or end.interface == "lo":
            continue
        elif end.mtu == _USUAL_MTU or end.mtu in settings.kept_mtus:
            yield host.report_ok(
                f"{end.mtu} on {end.interface}{'' if end.mtu == _USUAL_MTU else ' is in a file'}"
            )
        elif host.facts.software.nixos:
            yield host.report_unknown("NixOS keeps it in its configuration, which is not read")
        elif not settings.is_all_read:
            yield host.report_unknown(
                "only root can read the files that set it: sudo $(command -v medley) doctor"
            )
        elif not settings.has_mtu_files:
            yield host.report_unknown("netplan, systemd, NetworkManager and ifupdown have no files here")
        else:
            addresses = (
                str(address.cidr)
                for link in host.facts.net.links
                for address in link.addresses
                if link.name == end.interface and address.ip == end.address
            )
            yield host.report_improvable(
                f"MTU {end.mtu} of {end.interface} is lost at the next boot",
                cause="it is not in any file of netplan, systemd, NetworkManager or ifupdown",
                fix=f"sudo $(command -v medley) link setup --interface {end.interface} "
                f"--address {next(addresses, end.address)} --mtu {end.mtu}",
            )


@host_check("gid", "RoCE GIDs")
def gids(host: Host) -> Iterator[Check]:
    """Check that every active RoCE port has the RoCE v2 GID of an address on its interface."""
    ips_by_link = {link.name: [address.ip for address in link.addresses] for link in host.facts.net.links}
    rows = []
    for port in host.facts.rdma:
        ips = ips_by_link.get(port.interface or "", [])
        if not (port.active and port.link_layer == "Ethernet" and ips):
            continue
        indexes = [gid.index for gid in port.gids if gid.type == "RoCE v2" and gid.address in ips]
        if indexes:
            rows.append(f"{port.device} {indexes[0]}")
            continue
        gid_texts = ", ".join(f"{gid.index} {gid.type}" for gid in port.gids) or "none"
        yield host.report_wrong(
            f"{port.device} has no RoCE v2 GID of an IPv4 address",
            cause=f"{port.interface} has {', '.join(ips)}; the GIDs are {gid_texts}",
            fix=f"sudo ip link set {port.interface} down; sudo ip link set {port.interface} up",
        )
    if rows:
        yield host.report_ok(f"row {', '.join(rows)}; read again at every start, because rows move")
