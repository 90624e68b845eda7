"""A chosen `Fabric` with its endpoints and rejected links, and the user's options for the choice."""

from collections.abc import Mapping
from typing import Literal

from msgspec import field

from medley.errors import Finding
from medley.host.facts.rdma import RdmaPort
from medley.network.fabric.cabling import Cabling
from medley.network.fabric.nccl import LOCKED_NCCL
from medley.values import Value


class NetworkOptions(Value):
    """The user's options; `link` is an interface, an address or a network (CIDR), for all or by host."""

    link: Mapping[str, str] | str | None = None
    exclude: frozenset[str] = frozenset()
    transport: Literal["tcp", "rdma"] | None = None
    ray_addresses: Mapping[str, str] | None = None
    """The hosts' addresses in Ray, which keeps them; the ranks use the best network."""
    nccl_version: tuple[int, ...] = LOCKED_NCCL
    """The oldest version in the engine environments of these hosts."""

    def find_link(self, host: str) -> str | None:
        return self.link.get(host) if isinstance(self.link, Mapping) else self.link


class Endpoint(Value):
    """One host's end of the fabric; report.build_fabric_table writes these keys as JSON."""

    interface: str
    """The interface of Ray's sockets, and of Gloo's and NCCL's unless the fabric has `rank_endpoints`."""
    address: str
    mbit: int | None
    """The speed of all its lanes or ports; in a ring, to one neighbor."""
    mtu: int
    lanes: tuple[str, ...] = ()
    """The interfaces that NCCL's sockets may use in parallel; `interface` is the first."""
    ports: tuple[RdmaPort, ...] = ()
    """The RDMA ports in use, in PCI order; both functions of a Spark's QSFP port. Empty over TCP."""
    gid_index: int | None = None
    """The index of the RoCE v2 GID on all its ports; None where they differ, and over TCP."""


class RejectedLink(Value):
    host: str
    interface: str
    why: str


class Fabric(Value):
    """One transport for the whole group, and the endpoint of each host."""

    transport: Literal["none", "tcp", "rdma"]
    """`none`: a single host."""
    endpoints: Mapping[str, Endpoint]
    networks: tuple[str, ...] = ()
    """The networks in CIDR form: the sockets' first, then those of further lanes, rails or cables."""
    is_ring: bool = False
    """Whether RDMA uses a cable for each pair of hosts, and sockets the shared network."""
    hca: str | None = None
    """One list of RDMA ports for all hosts, where sockets use another network."""
    rank_endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    """The endpoints of the ranks' sockets, where Ray uses another network; else empty."""
    subnet_bits: int | None = None
    """The prefix length by which NCCL separates the networks of a ring."""
    cabling: Cabling = field(default_factory=Cabling)
    why: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    rejected: tuple[RejectedLink, ...] = ()

    @property
    def gid_index(self) -> int | None:
        """The index of the RoCE v2 GID on all hosts; None where they differ, and over TCP."""
        indexes = {end.gid_index for end in self.endpoints.values()}
        return indexes.pop() if len(indexes) == 1 else None


def find_slowest_mbit(fabric: Fabric) -> int:
    """Return the speed of the slowest end; 0 where one is unknown."""
    return min(end.mbit or 0 for end in fabric.endpoints.values())
