"""The host's network: its interfaces, what each one is, their addresses, and where the kernel routes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Address:
    ip: str
    """IPv4, as in `10.0.0.1`."""
    prefix: int
    secondary: bool = False


@dataclass(frozen=True)
class Link:
    """One interface; `kind` is ethernet, wifi, infiniband, loopback, bridge, bond, vlan, container, tunnel,
    gadget (Jetson's USB) or virtual.
    """

    name: str
    kind: str
    up: bool
    """Administratively up, and with a carrier."""
    mtu: int
    addresses: tuple[Address, ...] = ()
    mbit: int | None = None
    """As the driver reports it, which for a Spark's twin is twice what it carries."""
    driver: str | None = None
    pci: str | None = None
    """Its PCI function, as in `0000:01:00.0`."""
    port_name: str | None = None
    """phys_port_name, as in `p0`: equal for the two halves of a Spark's cage."""


@dataclass(frozen=True)
class Route:
    destination: str
    """`default`, or a network as in `10.0.0.0/24`."""
    interface: str
    gateway: str | None = None
    source: str | None = None
    metric: int = 0


@dataclass(frozen=True)
class Net:
    links: tuple[Link, ...] = ()
    routes: tuple[Route, ...] = ()
