"""Read the facts of interfaces (Ethernet, Wi-Fi, container, tunnel), addresses and routes."""

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from ipaddress import IPv4Interface, IPv4Network
from typing import Any

from medley import config
from medley.transcript import Transcript, parse_number, read_file_values, read_json_objects
from medley.values import Value

# With -details ip prints the type of a link, at which its name only hints.
LINKS_QUESTION = "ip -details -json address show"
ROUTES_QUESTION = "ip -json route show"
# Uevents give only these keys. Files that cannot be read (the speed of lo) are skipped; `:` would touch MACs.
SYSFS_QUESTION = (
    "cd /sys/class/net && grep -EHs '^([^=]+|(IFINDEX|DEVTYPE|DRIVER|PCI_SLOT_NAME)=.*)$' */type */mtu"
    " */operstate */speed */phys_port_name */uevent */device/uevent | sed 's/:/ /'"
)

QUESTIONS = (LINKS_QUESTION, ROUTES_QUESTION, SYSFS_QUESTION)

_TABLES = config.read_module_table(__file__, "link_kinds.toml")
_KIND_BY_TYPE = {made: kind for kind, words in _TABLES["made"].items() for made in words}
# One end is on this host, and the other in a container or on a network: only the name shows which.
_PAIR_TYPES = {"veth", "macvlan", "ipvlan", "macvtap", "ipvtap", "netkit"}
_TUNNEL_TYPES = {"none", "ppp", "sit", "ipip", "gre", "gre6", "tunnel", "tunnel6", "rawip"}
_PLAIN_NAME_PATTERN = re.compile(r"[A-Za-z0-9_][\w.+:@-]*", re.ASCII)
_ETHERNET_NAME_PATTERN = re.compile(r"(eth|en|lan|net|host)[0-9a-z]*$", re.IGNORECASE)


class Address(Value):
    """An IPv4 address of an interface."""

    ip: str
    """The address, as in `10.0.0.1`."""
    prefix: int
    secondary: bool = False

    @cached_property
    def cidr(self) -> IPv4Interface:
        """The address with its network; as text `10.0.0.1/24`."""
        return IPv4Interface(f"{self.ip}/{self.prefix}")


class Interface(Value):
    """One interface; `kind` is ethernet, wifi, infiniband, loopback, bridge, bond, vlan, container, tunnel,
    gadget (Jetson's USB) or virtual.
    """

    name: str
    kind: str
    up: bool
    """Whether it is administratively up, and has a carrier."""
    mtu: int
    """The MTU in bytes; 0 where it is unknown."""
    addresses: tuple[Address, ...] = ()
    mbit: int | None = None
    """The speed that the driver reports, which for a Spark's port is twice the speed of one interface."""
    driver: str | None = None
    pci: str | None = None
    """The PCI function, as in `0000:01:00.0`."""
    port_name: str | None = None
    """phys_port_name, as in `p0`: equal for both interfaces of a Spark's QSFP port."""
    master: str | None = None
    """The bridge or bond that it belongs to, and that has its addresses."""

    @property
    def networks(self) -> tuple[IPv4Network, ...]:
        return tuple(address.cidr.network for address in self.addresses)


class Route(Value):
    destination: str
    """`default`, or a network as in `10.0.0.0/24`."""
    interface: str
    gateway: str | None = None
    source: str | None = None
    metric: int = 0


class Net(Value):
    links: tuple[Interface, ...] = ()
    routes: tuple[Route, ...] = ()

    @property
    def default_links(self) -> frozenset[str]:
        return frozenset(route.interface for route in self.routes if route.destination == "default")

    @property
    def ips(self) -> frozenset[str]:
        """All IPv4 addresses of this host."""
        return frozenset(address.ip for link in self.links for address in link.addresses)


def read_net(answers: Transcript) -> Net:
    """Return the interfaces and routes."""
    by_interface = _read_sysfs(answers)
    rows = [row for row in read_json_objects(answers, LINKS_QUESTION) if _has_plain_name(row)]
    if not rows:
        # Without iproute2, or with one too old, everything but the addresses is known.
        for name, files in by_interface.items():
            state = files.get("operstate", "").upper()
            rows.append({"ifname": name, "ifindex": parse_number(files.get("IFINDEX")), "operstate": state})
        rows = [row for row in rows if _has_plain_name(row)]
    return Net(tuple(_read_interface(row, by_interface) for row in rows), tuple(_list_routes(answers)))


def _has_plain_name(row: Mapping[str, Any]) -> bool:
    """Return whether a fix can name a link as one word; another host may send any text."""
    name, master = row.get("ifname"), row.get("master") or "none"
    return all(isinstance(word, str) and _PLAIN_NAME_PATTERN.fullmatch(word) for word in (name, master))


def _read_sysfs(answers: Transcript) -> dict[str, dict[str, str]]:
    """Return the values of each interface in sysfs, by file or by key of a uevent."""
    by_interface: dict[str, dict[str, str]] = {}
    for path, value in read_file_values(answers, SYSFS_QUESTION):
        key, _, text = value.partition("=")
        match path.split("/"):
            case [name, "uevent"] if key in {"IFINDEX", "DEVTYPE"}:
                by_interface.setdefault(name, {})[key] = text
            case [name, "device", "uevent"] if key in {"DRIVER", "PCI_SLOT_NAME"}:
                by_interface.setdefault(name, {})[key] = text
            case [name, file] if file != "uevent":
                by_interface.setdefault(name, {})[file] = value
    return by_interface


