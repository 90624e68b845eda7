"""Write nftables, ufw and iptables rules that close medley's ports to other hosts.

The rules match only the first packet of a TCP connection, so open sessions stay open, and a kernel without
connection tracking (a Jetson's) can apply them. Only a limit of connections needs it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Literal

from medley.errors import Problem
from medley.host.facts.network import Net
from medley.network.ports import RayPorts

Program = Literal["nftables", "ufw", "iptables"]
APPLIED = {"nftables": "sudo nft -f -", "ufw": "sudo sh -e", "iptables": "sudo sh -e"}
SSH = 22
_IPV4 = 4
_MANY = 1000
"""A range this large is not only medley's: the kernel gives its ports to any program."""
Ranges = tuple[tuple[int, int], ...]
_FAMILIES = {4: "ip saddr", 6: "ip6 saddr & ffff:ffff:ffff:ffff::"}
"""How nftables finds the sender; one IPv6 host has the addresses of a /64 network."""
# Deleting a missing table would be an error.
_NOTHING_OF_NFTABLES: tuple[str, ...] = ("table inet medley", "delete table inet medley")
_NOTHING_OF_IPTABLES = tuple(
    f"{program} -w {words} 2>/dev/null || true"
    for program in ("iptables", "ip6tables")
    for words in ("-D INPUT -j MEDLEY", "-F MEDLEY", "-X MEDLEY")
)


@dataclass(frozen=True)
class ClusterInterface:
    """Hosts that may reach this one: through the interface, from these networks, or from all."""

    interface: str | None
    networks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rules:
    wires: tuple[ClusterInterface, ...]
    closed: Ranges
    """In order, without overlap."""
    open: tuple[int, ...] = (SSH,)
    limited: tuple[int, ...] = ()
    """Open ports at which an address outside may have `most_connections`; an IPv6 /64 counts as one."""
    most_connections: int = 0


def wires(asked: Iterable[str], net: Net) -> tuple[ClusterInterface, ...]:
    """Resolve --link: an interface or an address of this host, a network, or another host's address."""
    return tuple(dict.fromkeys(wire for each in asked for wire in _wires(each, net)))


def _wires(asked: str, net: Net) -> tuple[ClusterInterface, ...]:
    links = [link for link in net.links if link.kind != "loopback"]
    named = [link for link in links if asked == link.name or asked in {each.ip for each in link.addresses}]
    if named:
        return tuple(ClusterInterface(link.name, tuple(map(str, link.networks))) for link in named)
    try:
        network = ip_network(asked, strict=False)
    except ValueError as error:
        raise Problem(
            f"{asked} is not a link",
            cause="it is neither an interface of this host nor an address or a network",
            fix=f"--link {next((link.name for link in links if link.addresses), '192.168.100.0/24')}",
        ) from error
    near = [link.name for link in links if any(network.overlaps(each) for each in link.networks)]
    return tuple(ClusterInterface(name, (str(network),)) for name in (near or (None,)))


def text(program: Program, rules: Rules, *, undo: bool) -> str:
    """Write the text to run as root: an nft script, or lines for a shell; both are idempotent."""
    match program:
        case "nftables":
            lines = _NOTHING_OF_NFTABLES if undo else tuple(_nftables(rules))
        case "ufw":
            lines = tuple(f"ufw delete {each}" for each in _ufw(rules)) if undo else tuple(_of_ufw(rules))
        case "iptables":
            lines = _NOTHING_OF_IPTABLES if undo else tuple(_iptables(rules))
    return "".join(f"{line}\n" for line in lines)


def ssh_ports(environments: Iterable[Mapping[str, str]]) -> set[int]:
    """Return the ports that stay open for ssh: 22, and those of open sessions."""
    said = (each.get("SSH_CONNECTION", "").split() for each in environments)
    return {SSH, *(int(words[-1]) for words in said if words and words[-1].isdecimal())}


