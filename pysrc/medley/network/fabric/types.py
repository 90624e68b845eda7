"""`Fabric`, `Endpoint`, `NetworkOptions`, `RejectedLink`; link speed; NCCL versions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from medley.errors import Finding
from medley.host.facts import Facts
from medley.host.facts.network import Interface
from medley.host.facts.rdma import RdmaPort
from medley.network.fabric.cabling import Cabling

_PCIE3_GT = 8.0
FAST_MBIT = 25_000
"""Ports of this speed connect hosts, and are not for a LAN."""
LOCKED_NCCL = (2, 30, 7)
"""nvidia-nccl-cu13 in locks/vllm-cuda.txt: assumed where no engine is chosen yet."""
SUBNET_AWARE = (2, 30, 7)
"""First with NCCL_IB_SUBNET_AWARE_ROUTING.

It is in src/transport/net_ib/connect.cc at tag v2.30.7-1 of https://github.com/NVIDIA/nccl, not at v2.30.4-1.
"""


def nccl_text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


AWARE_TEXT = nccl_text(SUBNET_AWARE)


@dataclass(frozen=True)
class NetworkOptions:
    """The user's options; `link` is an interface, an address or a network (CIDR), for all or by host."""

    link: Mapping[str, str] | str | None = None
    exclude: frozenset[str] = frozenset()
    transport: Literal["tcp", "rdma"] | None = None
    joined: Mapping[str, str] | None = None
    """The hosts' addresses in Ray: it stays there, and the ranks use the best network."""
    nccl: tuple[int, ...] = LOCKED_NCCL
    """The oldest version in the engine environments of these hosts."""

    def link_of(self, host: str) -> str | None:
        return self.link.get(host) if isinstance(self.link, Mapping) else self.link


@dataclass(frozen=True)
class Endpoint:
    interface: str
    """Ray's sockets use it, and those of Gloo and NCCL unless the fabric has `rank_ends`."""
    address: str
    mbit: int | None
    """The speed of all its lanes or ports; in a ring, to one neighbor."""
    mtu: int
    lanes: tuple[str, ...] = ()
    """Interfaces that NCCL's sockets may use in parallel; `interface` is the first."""
    ports: tuple[RdmaPort, ...] = ()
    """RDMA ports in use, in PCI order; both functions of a Spark's QSFP port. Empty over TCP."""
    gid_index: int | None = None
    """The index of the RoCE v2 GID on all its ports; None where they differ, and over TCP."""


@dataclass(frozen=True)
class RejectedLink:
    host: str
    interface: str
    why: str


@dataclass(frozen=True)
class Fabric:
    """One transport for the whole group, and the end at each host."""

    transport: Literal["none", "tcp", "rdma"]
    """`none`: a single host."""
    ends: Mapping[str, Endpoint]
    networks: tuple[str, ...] = ()
    """In CIDR form: the sockets' first, then those of further lanes, rails or cables."""
    ring: bool = False
    """Whether RDMA uses a cable for each pair of hosts, and sockets the shared network."""
    hca: str | None = None
    """One list of RDMA ports for all hosts, where sockets use another network."""
    rank_ends: Mapping[str, Endpoint] = field(default_factory=dict)
    """The ends of the ranks' sockets, where Ray uses another network; else empty."""
    subnet_bits: int | None = None
    """The prefix length by which NCCL separates the networks of a ring."""
    cabling: Cabling = field(default_factory=Cabling)
    why: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    rejected: tuple[RejectedLink, ...] = ()

    @property
    def gid_index(self) -> int | None:
        found = {end.gid_index for end in self.ends.values()}
        return found.pop() if len(found) == 1 else None


def least_mbit(fabric: Fabric) -> int:
    """Return the speed of the slowest end; 0 where one is unknown."""
    return min(end.mbit or 0 for end in fabric.ends.values())


def pcie_mbit(port: RdmaPort) -> int | None:
    """Return the speed of its PCIe lanes before packet headers: width x GT/s x 128/130 (8/10 before PCIe 3).

    4 lanes of 32 GT/s are 126 Gbit/s; ib_write_bw measures 92.57 and 97.28 Gbit/s over a Spark's functions
    (https://github.com/NVIDIA/dgx-spark-playbooks).
    """
    if not (port.pcie_width and port.pcie_gt):
        return None
    coded = 128 / 130 if port.pcie_gt >= _PCIE3_GT else 8 / 10
    return int(port.pcie_width * port.pcie_gt * 1000 * coded)


def speed_text(mbit: int) -> str:
    return f"{mbit / 1000:.3g} Gbit/s" if mbit else "an unknown speed"


def twins(ports: Iterable[RdmaPort]) -> dict[str, RdmaPort]:
    """Return by device the second function of its QSFP port, as of a Spark's ConnectX-7."""
    found = [(port, port.pci.partition(":")[0]) for port in ports if port.port_name and port.pci]
    return {
        one.device: other
        for one, domain in found
        for other, other_domain in found
        if one.system_guid
        and (one.system_guid, one.port_name) == (other.system_guid, other.port_name)
        and domain != other_domain
    }


def link_mbit(link: Interface, ports: tuple[RdmaPort, ...]) -> int | None:
    """Return the speed of one link: the reported one, or less where PCIe limits it."""
    port = next((port for port in ports if port.interface == link.name and port.active), None)
    reported = link.mbit or (port.mbit if port else None)
    if port is None or reported is None:
        return reported
    lanes = pcie_mbit(port)
    if lanes is None and port.device in twins(ports):
        # Each function reports the speed of the port that they share.
        return reported // 2
    return min(reported, lanes or reported)


def nccl_speaks(facts: Facts) -> bool:
    """Whether a host has a GPU for NCCL; a Jetson has one even without nvidia-smi."""
    return bool(facts.gpus) or facts.is_jetson
