"""Shared network, links, subnets, MTU, GIDs."""

from collections.abc import Iterator
from ipaddress import IPv4Network

from medley.doctor.checks import ALL, UNASKED, Case, Check, Rule, State, Subject, case_check, host_check
from medley.doctor.checks import ExaminedHost as Host
from medley.errors import Finding
from medley.host.facts.network import Interface
from medley.network.fabric.per_host import alone
from medley.network.fabric.subgroups import Subgroup, faster_subgroups
from medley.network.fabric.types import speed_text

_TRANSPORTS = {"tcp": "TCP", "rdma": "RDMA", "none": "none needed"}
_WIRES = {"ethernet", "infiniband", "bond"}
_USUAL_MTU = 1500


@case_check("wire", "shared network")
def common(case: Case) -> Iterator[Check]:
    """One wire that all share, and one transport."""
    for name, problem in case.apart.items():
        yield Subject(name).failed(problem)
    for host in case.hosts.values():
        if not host.facts.net.links:
            yield host.unknown("its list of links is missing")
    if case.fabric is None:
        if not case.group:
            yield ALL.ok("one host needs no network")
        return
    for name, end in case.fabric.ends.items():
        speed = speed_text(end.mbit) if end.mbit else "speed unknown"
        gid = f", GID {end.gid_index}" if end.gid_index is not None else ""
        rdma = f", RDMA by {' and '.join(port.device for port in end.ports)}{gid}" if end.ports else ""
        yield Subject(name).ok(f"{end.interface} {end.address}, {speed}{rdma}")
    yield ALL.ok(f"{_TRANSPORTS[case.fabric.transport]}: {'; '.join(case.fabric.why)}")
    yield from (ALL.ok(str(part)) for part in _subgroups(case)[0])


@case_check("down", "links that are down")
def down(case: Case) -> Iterator[Check]:
    """A link that has an address where others are, and no carrier."""
    for host in case.hosts.values():
        links = host.facts.net.links
        idle = [link for link in links if not link.up and link.kind in _WIRES]
        lost = [(link, where) for link in idle if (where := _shared(link, case, host.name))]
        for link, where in lost:
            yield host.wrong(
                f"{link.name} is down, or its cable is unplugged",
                cause=f"it has {where}, where {_others(where, case, host.name)} also has an address",
                fix=host.mend("ip", "link", "set", link.name, "up", root=True),
            )
        if not lost:
            names = [link.name for link in links if link.up and link.kind not in {"loopback", "container"}]
            yield host.ok(f"{', '.join(names) or 'no link'} {'are' if len(names) > 1 else 'is'} up")


def _shared(link: Interface, case: Case, name: str) -> str | None:
    """The address of it that is in a network of another host's, or in the one that is wished for."""
    wish = case.wishes.link_of(name)
    for at in link.addresses:
        if wish in {link.name, at.ip, str(at.at.network)} or _others(str(at.at), case, name):
            return str(at.at)
    return None


def _others(address: str, case: Case, name: str) -> str:
    network = IPv4Network(address, strict=False)
    return ", ".join(
        other
        for other, host in case.hosts.items()
        if other != name
        for link in host.facts.net.links
        if link.kind in _WIRES and any(at.at.network == network for at in link.addresses)
    )


@case_check("twice", "duplicate addresses")
def twice(case: Case) -> Iterator[Check]:
    """No two hosts have one address on a wire; what a maker gives to every gadget is no matter."""
    places: dict[str, list[str]] = {}
    for name, host in case.hosts.items():
        for link in host.facts.net.links:
            for each in link.addresses if link.kind in _WIRES and link.up else ():
                places.setdefault(each.ip, []).append(f"{name} ({link.name})")
    shared = {address: at for address, at in places.items() if len(at) > 1}
    for address, at in shared.items():
        yield ALL.wrong(
            f"{address} is the address of {' and '.join(at)}",
            cause="packets to this address reach whichever host answers first",
            fix="medley link setup --dry-run  # on one of them; --number gives it another",
        )
    if len(case.hosts) > 1 and not shared:
        yield ALL.ok("every address belongs to one host")


