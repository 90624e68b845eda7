"""The host's network: its interfaces, what each one is, their addresses, and where the kernel routes."""

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from medley.facts.answers import number, objects, readings
from medley.facts.link_kind import link_kind
from medley.transcript import Transcript

# With its details ip says what made a link, which a name only hints at.
LINKS = "ip -details -json address show"
ROUTES = "ip -json route show"
# Of the uevents only these keys. What cannot be read (the speed of lo) is skipped; `:` would touch the MACs.
SYSFS = (
    "cd /sys/class/net && grep -EHs '^([^=]+|(IFINDEX|DEVTYPE|DRIVER|PCI_SLOT_NAME)=.*)$' */type */mtu"
    " */operstate */speed */phys_port_name */uevent */device/uevent | sed 's/:/ /'"
)

QUESTIONS = (LINKS, ROUTES, SYSFS)

# As ip names the kernel's ARPHRD_ numbers.
_LINK_TYPES = {"1": "ether", "32": "infiniband", "772": "loopback", "65534": "none", "512": "ppp"}


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
    """0 where the host did not say."""
    addresses: tuple[Address, ...] = ()
    mbit: int | None = None
    """As the driver reports it, which for a Spark's twin is twice what it carries."""
    driver: str | None = None
    pci: str | None = None
    """Its PCI function, as in `0000:01:00.0`."""
    port_name: str | None = None
    """phys_port_name, as in `p0`: equal for the two halves of a Spark's cage."""
    master: str | None = None
    """The bridge or bond that it is a part of, and that has its addresses."""


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


def net(answers: Transcript) -> Net:
    seen = _seen(answers)
    told = [row for row in objects(answers, LINKS) if isinstance(row.get("ifname"), str)]
    known = [_told(row, seen) for row in told] or [_unnamed_by_ip(name, of) for name, of in seen.items()]
    return Net(tuple(known), tuple(_routes(answers)))


def _seen(answers: Transcript) -> dict[str, dict[str, str]]:
    """What sysfs says of each interface, by file or, of a uevent, by key."""
    seen: dict[str, dict[str, str]] = {}
    for path, value in readings(answers, SYSFS):
        key, _, text = value.partition("=")
        match path.split("/"):
            case [name, "uevent"] if key in {"IFINDEX", "DEVTYPE"}:
                seen.setdefault(name, {})[key] = text
            case [name, "device", "uevent"] if key in {"DRIVER", "PCI_SLOT_NAME"}:
                seen.setdefault(name, {})[key] = text
            case [name, file] if file != "uevent":
                seen.setdefault(name, {})[file] = value
    return seen


def _told(row: Mapping[str, Any], every: Mapping[str, Mapping[str, str]]) -> Link:
    """A link as ip tells it, with what sysfs has besides."""
    name = str(row["ifname"]).partition("@")[0]
    seen = every.get(name, {})
    index = number(seen.get("IFINDEX"))
    if index is not None and index != row.get("ifindex"):
        seen = {}  # sysfs is of another network namespace, with a link of this name
    made = row.get("linkinfo")
    made_as = made.get("info_kind") if isinstance(made, dict) else None
    master = row.get("master")
    return _link(
        name,
        seen,
        up=_is_up(row),
        mtu=row.get("mtu"),
        addresses=tuple(_addresses(row)),
        link_type=row.get("link_type"),
        made_as=made_as,
        master=master if isinstance(master, str) else None,
    )


def _unnamed_by_ip(name: str, seen: Mapping[str, str]) -> Link:
    """A link of a host with no iproute2, or one too old: all but its addresses."""
    return _link(name, seen, up=seen.get("operstate") in {"up", "unknown"})


def _link(
    name: str,
    seen: Mapping[str, str],
    *,
    up: bool,
    mtu: object = None,
    addresses: tuple[Address, ...] = (),
    link_type: object = None,
    made_as: object = None,
    master: str | None = None,
) -> Link:
    mbit = number(seen.get("speed"))
    return Link(
        name=name,
        kind=link_kind(
            name,
            link_type=str(link_type or _LINK_TYPES.get(seen.get("type", ""), seen.get("type", ""))),
            made_as=str(made_as or seen.get("DEVTYPE", "")),
            driver=seen.get("DRIVER"),
            enslaved=master is not None,
        ),
        up=up,
        mtu=mtu if isinstance(mtu, int) else number(seen.get("mtu")) or 0,
        addresses=addresses,
        # No speed is -1, which older kernels print unsigned.
        mbit=mbit if mbit and mbit < 1 << 31 else None,
        driver=seen.get("DRIVER"),
        pci=seen.get("PCI_SLOT_NAME"),
        port_name=seen.get("phys_port_name"),
        master=master,
    )


def _is_up(row: Mapping[str, Any]) -> bool:
    """Tunnels and the loopback have no carrier to lose: their state is UNKNOWN."""
    flags = row.get("flags")
    flags = flags if isinstance(flags, list) else ["UP"]
    running = str(row.get("operstate")) in {"UP", "UNKNOWN"}
    return running and "UP" in flags and "NO-CARRIER" not in flags


def _addresses(row: Mapping[str, Any]) -> Iterator[Address]:
    rows = row.get("addr_info")
    for each in rows if isinstance(rows, list) else ():
        match each:
            case {"family": "inet", "local": str(ip), "prefixlen": int(prefix)} if _is_network(
                f"{ip}/{prefix}"
            ):
                yield Address(ip, prefix, secondary=each.get("secondary") is True)


def _routes(answers: Transcript) -> Iterator[Route]:
    for row in objects(answers, ROUTES):
        hops = row.get("nexthops")
        for hop in hops if isinstance(hops, list) else [row]:
            route = _route({**row, **hop}) if isinstance(hop, dict) else None
            if route:
                yield route


def _route(row: Mapping[str, Any]) -> Route | None:
    """None for what leads nowhere, as a blackhole does."""
    match row:
        case {"dst": str(to), "dev": str(interface)} if to == "default" or _is_network(to):
            gateway, source, metric = row.get("gateway"), row.get("prefsrc"), row.get("metric")
            return Route(
                destination=to if to == "default" or "/" in to else f"{to}/32",
                interface=interface,
                gateway=gateway if isinstance(gateway, str) else None,
                source=source if isinstance(source, str) else None,
                metric=metric if isinstance(metric, int) else 0,
            )
    return None


def _is_network(text: str) -> bool:
    try:
        ipaddress.IPv4Interface(text)
    except ValueError:
        return False
    return True
