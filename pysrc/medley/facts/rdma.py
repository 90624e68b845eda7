"""The host's RDMA devices: RoCE and InfiniBand ports, their speed on both sides, and their GIDs."""

from dataclasses import dataclass


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
