"""A firewall is what closes our ports to all but the cluster's wires, as text for the program that keeps it.

Only the first packet of a TCP connection is looked at: so a session that is open stays open, no wire pays for
the tracking of its connections, and a kernel without it (a Jetson's) can do it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv4Network, ip_network
from typing import Literal, get_args

from medley.facts.net import Link, Net
from medley.problem import Problem
from medley.ray import Ports

Program = Literal["nftables", "ufw", "iptables"]
PROGRAMS: tuple[Program, ...] = get_args(Program)
SSH = 22
Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Wire:
    """Who may reach us: by the interface, from these networks; from every network where none is named."""

    interface: str | None
    networks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rules:
    wires: tuple[Wire, ...]
    closed: Ranges
    """To all others; in order, with no overlap."""
    open: tuple[int, ...] = (SSH,)
    """To everyone."""


def wires(asked: Iterable[str], net: Net) -> tuple[Wire, ...]:
    """What --link names: an interface or an address of this host, a network, or another host's address."""
    return tuple(dict.fromkeys(wire for each in asked for wire in _wires(each, net)))


def _wires(asked: str, net: Net) -> tuple[Wire, ...]:
    links = [link for link in net.links if link.kind != "loopback"]
    named = [link for link in links if asked == link.name or asked in {each.ip for each in link.addresses}]
    if named:
        return tuple(Wire(link.name, tuple(map(str, networks(link)))) for link in named)
    try:
        network = ip_network(asked, strict=False)
    except ValueError as error:
        raise Problem(
            f"{asked} is no link",
            cause="neither an interface of this host nor an address or a network",
            fix=f"--link {next((link.name for link in links if link.addresses), '192.168.100.0/24')}",
        ) from error
    near = [link.name for link in links if any(network.overlaps(each) for each in networks(link))]
    return tuple(Wire(name, (str(network),)) for name in (near or (None,)))


def networks(link: Link) -> tuple[IPv4Network, ...]:
    return tuple(IPv4Interface(f"{each.ip}/{each.prefix}").network for each in link.addresses)


def text(program: Program, rules: Rules, *, undo: bool) -> str:
    """What to run as root: a script of nft's, or lines for a shell. To run it again changes nothing."""
    match program:
        case "nftables":
            lines = _NOTHING_OF_NFTABLES if undo else tuple(_nftables(rules))
        case "ufw":
            lines = tuple(f"ufw delete {each}" for each in _ufw(rules)) if undo else tuple(_of_ufw(rules))
        case "iptables":
            lines = _NOTHING_OF_IPTABLES if undo else tuple(_iptables(rules))
    return "".join(f"{line}\n" for line in lines)


def ssh_ports(environments: Iterable[Mapping[str, str]]) -> set[int]:
    """Where ssh is to stay open: its usual port, and those by which somebody is logged in."""
    said = (each.get("SSH_CONNECTION", "").split() for each in environments)
    return {SSH, *(int(words[-1]) for words in said if words and words[-1].isdecimal())}


# To delete what is not there would be an error.
_NOTHING_OF_NFTABLES: tuple[str, ...] = ("table inet medley", "delete table inet medley")


def _nftables(rules: Rules) -> Iterator[str]:
    yield from _NOTHING_OF_NFTABLES
    yield "table inet medley {"
    yield "\tchain input {"
    yield "\t\ttype filter hook input priority 0; policy accept;"
    yield '\t\tiifname "lo" accept'
    for wire in rules.wires:
        yield from (f"\t\t{_matched(wire, each)}accept" for each in wire.networks or ("",))
    yield f"\t\ttcp dport {{ {', '.join(map(str, rules.open))} }} accept"
    yield f"\t\ttcp dport {{ {', '.join(_shown(rules.closed, '-'))} }} tcp flags & (syn | ack) == syn drop"
    yield "\t}"
    yield "}"


def _matched(wire: Wire, network: str) -> str:
    interface = f'iifname "{wire.interface}" ' if wire.interface else ""
    family = "ip6" if ":" in network else "ip"
    return interface + (f"{family} saddr {network} " if network else "")


def _shown(ranges: Ranges, between: str) -> Iterator[str]:
    for first, last in ranges:
        yield str(first) if first == last else f"{first}{between}{last}"


def _of_ufw(rules: Rules) -> Iterator[str]:
    """Each goes before what is there, so that the last stands first: what is open, then the wires."""
    closed, *wires_ = _ufw(rules)
    yield "# This holds once ufw is on: sudo ufw enable"
    yield f"ufw prepend {closed} comment medley"
    yield from (f"ufw prepend {each} comment medley" for each in wires_)
    yield from (f"ufw prepend allow {each}/tcp" for each in rules.open)


def _ufw(rules: Rules) -> Iterator[str]:
    """Without what is open, which may have been so before us."""
    yield f"deny proto tcp to any port {','.join(_shown(rules.closed, ':'))}"
    for wire in rules.wires:
        by = f"allow in on {wire.interface}" if wire.interface else "allow"
        yield from (f"{by} from {each}" for each in wire.networks or ("any",))


_NOTHING_OF_IPTABLES = tuple(
    f"{program} -w {words} 2>/dev/null || true"
    for program in ("iptables", "ip6tables")
    for words in ("-D INPUT -j MEDLEY", "-F MEDLEY", "-X MEDLEY")
)


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
        yield from (f"{add} -p tcp --dport {each} -j RETURN" for each in rules.open)
        yield from (f"{add} -p tcp --syn --dport {each} -j DROP" for each in _shown(rules.closed, ":"))
        yield f"{program} -w -C INPUT -j MEDLEY 2>/dev/null || {program} -w -I INPUT -j MEDLEY"


APPLIED = {"nftables": "sudo nft -f -", "ufw": "sudo sh -e", "iptables": "sudo sh -e"}
"""What the text is piped into."""


def notes(rules: Rules, net: Net, listening: Iterable[int]) -> Iterator[str]:
    """What to know before it is applied; `listening`: ports of this host that others reach now."""
    out = {route.interface for route in net.routes if route.destination == "default"}
    for wire in rules.wires:
        where = ", ".join(wire.networks) or "everywhere"
        if wire.interface in out:
            yield (
                f"{wire.interface} also leads out of this host, and all of {where} will reach these ports; "
                "to let in the cluster's hosts alone name each: --link ADDRESS"
            )
        if wire.interface is None:
            yield f"no link of this host is in {where}: who may come is told by the sender's address alone"
    ours = set(range(Ports().first, Ports().last + 1))
    for port in sorted(set(listening) - set(rules.open) - ours):
        if any(first <= port <= last for first, last in rules.closed if last - first > _MANY):
            yield f"something listens at port {port}, which this closes; if it is not medley's: --open {port}"


_MANY = 1000
"""So large a range is not ours alone: the kernel gives its ports to anyone."""