def _read_interface(row: Mapping[str, Any], by_interface: Mapping[str, Mapping[str, str]]) -> Interface:
    """Return a link from ip's description and the values in sysfs."""
    name = str(row["ifname"]).partition("@")[0]
    files = by_interface.get(name, {})
    index = parse_number(files.get("IFINDEX"))
    if index is not None and index != row.get("ifindex"):
        files = {}  # sysfs is of another network namespace, with a link of this name
    link_info, master, mtu = row.get("linkinfo"), row.get("master"), row.get("mtu")
    mbit = parse_number(files.get("speed"))
    made_as = link_info.get("info_kind") if isinstance(link_info, dict) else None
    return Interface(
        name=name,
        kind=find_link_kind(
            name,
            link_type=str(row.get("link_type") or files.get("type", "")),
            made_as=str(made_as or files.get("DEVTYPE", "")),
            driver=files.get("DRIVER"),
            enslaved=isinstance(master, str),
        ),
        up=_is_up(row),
        mtu=mtu if isinstance(mtu, int) else parse_number(files.get("mtu")) or 0,
        addresses=tuple(_list_addresses(row)),
        # No speed is -1, which older kernels print unsigned.
        mbit=mbit if mbit and mbit < 1 << 31 else None,
        driver=files.get("DRIVER"),
        pci=files.get("PCI_SLOT_NAME"),
        port_name=files.get("phys_port_name"),
        master=master if isinstance(master, str) else None,
    )


def find_link_kind(
    name: str, *, link_type: str = "", made_as: str = "", driver: str | None = None, enslaved: bool = False
) -> str:
    """Return the kind of an interface.

    `link_type` is ip's word or sysfs's number; `made_as` is empty for hardware, and `driver` None for other
    interfaces.
    """
    link_type = _TABLES["types"].get(link_type, link_type)
    named_kind = next((entry["kind"] for entry in _TABLES["named"] if re.match(entry["names"], name)), None)
    if link_type == "loopback" or name == "lo":
        return "loopback"
    if link_type.startswith("infiniband"):
        return "infiniband"
    if virtual_kind := _find_virtual_kind(made_as, named_kind, enslaved=enslaved):
        return virtual_kind
    if driver and link_type in {"", "ether"}:
        # Hardware is Ethernet, whatever its name, except Wi-Fi and USB's gadgets.
        gadget = "gadget" if driver == "rndis_host" else None
        return gadget or (named_kind if named_kind in {"gadget", "wifi"} else "ethernet")
    if named_kind or link_type in _TUNNEL_TYPES:
        return named_kind or "tunnel"
    return "ethernet" if _ETHERNET_NAME_PATTERN.match(name) else "virtual"


def _find_virtual_kind(made_as: str, named_kind: str | None, *, enslaved: bool) -> str | None:
    """Return the kind of an interface that is not hardware; None for hardware."""
    if made_as in _PAIR_TYPES:
        # In a container or a namespace of its own, an end of a pair is the host's Ethernet.
        return "container" if enslaved else named_kind or "ethernet"
    kind = _KIND_BY_TYPE.get(made_as)
    # Docker makes plain bridges, flannel plain tunnels, and a Jetson bridges its gadget.
    is_gadget_bridge = kind == "bridge" and named_kind == "gadget"
    is_container_link = kind in {"bridge", "tunnel"} and named_kind == "container"
    return named_kind if is_gadget_bridge or is_container_link else kind


def _is_up(row: Mapping[str, Any]) -> bool:
    """Return whether a link is up; tunnels and the loopback have no carrier, so their state is UNKNOWN."""
    flags = row.get("flags")
    flags = flags if isinstance(flags, list) else ["UP"]
    running = str(row.get("operstate")) in {"UP", "UNKNOWN"}
    return running and "UP" in flags and "NO-CARRIER" not in flags


def _list_addresses(row: Mapping[str, Any]) -> Iterator[Address]:
    rows = row.get("addr_info")
    if not isinstance(rows, list):
        return
    for entry in rows:
        match entry:
            case {"family": "inet", "local": str(ip), "prefixlen": int(prefix)} if _is_network(
                f"{ip}/{prefix}"
            ):
                yield Address(ip, prefix, secondary=entry.get("secondary") is True)


def _list_routes(answers: Transcript) -> Iterator[Route]:
    """Yield the routes with an interface, which a blackhole does not have."""
    for row in read_json_objects(answers, ROUTES_QUESTION):
        hops = row.get("nexthops")
        for hop in hops if isinstance(hops, list) else [row]:
            route: Any = {**row, **hop} if isinstance(hop, dict) else {}
            match route:
                case {"dst": str(destination), "dev": str(interface)} if (
                    destination == "default" or _is_network(destination)
                ):
                    gateway, source, metric = route.get("gateway"), route.get("prefsrc"), route.get("metric")
                    yield Route(
                        destination=destination
                        if destination == "default" or "/" in destination
                        else f"{destination}/32",
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