def _fabric_check(
    name: str, looks_at: str, *topics: str, fine: str, state: State = "better", rdma: bool = False
) -> Rule:
    """What the fabric itself finds of these topics; of those of `rdma` there is nothing to say without."""

    def found(case: Case) -> Iterator[Check]:
        clean = set(case.hosts)
        for finding in _findings(case):
            if finding.topic in topics:
                named = [host for host in case.hosts if host in finding.what]
                clean.difference_update(named)
                starts = (each for each in named if finding.what.startswith((f"{each}:", f"{each} ")))
                first = next(starts, ALL.name)
                host = ALL.name if finding.what.startswith(f"{first} and ") else first
                fix = finding.fix.removeprefix(f"on {host}: ")
                what = finding.what.removeprefix(f"{host}: ")
                yield Subject(host).report(state, what, cause=finding.cause, fix=fix)
        for host, examined in case.hosts.items():
            if host in clean and (examined.facts.rdma if rdma else len(examined.facts.net.links) > 1):
                yield examined.ok(fine)

    return Rule(name, looks_at, found)


def _subgroups(case: Case) -> tuple[tuple[Subgroup, ...], tuple[Finding, ...]]:
    if case.fabric is None:
        return (), ()
    facts = {name: case.hosts[name].facts for name in case.fabric.ends}
    return faster_subgroups(facts, case.fabric, case.wishes)


def _findings(case: Case) -> Iterator[Finding]:
    if case.fabric:
        yield from case.fabric.findings
        yield from _subgroups(case)[1]
    elif len(case.hosts) == 1 and not case.apart:
        for name, host in case.hosts.items():
            yield from alone(name, host.facts, case.wishes).findings


one_subnet = _fabric_check(
    "one-subnet", "subnets of links", "subnet", state="wrong", fine="every link has its own subnet"
)
half_cage = _fabric_check(
    "half-cage",
    "both interfaces of a used port",
    "half",
    fine="no used port has an idle interface",
    rdma=True,
)
order = _fabric_check(
    "order", "order of port interfaces", "order", fine="links are paired the way NCCL pairs them", rdma=True
)
ring = _fabric_check("ring", "ring cabling", "ring", fine="every cable is in the right port", rdma=True)
pcie = _fabric_check("pcie", "PCIe lanes", "width", fine="every port has all its lanes", rdma=True)
way = _fabric_check("way", "route to other hosts", "kind", "gateway", fine="direct")
idle_port = _fabric_check("idle-port", "unused fast ports", "idle", "names", fine="none")


@case_check("mtu", "MTU")
def mtu(case: Case) -> Iterator[Check]:
    """Equal at every end of a network that is used; else mended by what sets links up to last."""
    for network in case.fabric.networks if case.fabric else ():
        ends = list(_links_in(IPv4Network(network), case))
        largest = max((link.mtu for _, link, _ in ends), default=0)
        said = ", ".join(f"{host.name} {link.name} {link.mtu}" for host, link, _ in ends)
        for host, link, address in ends:
            if link.mtu == largest:
                yield host.ok(f"{link.name} has {link.mtu}, as does every host in {network}")
                continue
            words = ("medley", "link", "setup", "--interface", link.name, "--address", address)
            yield host.wrong(
                f"{link.name} has MTU {link.mtu}, and its peers in {network} have {largest}",
                cause=f"{said}; frames above the smallest are dropped silently",
                fix=host.mend(*words, "--mtu", str(largest), unasked=("--yes",), root=True),
            )


