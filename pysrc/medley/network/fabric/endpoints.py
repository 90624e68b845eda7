"""Find a host's usable addresses, and why its other links cannot be used."""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, ip_network

from medley.errors import Problem
from medley.host.facts import Facts
from medley.host.facts.network import Address, Interface
from medley.host.facts.rdma import Gid, RdmaPort
from medley.network.fabric.types import NetworkOptions, RejectedLink, link_mbit

_REAL = ("ethernet", "bond", "vlan", "bridge", "infiniband", "wifi")
_NEVER = {
    "loopback": "the loopback reaches only this host",
    "container": "it belongs to containers, and every host has one like it",
    "tunnel": "a tunnel (VPN) is slow; to use it anyway, name it with --link",
    "gadget": "Jetson's USB network, with the same address on every Jetson",
    "virtual": "a virtual interface without a cable",
}


@dataclass(frozen=True)
class EndpointCandidate:
    host: str
    link: Interface
    ip: IPv4Address
    network: IPv4Network
    secondary: bool
    mbit: int
    port: RdmaPort | None
    gid_index: int | None
    no_rdma: str

    @property
    def wired(self) -> bool:
        return self.link.kind != "wifi"

    @property
    def rank(self) -> tuple[bool, bool, int, bool, int, int, str]:
        """A higher rank is better; no two candidates of a host are equal."""
        return (
            not self.secondary,
            self.wired,
            self.mbit,
            self.port is not None,
            self.link.mtu,
            -int(self.ip),
            self.link.name,
        )

    @property
    def at(self) -> str:
        return f"{self.ip}/{self.network.prefixlen}"

    def meets(self, other: "EndpointCandidate") -> bool:
        return self.ip != other.ip and other.ip in self.network and self.ip in other.network


Candidates = tuple[EndpointCandidate, ...]


@dataclass(frozen=True)
class Group:
    hosts: Mapping[str, Facts]
    ways: Mapping[str, Candidates]
    options: NetworkOptions

    def wanted(self) -> dict[str, Candidates]:
        return {host: tuple(way for way in self.ways[host] if self.is_wanted(way)) for host in self.ways}

    def is_wanted(self, way: EndpointCandidate) -> bool:
        wish = self.options.link_of(way.host)
        return wish is None or _matches(way.link, way.ip, wish)


def endpoint_candidates(
    host: str, facts: Facts, options: NetworkOptions
) -> tuple[Candidates, tuple[RejectedLink, ...]]:
    """Find all ways to a host, sorted by name and address, and reject its other links."""
    wish, found, rejected = options.link_of(host), [], []
    for link in sorted(facts.net.links, key=lambda link: link.name):
        # The user named the link or its address; a network does not include tunnels.
        forced = wish is not None and wish in {link.name, *(address.ip for address in link.addresses)}
        why = _unfit(link, options, forced=forced)
        if why:
            rejected.append(RejectedLink(host, link.name, why))
        else:
            found += [
                _way(host, link, address, facts)
                for address in sorted(link.addresses, key=lambda each: (each.secondary, each.at.ip))
            ]
    if wish is not None and not any(_matches(way.link, way.ip, wish) for way in found):
        raise _no_such(host, wish, facts, rejected)
    return tuple(found), tuple(rejected)


def _unfit(link: Interface, options: NetworkOptions, *, forced: bool) -> str | None:
    if link.name in options.exclude:
        return "you excluded it"
    if link.kind == "loopback" or (link.kind not in _REAL and not forced):
        return _NEVER.get(link.kind, f"its kind ({link.kind}) is not known")
    if not link.up:
        return "it is down or has no cable"
    if not link.addresses:
        return "it has no IPv4 address"
    return None


def _way(host: str, link: Interface, address: Address, facts: Facts) -> EndpointCandidate:
    at = address.at
    port, gid, why = _port(link, address.ip, facts)
    return EndpointCandidate(
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


def _port(link: Interface, ip: str, facts: Facts) -> tuple[RdmaPort | None, Gid | None, str]:
    why = f"{link.name} has no RDMA device"
    for port in sorted(facts.rdma, key=lambda port: (port.pci or "", port.device)):
        # All three must match: the fe80 row is RoCE v2 too, but not routable.
        rows = [each for each in port.gids if (each.type, each.address) == ("RoCE v2", ip)]
        here = [each for each in rows if (each.interface or port.interface) == link.name]
        gid = min(here, key=lambda each: each.index, default=None)
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


def _matches(link: Interface, ip: IPv4Address, wish: str) -> bool:
    return wish in (link.name, str(ip)) or ("/" in wish and ip in _network(wish))


def _network(wish: str) -> IPv4Network:
    try:
        network = ip_network(wish, strict=False)
    except ValueError as error:
        raise Problem(
            f"{wish} is not a network",
            cause=str(error),
            fix="give an interface, an address, or a network such as 192.168.100.0/24",
        ) from error
    if isinstance(network, IPv4Network):
        return network
    raise Problem(
        f"{wish} is an IPv6 network",
        cause="medley binds NCCL, Gloo and Ray to IPv4 addresses",
        fix="name an IPv4 network such as 192.168.100.0/24: ip -brief -4 address",
    )


def _no_such(host: str, wish: str, facts: Facts, rejected: list[RejectedLink]) -> Problem:
    reasons = {each.interface: f" ({each.why})" for each in rejected}
    shown = (
        f"{link.name} {', '.join(str(each.at) for each in link.addresses) or 'no address'}"
        f"{reasons.get(link.name, '')}"
        for link in sorted(facts.net.links, key=lambda link: link.name)
    )
    return Problem(
        f"{host} has no link {wish} that other hosts can reach",
        cause="; ".join(shown) or "it has no network interface",
        fix=f"on {host}: ip -brief address; then name one of these, or bring that link up",
    )
