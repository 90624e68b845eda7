"""`Fabric`, `Endpoint`, `NetworkOptions`, `RejectedLink`; link speed; NCCL versions."""

from collections.abc import Iterable, Mapping
from itertools import permutations
from typing import Literal

from msgspec import field

from medley.errors import Finding
from medley.host.facts import Facts
from medley.host.facts.network import Interface
from medley.host.facts.rdma import RdmaPort
from medley.network.fabric.cabling import Cabling
from medley.values import Value

_PCIE3_GT = 8.0
"""The transfer rate of a PCIe 3 lane in GT/s; from PCIe 3, 128 of 130 bits are data."""
FAST_MBIT = 25_000
"""The speed from which a port connects hosts, and is not for a LAN."""
LOCKED_NCCL = (2, 30, 7)
"""The version of nvidia-nccl-cu13 in locks/vllm-cuda.txt, assumed where no engine is chosen yet."""
SUBNET_AWARE_NCCL = (2, 30, 7)
"""The first NCCL with NCCL_IB_SUBNET_AWARE_ROUTING.

It is in src/transport/net_ib/connect.cc at tag v2.30.7-1 of https://github.com/NVIDIA/nccl, not at v2.30.4-1.
"""


def format_nccl_version(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


SUBNET_AWARE_TEXT = format_nccl_version(SUBNET_AWARE_NCCL)


class NetworkOptions(Value):
    """The user's options; `link` is an interface, an address or a network (CIDR), for all or by host."""

    link: Mapping[str, str] | str | None = None
    exclude: frozenset[str] = frozenset()
    transport: Literal["tcp", "rdma"] | None = None
    ray_addresses: Mapping[str, str] | None = None
    """The hosts' addresses in Ray, which keeps them; the ranks use the best network."""
    nccl: tuple[int, ...] = LOCKED_NCCL
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


def compute_pcie_mbit(port: RdmaPort) -> int | None:
    """Return the Mbit/s of its PCIe lanes before packet headers: width x GT/s x 128/130 (8/10 before PCIe 3).

    4 lanes of 32 GT/s are 126 Gbit/s; ib_write_bw measures 92.57 and 97.28 Gbit/s over a Spark's functions
    (https://github.com/NVIDIA/dgx-spark-playbooks).
    """
    if not (port.pcie_width and port.pcie_gt):
        return None
    coded = 128 / 130 if port.pcie_gt >= _PCIE3_GT else 8 / 10
    return int(port.pcie_width * port.pcie_gt * 1000 * coded)


def format_speed(mbit: int) -> str:
    """Return a speed in Gbit/s with three digits; 0 is unknown."""
    return f"{mbit / 1000:.3g} Gbit/s" if mbit else "an unknown speed"


def find_second_functions(ports: Iterable[RdmaPort]) -> dict[str, RdmaPort]:
    """Return by device the second function of its QSFP port, as of a Spark's ConnectX-7.

    Both functions have the GUID of one card and the name of one port, and are in two PCI domains.
    """
    by_device = {}
    functions = [port for port in ports if port.port_name and port.pci and port.system_guid]
    for port, other in permutations(functions, 2):
        is_one_port = (port.system_guid, port.port_name) == (other.system_guid, other.port_name)
        if is_one_port and _find_pci_domain(port) != _find_pci_domain(other):
            by_device[port.device] = other
    return by_device


def _find_pci_domain(port: RdmaPort) -> str:
    return (port.pci or "").partition(":")[0]


def compute_link_mbit(link: Interface, ports: tuple[RdmaPort, ...]) -> int | None:
    """Return the Mbit/s of one link: the reported speed, or less where PCIe limits it; None if unknown."""
    port = next((port for port in ports if port.interface == link.name and port.active), None)
    reported = link.mbit or (port.mbit if port else None)
    if port is None or reported is None:
        return reported
    pcie_mbit = compute_pcie_mbit(port)
    if pcie_mbit is None and port.device in find_second_functions(ports):
        # Each function reports the speed of the port that they share.
        return reported // 2
    return min(reported, pcie_mbit or reported)


def has_nccl_gpu(facts: Facts) -> bool:
    """Return whether a host has a GPU for NCCL; a Jetson has one even without nvidia-smi."""
    return bool(facts.gpus) or facts.is_jetson