def _links_in(network: IPv4Network, case: Case) -> Iterator[tuple[Host, Interface, str]]:
    """Of each host the link that is used there, with its address."""
    ends = case.fabric.ends if case.fabric else {}
    for name, end in ends.items():
        used = {end.interface, *end.lanes, *(port.interface for port in end.ports)}
        found = [
            (case.hosts[name], link, str(at.at))
            for link in case.hosts[name].facts.net.links
            for at in link.addresses
            if link.name in used and at.at.network == network
        ]
        yield from found[-1:]


@case_check("link-speed", "link speeds of equal hosts")
def link_speed(case: Case) -> Iterator[Check]:
    """Hosts of one kind have links of one speed in a network that is used."""
    for network in case.fabric.networks if case.fabric else ():
        used = _links_in(IPv4Network(network), case)
        # Computers without a GPU, and those of no known kind, have nothing in common.
        ends = [(host, link, link.mbit) for host, link, _ in used if link.mbit and host.gpu_kind]
        for host, link, mbit in ends:
            most, best = max((its, other.name) for other, _, its in ends if other.kind == host.kind)
            if mbit == most:
                yield host.ok(f"{link.name} has {speed_text(mbit)}")
                continue
            yield host.better(
                f"{link.name} has {speed_text(mbit)}, and {best}, of the same kind, has {speed_text(most)}",
                cause=f"in {network}: a bad cable, a slower port of the switch, or a slower card",
                fix=f"reseat or replace the cable, or use another port; then: ethtool {link.name}",
            )


@case_check("boot-mtu", "MTU after a reboot")
def boot_mtu(case: Case) -> Iterator[Check]:
    """Whether the MTU of a used link is one that something sets at each boot."""
    for name, host in case.hosts.items():
        settings = host.health.settings
        end = case.fabric.ends.get(name) if case.fabric else None
        if settings is None:
            yield host.unknown(UNASKED)
        elif end is None or end.interface == "lo":
            continue
        elif end.mtu == _USUAL_MTU or end.mtu in settings.kept_mtus:
            yield host.ok(f"{end.mtu} on {end.interface}{'' if end.mtu == _USUAL_MTU else ' is in a file'}")
        elif host.facts.software.nixos:
            yield host.unknown("NixOS keeps it in its configuration, which is not read")
        elif not settings.all_read:
            yield host.unknown("only root can read the files that set it: sudo $(command -v medley) doctor")
        elif not settings.keeps:
            yield host.unknown("netplan, systemd, NetworkManager and ifupdown have no files here")
        else:
            links = [link for link in host.facts.net.links if link.name == end.interface]
            at = (str(at.at) for link in links for at in link.addresses if at.ip == end.address)
            yield host.better(
                f"MTU {end.mtu} of {end.interface} is lost at the next boot",
                cause="it is not in any file of netplan, systemd, NetworkManager or ifupdown",
                fix=f"sudo $(command -v medley) link setup --interface {end.interface} "
                f"--address {next(at, end.address)} --mtu {end.mtu}",
            )


@host_check("gid", "RoCE GIDs")
def gids(host: Host) -> Iterator[Check]:
    """Every active RoCE port has the RoCE v2 GID of the address on its interface."""
    addresses = {link.name: [at.ip for at in link.addresses] for link in host.facts.net.links}
    rows = []
    for port in host.facts.rdma:
        own = addresses.get(port.interface or "", [])
        if not (port.active and port.link_layer == "Ethernet" and own):
            continue
        fit = [gid.index for gid in port.gids if gid.type == "RoCE v2" and gid.address in own]
        if fit:
            rows.append(f"{port.device} {fit[0]}")
            continue
        seen = ", ".join(f"{gid.index} {gid.type}" for gid in port.gids) or "none"
        yield host.wrong(
            f"{port.device} has no RoCE v2 GID of an IPv4 address",
            cause=f"{port.interface} has {', '.join(own)}; the GIDs are {seen}",
            fix=f"sudo ip link set {port.interface} down; sudo ip link set {port.interface} up",
        )
    if rows:
        yield host.ok(f"row {', '.join(rows)}; read again at every start, because rows move")
