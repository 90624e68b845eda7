"""Interfaces and what each is (Ethernet, Wi-Fi, container, tunnel), addresses, routes."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Interface, IPv4Network
from typing import Any

from medley import config
from medley.transcript import Transcript, number, objects, readings

# With its details ip says what made a link, which a name only hints at.
LINKS = "ip -details -json address show"
ROUTES = "ip -json route show"
# Of the uevents only these keys. What cannot be read (the speed of lo) is skipped; `:` would touch the MACs.
SYSFS = (
    "cd /sys/class/net && grep -EHs '^([^=]+|(IFINDEX|DEVTYPE|DRIVER|PCI_SLOT_NAME)=.*)$' */type */mtu"
    " */operstate */speed */phys_port_name */uevent */device/uevent | sed 's/:/ /'"
)

QUESTIONS = (LINKS, ROUTES, SYSFS)

_TABLES = config.beside(__file__, "link_kinds.toml")
_MADE = {made: kind for kind, words in _TABLES["made"].items() for made in words}
# One end is here, and the other in a container, or on a wire: only the name tells.
_ENDS = {"veth", "macvlan", "ipvlan", "macvtap", "ipvtap", "netkit"}
_TUNNEL_TYPES = {"none", "ppp", "sit", "ipip", "gre", "gre6", "tunnel", "tunnel6", "rawip"}
_WIRE = re.compile(r"(eth|en|lan|net|host)[0-9a-z]*$", re.IGNORECASE)


@dataclass(frozen=True)
class Address:
    ip: str
    """IPv4, as in `10.0.0.1`."""
    prefix: int
    secondary: bool = False

    @cached_property
    def at(self) -> IPv4Interface:
        """With its network; as text `10.0.0.1/24`."""
        return IPv4Interface(f"{self.ip}/{self.prefix}")


@dataclass(frozen=True)
class Interface:
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

    @property
    def networks(self) -> tuple[IPv4Network, ...]:
        return tuple(each.at.network for each in self.addresses)


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
    links: tuple[Interface, ...] = ()
    routes: tuple[Route, ...] = ()

    @property
    def default_links(self) -> frozenset[str]:
        return frozenset(each.interface for each in self.routes if each.destination == "default")

    @property
    def ips(self) -> frozenset[str]:
        """Every address of this host."""
        return frozenset(each.ip for link in self.links for each in link.addresses)


def net(answers: Transcript) -> Net:
    seen = _sysfs(answers)
    rows = [row for row in objects(answers, LINKS) if isinstance(row.get("ifname"), str)]
    # Without iproute2, or with one too old, all but the addresses is known.
    rows = rows or [
        {"ifname": name, "ifindex": number(of.get("IFINDEX")), "operstate": of.get("operstate", "").upper()}
        for name, of in seen.items()
    ]
    return Net(tuple(_interface(row, seen) for row in rows), tuple(_routes(answers)))


def _sysfs(answers: Transcript) -> dict[str, dict[str, str]]:
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


def _interface(row: Mapping[str, Any], every: Mapping[str, Mapping[str, str]]) -> Interface:
    """A link as ip describes it, with what sysfs has besides."""
    name = str(row["ifname"]).partition("@")[0]
    seen = every.get(name, {})
    index = number(seen.get("IFINDEX"))
    if index is not None and index != row.get("ifindex"):
        seen = {}  # sysfs is of another network namespace, with a link of this name
    made, master, mtu = row.get("linkinfo"), row.get("master"), row.get("mtu")
    mbit = number(seen.get("speed"))
    made_as = made.get("info_kind") if isinstance(made, dict) else None
    return Interface(
        name=name,
        kind=link_kind(
            name,
            link_type=str(row.get("link_type") or seen.get("type", "")),
            made_as=str(made_as or seen.get("DEVTYPE", "")),
            driver=seen.get("DRIVER"),
            enslaved=isinstance(master, str),
        ),
        up=_is_up(row),
        mtu=mtu if isinstance(mtu, int) else number(seen.get("mtu")) or 0,
        addresses=tuple(_addresses(row)),
        # No speed is -1, which older kernels print unsigned.
        mbit=mbit if mbit and mbit < 1 << 31 else None,
        driver=seen.get("DRIVER"),
        pci=seen.get("PCI_SLOT_NAME"),
        port_name=seen.get("phys_port_name"),
        master=master if isinstance(master, str) else None,
    )


def link_kind(
    name: str, *, link_type: str = "", made_as: str = "", driver: str | None = None, enslaved: bool = False
) -> str:
    """`link_type` is ip's word or sysfs's number.

    `made_as` is empty for hardware, and `driver` None for what is none.
    """
    link_type = _TABLES["types"].get(link_type, link_type)
    named = next((each["kind"] for each in _TABLES["named"] if re.match(each["names"], name)), None)
    if link_type == "loopback" or name == "lo":
        return "loopback"
    if link_type.startswith("infiniband"):
        return "infiniband"
    if made := _made(made_as, named, enslaved=enslaved):
        return made
    if driver and link_type in {"", "ether"}:
        # Hardware is a wire, whatever its name, but for the air and USB's gadgets.
        gadget = "gadget" if driver == "rndis_host" else None
        return gadget or (named if named in {"gadget", "wifi"} else "ethernet")
    if named or link_type in _TUNNEL_TYPES:
        return named or "tunnel"
    return "ethernet" if _WIRE.match(name) else "virtual"


def _made(made_as: str, named: str | None, *, enslaved: bool) -> str | None:
    if made_as in _ENDS:
        # In a container or a namespace of its own, an end of a pair is the host's wire.
        return "container" if enslaved else named or "ethernet"
    made = _MADE.get(made_as)
    # Docker makes plain bridges, flannel plain tunnels, and a Jetson bridges its gadget.
    plain = (made == "bridge" and named == "gadget") or (
        made in {"bridge", "tunnel"} and named == "container"
    )
    return named if plain else made


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
    """Without those that lead nowhere, as a blackhole does."""
    for row in objects(answers, ROUTES):
        hops = row.get("nexthops")
        for hop in hops if isinstance(hops, list) else [row]:
            way: Any = {**row, **hop} if isinstance(hop, dict) else {}
            match way:
                case {"dst": str(to), "dev": str(interface)} if to == "default" or _is_network(to):
                    gateway, source, metric = way.get("gateway"), way.get("prefsrc"), way.get("metric")
                    yield Route(
                        destination=to if to == "default" or "/" in to else f"{to}/32",
                        interface=interface,
                        gateway=gateway if isinstance(gateway, str) else None,
                        source=source if isinstance(source, str) else None,
                        metric=metric if isinstance(metric, int) else 0,
                    )


def _is_network(text: str) -> bool:
    try:
        IPv4Interface(text)
    except ValueError:
        return False
    return True
