"""Read the facts of RDMA devices, ports and GIDs."""

import ipaddress
import re
from collections.abc import Iterator, Mapping

from medley.transcript import Transcript, parse_number, read_file_values
from medley.values import Value

# All of it in one grep, which passes over the rows that cannot be read (of a GID table nearly all) and the
# GIDs that are zero.
PORTS_QUESTION = (
    "cd /sys/class/infiniband && grep -EHs '^([^=]*[1-9A-Za-z][^=]*|PCI_SLOT_NAME=.*)$' */sys_image_guid"
    " */device/uevent */device/current_link_width */device/current_link_speed */device/net/*/type"
    " */device/net/*/phys_port_name */ports/*/state */ports/*/rate */ports/*/link_layer */ports/*/gids/*"
    " */ports/*/gid_attrs/*/* | sed 's/:/ /'"
)

QUESTIONS = (PORTS_QUESTION,)

_MAX_LANES = 32
"""The largest width of PCIe; the kernel reports 255 for an unknown width."""


class Gid(Value):
    index: int
    gid: str
    type: str | None
    """The kernel's word: `RoCE v2` or `IB/RoCE v1`."""
    interface: str | None
    address: str | None
    """The IPv4 address that a mapped GID (::ffff:a.b.c.d) holds."""


class RdmaPort(Value):
    """One port of one device; cards have one port for each device today."""

    device: str
    """NCCL's name for it, as in `rocep1s0f0`."""
    port: int
    active: bool
    link_layer: str | None
    """`Ethernet` (RoCE) or `InfiniBand`."""
    interface: str | None
    mbit: int | None = None
    """The speed that the port reports, which for a Spark is twice the speed of one interface."""
    pci: str | None = None
    pcie_width: int | None = None
    """The lanes in use; a Spark with an old BIOS has 2 instead of 4 on its second controller."""
    pcie_gt: float | None = None
    """The GT/s of a lane: 32.0 is PCIe 5."""
    system_guid: str | None = None
    """sys_image_guid: equal for all functions of one card."""
    port_name: str | None = None
    """The phys_port_name of its interface."""
    gids: tuple[Gid, ...] = ()

    @property
    def nccl_name(self) -> str:
        """The port's name in NCCL_IB_HCA."""
        return f"{self.device}:{self.port}"


def read_ports(answers: Transcript) -> tuple[RdmaPort, ...]:
    values = dict(read_file_values(answers, PORTS_QUESTION))
    ports = {
        (device, index)
        for path in values
        for device, index in re.findall(r"^([^/]+)/ports/([0-9]{1,3})/state$", path)
    }
    return tuple(_read_port(values, device, int(index)) for device, index in sorted(ports))


def _read_port(values: Mapping[str, str], device: str, index: int) -> RdmaPort:
    port = f"{device}/ports/{index}"
    gids = tuple(_list_gids(values, port))
    interface = next((gid.interface for gid in gids if gid.interface), None)
    if interface is None:
        # A port without a GID, such as one that is down: the only interface of its device.
        names = {path.split("/")[3] for path in values if path.startswith(f"{device}/device/net/")}
        interface = names.pop() if len(names) == 1 else None
    width = parse_number(values.get(f"{device}/device/current_link_width"))
    return RdmaPort(
        device=device,
        port=index,
        active=values[f"{port}/state"].endswith(" ACTIVE"),
        link_layer=values.get(f"{port}/link_layer"),
        interface=interface,
        mbit=round(gbit * 1000)
        if (gbit := _parse_number(values.get(f"{port}/rate", ""), "Gb/sec"))
        else None,
        pci=values.get(f"{device}/device/uevent", "").removeprefix("PCI_SLOT_NAME=") or None,
        pcie_width=width if width and width <= _MAX_LANES else None,
        pcie_gt=_parse_number(values.get(f"{device}/device/current_link_speed", ""), "GT/s"),
        system_guid=values.get(f"{device}/sys_image_guid"),
        port_name=values.get(f"{device}/device/net/{interface}/phys_port_name"),
        gids=gids,
    )


def _list_gids(values: Mapping[str, str], port: str) -> Iterator[Gid]:
    prefix = f"{port}/gids/"
    rows = (parse_number(path.removeprefix(prefix)) for path in values if path.startswith(prefix))
    for index in sorted(row for row in rows if row is not None):
        gid = values.get(f"{prefix}{index}", "")
        try:
            value = ipaddress.IPv6Address(gid)
        except ValueError:
            continue
        if int(value):  # a row that is used
            yield Gid(
                index=index,
                gid=gid,
                type=values.get(f"{port}/gid_attrs/types/{index}"),
                interface=values.get(f"{port}/gid_attrs/ndevs/{index}"),
                address=str(value.ipv4_mapped) if value.ipv4_mapped else None,
            )


def _parse_number(text: str, unit: str) -> float | None:
    match = re.match(rf"([0-9]{{1,6}}(?:\.[0-9]{{1,3}})?) {unit}", text)
    return float(match[1]) if match else None
