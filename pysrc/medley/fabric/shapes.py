"""The shapes of a fabric: what is wished, its end at each host, what was found, what was rejected."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from medley.facts.rdma import RdmaPort


@dataclass(frozen=True)
class Wishes:
    """What the user wants; `link` is an interface, an address or a network (CIDR), for all or by host."""

    link: Mapping[str, str] | str | None = None
    exclude: frozenset[str] = frozenset()
    """Interfaces that are never taken, on any host."""
    transport: Literal["tcp", "rdma"] | None = None
    joined: Mapping[str, str] | None = None
    """The addresses at which Ray knows these hosts: sockets stay there, and RDMA goes where it is best."""

    def link_of(self, host: str) -> str | None:
        return self.link.get(host) if isinstance(self.link, Mapping) else self.link


@dataclass(frozen=True)
class End:
    """Where a host meets the fabric."""

    interface: str
    """Sockets use it: Ray, Gloo, and NCCL's first words even where RDMA carries the rest."""
    address: str
    mbit: int | None
    """What it really carries over all its lanes or ports, at most; in a ring, to one neighbour."""
    mtu: int
    lanes: tuple[str, ...] = ()
    """Interfaces that NCCL's sockets may use side by side; `interface` is the first."""
    ports: tuple[RdmaPort, ...] = ()
    """RDMA ports that carry, in PCI order; both halves of a Spark's cage. Empty over TCP."""
    gid_index: int | None = None
    """Where all its ports have the RoCE v2 GID of their address; None where they differ, and over TCP."""


@dataclass(frozen=True)
class Finding:
    """What works less well than it could: like a Problem, but nothing has to stop for it."""

    what: str
    cause: str
    fix: str
    topic: str = ""
    """subnet, mtu, width, half, order, ring, gateway or kind: for those who look for one sort."""


@dataclass(frozen=True)
class Rejected:
    host: str
    interface: str
    why: str


@dataclass(frozen=True)
class Fabric:
    """One transport for the whole group, and the end at each host."""

    transport: Literal["none", "tcp", "rdma"]
    """`none`: one host alone, which needs no network."""
    ends: Mapping[str, End]
    networks: tuple[str, ...] = ()
    """In CIDR form: the sockets' first, then those of further lanes, rails or cables."""
    ring: bool = False
    """RDMA goes over a cable for each pair of hosts, sockets over the network that all share."""
    hca: str | None = None
    """One list of RDMA ports for all hosts, of which each takes its own: where sockets go another way."""
    subnet_bits: int | None = None
    """A prefix length that tells the networks of a ring apart, as NCCL compares them."""
    why: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    rejected: tuple[Rejected, ...] = ()

    @property
    def gid_index(self) -> int | None:
        """The one index that all ports of all hosts have, if there is one."""
        found = {end.gid_index for end in self.ends.values()}
        return found.pop() if len(found) == 1 else None
