"""The speed of a link is what it carries, which for a NIC on a narrow PCIe slot is less than it reports."""

from collections.abc import Iterable

from medley.facts.net import Link
from medley.facts.rdma import RdmaPort

_PCIE3_GT = 8.0


def pcie_mbit(port: RdmaPort) -> int | None:
    """What its PCIe lanes carry before packet headers: width x GT/s x 128/130 (8/10 before PCIe 3).

    4 lanes of 32 GT/s are 126 Gb/s; ib_write_bw then measures 92.57 and 97.28 Gb/s over a Spark's halves
    (https://github.com/NVIDIA/dgx-spark-playbooks).
    """
    if not (port.pcie_width and port.pcie_gt):
        return None
    coded = 128 / 130 if port.pcie_gt >= _PCIE3_GT else 8 / 10
    return int(port.pcie_width * port.pcie_gt * 1000 * coded)


def shown(mbit: int) -> str:
    return f"{mbit / 1000:.3g} Gb/s" if mbit else "an unknown speed"


def twins(ports: Iterable[RdmaPort]) -> dict[str, RdmaPort]:
    """By device, the other half of its cage: the same card and port, in another PCI domain.

    So a Spark's ConnectX-7 is wired, whatever its interfaces are called; an ordinary card shows a port once.
    """
    found = [port for port in ports if port.system_guid and port.port_name and port.pci]
    return {
        one.device: other
        for one in found
        for other in found
        if (one.system_guid, one.port_name) == (other.system_guid, other.port_name)
        and _domain(one) != _domain(other)
    }


def link_mbit(link: Link, ports: tuple[RdmaPort, ...]) -> int | None:
    """What one link carries by itself: its own figure, or less where PCIe is narrower."""
    port = next((port for port in ports if port.interface == link.name and port.active), None)
    reported = link.mbit or (port.mbit if port else None)
    if port is None or reported is None:
        return reported
    lanes = pcie_mbit(port)
    if lanes is None and port.device in twins(ports):
        # Each half reports the speed of the cage that they share.
        return reported // 2
    return min(reported, lanes or reported)


def together_mbit(carrying: Iterable[tuple[Link, RdmaPort | None, int]]) -> int | None:
    """What links carry side by side: no more than their cables, nor than the PCIe slots behind them.

    As many times the slowest, because NCCL gives each an equal share.
    """
    found = list(carrying)
    slowest = min((mbit for *_, mbit in found), default=0)
    cables: dict[object, int] = {}
    slots: dict[object, int] = {}
    for link, port, mbit in found:
        reported = link.mbit or (port and port.mbit) or mbit
        cage = (port.system_guid, port.port_name) if port and port.port_name else link.name
        cables[cage] = max(cables.get(cage, 0), reported)
        # Two cages of a Spark hang on the same lanes: a second cable adds little.
        slot = port.pci.rpartition(".")[0] if port and port.pci else link.name
        slots[slot] = max(slots.get(slot, 0), (port and pcie_mbit(port)) or reported)
    return min(slowest * len(found), sum(cables.values()), sum(slots.values())) or None


def _domain(port: RdmaPort) -> str:
    return (port.pci or "").partition(":")[0]
