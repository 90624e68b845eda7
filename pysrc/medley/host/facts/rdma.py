"""RDMA devices, ports and GIDs."""

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from medley.transcript import Transcript, number, readings

# All of it in one grep, which passes over the rows that cannot be read (of a GID table nearly all) and the
# GIDs that are zero.
PORTS = (
    "cd /sys/class/infiniband && grep -EHs '^([^=]*[1-9A-Za-z][^=]*|PCI_SLOT_NAME=.*)$' */sys_image_guid"
    " */device/uevent */device/current_link_width */device/current_link_speed */device/net/*/type"
    " */device/net/*/phys_port_name */ports/*/state */ports/*/rate */ports/*/link_layer */ports/*/gids/*"
    " */ports/*/gid_attrs/*/* | sed 's/:/ /'"
)

QUESTIONS = (PORTS,)

# The kernel says 255 for a width it does not know.
_MOST_LANES = 32


@dataclass(frozen=True)
class Gid:
    index: int
    gid: str
    type: str | None
    """`RoCE v2` or `IB/RoCE v1`, as the kernel says."""
    interface: str | None
    address: str | None
    """The IPv4 address that a mapped GID (::ffff:a.b.c.d) holds."""


@dataclass(frozen=True)
class RdmaPort:
    """One port of one device; cards have one port for each device today."""

    device: str
    """NCCL's name for it, as in `rocep1s0f0`."""
    port: int
    active: bool
    link_layer: str | None
    """`Ethernet` (RoCE) or `InfiniBand`."""
    interface: str | None
    mbit: int | None = None
    """As the port reports it, which for a Spark's twin is twice what it carries."""
    pci: str | None = None
    pcie_width: int | None = None
    """Lanes in use; a Spark with an old BIOS has 2 instead of 4 on its second controller."""
    pcie_gt: float | None = None
    """GT/s of a lane: 32.0 is PCIe 5."""
    system_guid: str | None = None
    """sys_image_guid: equal for all functions of one card."""
    port_name: str | None = None
    """phys_port_name of its interface."""
    gids: tuple[Gid, ...] = ()

    @property
    def named(self) -> str:
        """As NCCL_IB_HCA has it."""
        return f"{self.device}:{self.port}"


def rdma(answers: Transcript) -> tuple[RdmaPort, ...]:
    seen = dict(readings(answers, PORTS))
    ports = {
        (device, index)
        for path in seen
        for device, index in re.findall(r"^([^/]+)/ports/([0-9]{1,3})/state$", path)
    }
    return tuple(_port(seen, device, int(index)) for device, index in sorted(ports))


def _port(seen: Mapping[str, str], device: str, index: int) -> RdmaPort:
    port = f"{device}/ports/{index}"
    gids = tuple(_gids(seen, port))
    interface = next((gid.interface for gid in gids if gid.interface), None)
    if interface is None:
        # A port with no GID, as one that is down: the one interface of its device.
        names = {path.split("/")[3] for path in seen if path.startswith(f"{device}/device/net/")}
        interface = names.pop() if len(names) == 1 else None
    width = number(seen.get(f"{device}/device/current_link_width"))
    return RdmaPort(
        device=device,
        port=index,
        active=seen[f"{port}/state"].endswith(" ACTIVE"),
        link_layer=seen.get(f"{port}/link_layer"),
        interface=interface,
        mbit=round(gbit * 1000) if (gbit := _figure(seen.get(f"{port}/rate", ""), "Gb/sec")) else None,
        pci=seen.get(f"{device}/device/uevent", "").removeprefix("PCI_SLOT_NAME=") or None,
        pcie_width=width if width and width <= _MOST_LANES else None,
        pcie_gt=_figure(seen.get(f"{device}/device/current_link_speed", ""), "GT/s"),
        system_guid=seen.get(f"{device}/sys_image_guid"),
        port_name=seen.get(f"{device}/device/net/{interface}/phys_port_name"),
        gids=gids,
    )


def _gids(seen: Mapping[str, str], port: str) -> Iterator[Gid]:
    table = f"{port}/gids/"
    rows = (number(path.removeprefix(table)) for path in seen if path.startswith(table))
    for index in sorted(row for row in rows if row is not None):
        gid = seen.get(f"{table}{index}", "")
        try:
            value = ipaddress.IPv6Address(gid)
        except ValueError:
            continue
        if int(value):  # a row that is used
            yield Gid(
                index=index,
                gid=gid,
                type=seen.get(f"{port}/gid_attrs/types/{index}"),
                interface=seen.get(f"{port}/gid_attrs/ndevs/{index}"),
                address=str(value.ipv4_mapped) if value.ipv4_mapped else None,
            )


def _figure(text: str, unit: str) -> float | None:
    match = re.match(rf"([0-9]{{1,6}}(?:\.[0-9]{{1,3}})?) {unit}", text)
    return float(match[1]) if match else None