def _nftables(rules: Rules) -> Iterator[str]:
    yield from _NOTHING_OF_NFTABLES
    yield "table inet medley {"
    for number in _FAMILIES if rules.limited else ():
        yield f"\tset strangers{number} {{ type ipv{number}_addr; size 65535; flags dynamic; }}"
    yield "\tchain input {"
    yield "\t\ttype filter hook input priority 0; policy accept;"
    yield '\t\tiifname "lo" accept'
    for wire in rules.wires:
        interface = f'iifname "{wire.interface}" ' if wire.interface else ""
        for each in wire.networks:
            yield f"\t\t{interface}{'ip6' if ':' in each else 'ip'} saddr {each} accept"
        if not wire.networks:
            yield f"\t\t{interface}accept"
    if rules.limited:
        first = f"\t\ttcp dport {{ {', '.join(map(str, rules.limited))} }} tcp flags & (syn | ack) == syn"
        for number, source in _FAMILIES.items():
            over = f"{source} ct count over {rules.most_connections}"
            yield f"{first} add @strangers{number} {{ {over} }} drop"
    yield f"\t\ttcp dport {{ {', '.join(map(str, rules.open))} }} accept"
    yield f"\t\ttcp dport {{ {', '.join(_shown(rules.closed, '-'))} }} tcp flags & (syn | ack) == syn drop"
    yield "\t}"
    yield "}"


def _shown(ranges: Ranges, between: str) -> Iterator[str]:
    for first, last in ranges:
        yield str(first) if first == last else f"{first}{between}{last}"


def _of_ufw(rules: Rules) -> Iterator[str]:
    """Prepend the rules, so that the last comes first: open ports, then links."""
    closed, *wires_ = _ufw(rules)
    yield "# Takes effect once ufw is enabled: sudo ufw enable"
    yield f"ufw prepend {closed} comment medley"
    yield from (f"ufw prepend {each} comment medley" for each in wires_)
    yield from (f"ufw prepend allow {each}/tcp" for each in rules.open)


def _ufw(rules: Rules) -> Iterator[str]:
    """Yield the rules without the open ports, which the user may have opened before."""
    yield f"deny proto tcp to any port {','.join(_shown(rules.closed, ':'))}"
    for wire in rules.wires:
        by = f"allow in on {wire.interface}" if wire.interface else "allow"
        yield from (f"{by} from {each}" for each in wire.networks or ("any",))


def _iptables(rules: Rules) -> Iterator[str]:
    for program, version in (("iptables", 4), ("ip6tables", 6)):
        yield f"{program} -w -N MEDLEY 2>/dev/null || {program} -w -F MEDLEY"
        add = f"{program} -w -A MEDLEY"
        yield f"{add} -i lo -j RETURN"
        for wire in rules.wires:
            by = f" -i {wire.interface}" if wire.interface else ""
            fit = [each for each in wire.networks if ip_network(each).version == version]
            sources = [f" -s {each}" for each in fit] if wire.networks else [""]
            yield from (f"{add}{by}{each} -j RETURN" for each in sources)
        above = f"-m connlimit --connlimit-above {rules.most_connections} --connlimit-mask"
        mask = 32 if version == _IPV4 else 64
        yield from (f"{add} -p tcp --syn --dport {each} {above} {mask} -j DROP" for each in rules.limited)
        yield from (f"{add} -p tcp --dport {each} -j RETURN" for each in rules.open)
        yield from (f"{add} -p tcp --syn --dport {each} -j DROP" for each in _shown(rules.closed, ":"))
        yield f"{program} -w -C INPUT -j MEDLEY 2>/dev/null || {program} -w -I INPUT -j MEDLEY"


def notes(rules: Rules, net: Net, listening: Iterable[int]) -> Iterator[str]:
    for wire in rules.wires:
        where = ", ".join(wire.networks) or "everywhere"
        if wire.interface in net.default_links:
            yield (
                f"{wire.interface} has the default route, so all of {where} can reach these ports; "
                "to allow only the cluster's hosts, name each: --link ADDRESS"
            )
        if wire.interface is None:
            yield f"no link of this host is in {where}: the rules match only the sender's address"
    ours = set(range(RayPorts.first, RayPorts.last + 1))
    for port in sorted(set(listening) - set(rules.open) - ours):
        if any(first <= port <= last for first, last in rules.closed if last - first > _MANY):
            yield f"a program listens on port {port}, which this closes; if it is not medley's: --open {port}"
