"""A way is one address of one link by which others may reach a host; every other link has its reason."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, ip_network

from medley.fabric.shapes import Rejected, Wishes
from medley.fabric.speed import link_mbit
from medley.facts import Facts
from medley.facts.net import Address, Link
from medley.facts.rdma import Gid, RdmaPort
from medley.problem import Problem

_REAL = ("ethernet", "bond", "vlan", "bridge", "infiniband", "wifi")
_NEVER = {
    "loopback": "the loopback reaches this host alone",
    "container": "it belongs to containers, and has the like on every host",
    "tunnel": "a tunnel (VPN) goes the long way round; name it with --link if it is meant",
    "gadget": "Jetson's USB network, with the same address on every Jetson",
    "virtual": "a virtual interface, which no cable ends at",
}


@dataclass(frozen=True)
class Way:
    host: str
    link: Link
    ip: IPv4Address
    network: IPv4Network
    secondary: bool
    mbit: int
    """What it really carries; 0 where nobody says."""
    port: RdmaPort | None
    """The RDMA port that speaks for this address."""
    gid_index: int | None
    no_rdma: str
    """Why there is no such port."""

    @property
    def wired(self) -> bool:
        return self.link.kind != "wifi"

    @property
    def rank(self) -> tuple[bool, bool, int, bool, int, int, str]:
        """The greater the better, and never equal for two ways of a host."""
        return (
            not self.secondary,
            self.wired,
            self.mbit,
            self.port is not None,
            self.link.mtu,
            -int(self.ip),
            self.link.name,
        )

    def meets(self, other: "Way") -> bool:
        """Both hold the other for a neighbour on their network."""
        return self.ip != other.ip and other.ip in self.network and self.ip in other.network


@dataclass(frozen=True)
class Group:
    """The hosts that are to talk, what is wished, and the NCCL they have."""

    hosts: Mapping[str, Facts]
    ways: Mapping[str, tuple[Way, ...]]
    """By host, in the order of names."""
    wishes: Wishes
    version: tuple[int, ...]

    def named(self) -> dict[str, tuple[Way, ...]]:
        """What the user named, or anything where nothing was named."""
        return {host: tuple(way for way in self.ways[host] if self.wished(way)) for host in self.ways}

    def wished(self, way: Way) -> bool:
        wish = self.wishes.link_of(way.host)
        return wish is None or _matches(way.link, way.ip, wish)


def ways(host: str, facts: Facts, wishes: Wishes) -> tuple[tuple[Way, ...], tuple[Rejected, ...]]:
    """All ways to a host in the order of names and addresses, and why its other links are none."""
    wish, found, rejected = wishes.link_of(host), [], []
    for link in sorted(facts.net.links, key=lambda link: link.name):
        why = _unfit(link, wishes, forced=wish is not None and _meant(link, wish))
        if why:
            rejected.append(Rejected(host, link.name, why))
        else:
            found += [_way(host, link, address, facts) for address in sorted(link.addresses, key=_order)]
    if wish is not None and not any(_matches(way.link, way.ip, wish) for way in found):
        raise _no_such(host, wish, facts, rejected)
    return tuple(found), tuple(rejected)


def _unfit(link: Link, wishes: Wishes, *, forced: bool) -> str | None:
    if link.name in wishes.exclude:
        return "you excluded it"
    if link.kind == "loopback" or (link.kind not in _REAL and not forced):
        return _NEVER.get(link.kind, f"its kind ({link.kind}) is not known")
    if not link.up:
        return "it is down, or no cable is in it"
    if not link.addresses:
        return "it has no IPv4 address"
    return None


def _way(host: str, link: Link, address: Address, facts: Facts) -> Way:
    at = IPv4Interface(f"{address.ip}/{address.prefix}")
    port, gid, why = _port(link, address.ip, facts)
    return Way(
        host=host,
        link=link,
        ip=at.ip,
        network=at.network,
        secondary=address.secondary,
        mbit=link_mbit(link, facts.rdma) or 0,
        port=port,
        gid_index=gid.index if gid else None,
        no_rdma=why,
    )


def _port(link: Link, ip: str, facts: Facts) -> tuple[RdmaPort | None, Gid | None, str]:
    """The port, the row of its GID table, and the reason where there is none."""
    why = f"{link.name} has no RDMA device"
    for port in sorted(facts.rdma, key=lambda port: (port.pci or "", port.device)):
        gid = _gid(port, link, ip)
        if port.interface != link.name and gid is None:
            continue
        if not port.active:
            why = f"{port.device} ({link.name}) is not ACTIVE"
        elif port.link_layer == "InfiniBand":
            return port, None, ""
        elif gid is None:
            why = f"{port.device} has no RoCE v2 GID of {ip} on {link.name}"
        else:
            return port, gid, ""
    return None, None, why


def _gid(port: RdmaPort, link: Link, ip: str) -> Gid | None:
    """Type, address and interface must all fit: the fe80 row is RoCE v2 too, and leads nowhere."""
    for gid in sorted(port.gids, key=lambda gid: gid.index):
        on = gid.interface or port.interface
        if gid.type == "RoCE v2" and gid.address == ip and on == link.name:
            return gid
    return None


def _order(address: Address) -> tuple[bool, int]:
    return address.secondary, int(IPv4Address(address.ip))


def _meant(link: Link, wish: str) -> bool:
    """A link that is named itself, or by its address; a network does not reach out for tunnels."""
    return wish == link.name or wish in {address.ip for address in link.addresses}


def _matches(link: Link, ip: IPv4Address, wish: str) -> bool:
    return wish in (link.name, str(ip)) or ("/" in wish and ip in _network(wish))


def _network(wish: str) -> IPv4Network:
    try:
        network = ip_network(wish, strict=False)
    except ValueError as error:
        raise Problem(
            f"{wish} is no network",
            cause=str(error),
            fix="give an interface, an address, or a network such as 192.168.100.0/24",
        ) from error
    if isinstance(network, IPv4Network):
        return network
    raise Problem(
        f"{wish} is an IPv6 network",
        cause="NCCL, Gloo and Ray are bound to IPv4 addresses here",
        fix="name an IPv4 network, as in 192.168.100.0/24: ip -brief -4 address",
    )


def _no_such(host: str, wish: str, facts: Facts, rejected: list[Rejected]) -> Problem:
    reasons = {each.interface: each.why for each in rejected}
    return Problem(
        f"{host} has no link {wish} that others could reach",
        cause="; ".join(_said(facts, reasons)) or "it has no interface at all",
        fix=f"on {host}: ip -brief address; then name one of these, or bring that link up",
    )


def _said(facts: Facts, reasons: dict[str, str]) -> Iterator[str]:
    for link in sorted(facts.net.links, key=lambda link: link.name):
        shown = ", ".join(f"{each.ip}/{each.prefix}" for each in link.addresses) or "no address"
        yield f"{link.name} {shown}" + (f" ({reasons[link.name]})" if link.name in reasons else "")
