"""Decide the speed and latency of links: what ports report, PCIe lanes allow, and predictions count."""

from collections.abc import Iterable
from itertools import permutations

from medley.host.facts.network import Interface
from medley.host.facts.rdma import RdmaPort

_PCIE3_GT = 8.0
"""The transfer rate of a PCIe 3 lane in GT/s; from PCIe 3, 128 of 130 bits are data."""
FAST_MBIT = 25_000
"""The speed from which a port connects hosts, and is not for a LAN."""
DEFAULT_MBIT = 100
"""The speed of a link whose driver does not report one."""
# Latency one way, for a small message between two GPUs. RDMA: perftest shows about 2 us between ConnectX-7;
# NCCL adds its proxy thread. TCP: some 25 us by kernel and switch, and as much by NCCL's socket threads.
RDMA_US = 8.0
TCP_US = 50.0
# Source: NVIDIA's connect-two-sparks playbook, 92.6 to 97.3 Gbit/s of 100; less NCCL's own cutting.
NETWORK_SHARE = 0.9
"""The share of a link's speed that a prediction counts with, where the link was not measured."""


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
