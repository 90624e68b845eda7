"""Find a host's usable addresses, from which `choose.py` chooses, and why its other links cannot be used."""

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network, ip_network

from medley.errors import Problem
from medley.host.facts import Facts
from medley.host.facts.network import Address, Interface
from medley.host.facts.rdma import Gid, RdmaPort
from medley.network.fabric.choice import NetworkOptions, RejectedLink
from medley.network.fabric.speed import compute_link_mbit
from medley.values import Value

_USABLE_KINDS = ("ethernet", "bond", "vlan", "bridge", "infiniband", "wifi")
_UNUSABLE_REASONS = {
    "loopback": "the loopback reaches only this host",
    "container": "it belongs to containers, and every host has one like it",
    "tunnel": "a tunnel (VPN) is slow; to use it anyway, name it with --link",
    "gadget": "Jetson's USB network, with the same address on every Jetson",
    "virtual": "a virtual interface without a cable",
}


class EndpointCandidate(Value):
    """An address of a host that a group may use."""

    host: str
    link: Interface
    ip: IPv4Address
    network: IPv4Network
    is_secondary: bool
    """Whether the kernel prefers another address of the link in this network."""
    mbit: int
    """The speed of the link; 0 where it is unknown."""
    port: RdmaPort | None
    gid_index: int | None
    """The index of the address's RoCE v2 GID; None without RDMA, and on InfiniBand."""
    no_rdma_reason: str
    """The reason why the address has no RDMA; empty where it has."""

    @property
    def is_wired(self) -> bool:
        return self.link.kind != "wifi"

    @property
    def rank(self) -> tuple[bool, bool, int, bool, int, int, str]:
        """The sort key; a higher rank is better, and no two candidates of a host are equal."""
        return (
            not self.is_secondary,
            self.is_wired,
            self.mbit,
            self.port is not None,
            self.link.mtu,
            -int(self.ip),
            self.link.name,
        )

    @property
    def cidr(self) -> str:
        return f"{self.ip}/{self.network.prefixlen}"

    def can_reach(self, other: "EndpointCandidate") -> bool:
        return self.ip != other.ip and other.ip in self.network and self.ip in other.network


Candidates = tuple[EndpointCandidate, ...]


class CandidateGroup(Value):
    """Hosts that are to talk, with every address that each could use."""

    hosts: Mapping[str, Facts]
    candidates: Mapping[str, Candidates]
    options: NetworkOptions

    def select_candidates(self) -> dict[str, Candidates]:
        """Return by host the candidates that the user's --link allows."""
        return {
            host: tuple(candidate for candidate in candidates if self.is_allowed(candidate))
            for host, candidates in self.candidates.items()
        }

    def is_allowed(self, candidate: EndpointCandidate) -> bool:
        wanted_link = self.options.find_link(candidate.host)
        return wanted_link is None or _is_match(candidate.link, candidate.ip, wanted_link)


def find_endpoint_candidates(
    host: str, facts: Facts, options: NetworkOptions
) -> tuple[Candidates, tuple[RejectedLink, ...]]:
    """Return a host's candidates, sorted by link and address, and its other links with the reason.

    Raise a Problem if the user named a link that the host does not have.
    """
    wanted_link, candidates, rejected = options.find_link(host), [], []
    for link in sorted(facts.net.links, key=lambda link: link.name):
        # The user named the link or its address; a network does not include tunnels.
        is_named = wanted_link is not None and wanted_link in {
            link.name,
            *(address.ip for address in link.addresses),
        }
        why = _find_unfit_reason(link, options, is_named=is_named)
        if why:
            rejected.append(RejectedLink(host, link.name, why))
        else:
            candidates += [
                _build_candidate(host, link, address, facts)
                for address in sorted(
                    link.addresses, key=lambda address_entry: (address_entry.secondary, address_entry.cidr.ip)
                )
            ]
    if wanted_link is not None and not any(
        _is_match(candidate.link, candidate.ip, wanted_link) for candidate in candidates
    ):
        raise _build_missing_link_problem(host, wanted_link, facts, rejected)
    return tuple(candidates), tuple(rejected)


def _find_unfit_reason(link: Interface, options: NetworkOptions, *, is_named: bool) -> str | None:
    if link.name in options.exclude:
        return "you excluded it"
    if link.kind == "loopback" or (link.kind not in _USABLE_KINDS and not is_named):
        return _UNUSABLE_REASONS.get(link.kind, f"its kind ({link.kind}) is not known")
    if not link.up:
        return "it is down or has no cable"
    if not link.addresses:
        return "it has no IPv4 address"
    return None


def _build_candidate(host: str, link: Interface, address: Address, facts: Facts) -> EndpointCandidate:
    interface_address = address.cidr
    port, gid, why = _find_rdma_port(link, address.ip, facts)
    return EndpointCandidate(
        host=host,
        link=link,
        ip=interface_address.ip,
        network=interface_address.network,
        is_secondary=address.secondary,
        mbit=compute_link_mbit(link, facts.rdma) or 0,
        port=port,
        gid_index=gid.index if gid else None,
        no_rdma_reason=why,
    )


def _find_rdma_port(link: Interface, ip: str, facts: Facts) -> tuple[RdmaPort | None, Gid | None, str]:
    """Return the RDMA port of an address and its GID, else the reason why it has none."""
    why = f"{link.name} has no RDMA device"
    for port in sorted(facts.rdma, key=lambda port: (port.pci or "", port.device)):
        # All three must match: the fe80 row is RoCE v2 too, but not routable.
        rows = [row for row in port.gids if (row.type, row.address) == ("RoCE v2", ip)]
        link_rows = [row for row in rows if (row.interface or port.interface) == link.name]
        gid = min(link_rows, key=lambda row: row.index, default=None)
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


def _is_match(link: Interface, ip: IPv4Address, wanted_link: str) -> bool:
    return wanted_link in (link.name, str(ip)) or ("/" in wanted_link and ip in _parse_network(wanted_link))


def _parse_network(wanted_link: str) -> IPv4Network:
    try:
        network = ip_network(wanted_link, strict=False)
    except ValueError as error:
        raise Problem(
            f"{wanted_link} is not a network",
            cause=str(error),
            fix="give an interface, an address, or a network such as 192.168.100.0/24",
        ) from error
    if isinstance(network, IPv4Network):
        return network
    raise Problem(
        f"{wanted_link} is an IPv6 network",
        cause="medley binds NCCL, Gloo and Ray to IPv4 addresses",
        fix="name an IPv4 network such as 192.168.100.0/24: ip -brief -4 address",
    )


def _build_missing_link_problem(
    host: str, wanted_link: str, facts: Facts, rejected: list[RejectedLink]
) -> Problem:
    reasons = {rejected_link.interface: f" ({rejected_link.why})" for rejected_link in rejected}
    texts = (
        f"{link.name} {', '.join(str(address.cidr) for address in link.addresses) or 'no address'}"
        f"{reasons.get(link.name, '')}"
        for link in sorted(facts.net.links, key=lambda link: link.name)
    )
    return Problem(
        f"{host} has no link {wanted_link} that other hosts can reach",
        cause="; ".join(texts) or "it has no network interface",
        fix=f"on {host}: ip -brief address; then name one of these, or bring that link up",
    )
