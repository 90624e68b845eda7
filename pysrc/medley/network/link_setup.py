"""Choose the address and MTU of each fast link."""

import re
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Interface, IPv4Network

from medley.errors import Problem
from medley.host.facts import Facts
from medley.host.facts.network import Interface
from medley.network.fabric.speed import FAST_MBIT, format_speed
from medley.values import Value

_LINK_KINDS = {"ethernet", "infiniband", "bond", "bridge", "vlan"}
_FAST_MTU = 9000
"""The MTU of fast links; the switch of a LAN seldom forwards such packets."""
_FIRST_SUBNET, _LAST_SUBNET = 100, 199
"""The least and the largest N of the suggested networks 192.168.N.0/24."""
_POINT_TO_POINT_PREFIX = 31
"""The prefix length from which a network reserves no address (RFC 3021)."""
RING_HOSTS = 3
_RING_PORTS = 2
"""The number of ports of each host of a ring."""


class LinkRequest(Value):
    """The user's options; medley suggests what is None."""

    interface: str | None = None
    address: str | None = None
    mtu: int | None = None
    number: int | None = None
    """The last number of this host's suggested addresses."""
    ring: int | None = None
    """This host's place, from 1, in a ring of three: its first port leads to the next host's second."""
    force: bool = False


class LinkSetting(Value):
    """The address and MTU of one link, and what it has now."""

    interface: str
    kind: str
    address: str
    """The address with its prefix length."""
    mtu: int
    old_mtu: int
    has_address: bool
    """Whether the link has the address already."""
    dropped_addresses: tuple[str, ...] = ()
    """The addresses to remove, such as a second one in the same network."""
    why: str = ""

    @property
    def is_applied(self) -> bool:
        return self.has_address and self.mtu == self.old_mtu and not self.dropped_addresses


def find_protected_links(facts: Facts, sessions: Mapping[str, str]) -> dict[str, str]:
    """Return by interface why not to change it; `sessions`: ssh clients by interface or address."""
    carries = dict.fromkeys(facts.net.default_links, "it carries the default route")
    for link in facts.net.links:
        for key in (link.name, *(address.ip for address in link.addresses)):
            if key in sessions:
                carries[link.name] = f"the ssh session from {sessions[key]} uses it"
    protected = dict(carries)
    for link in facts.net.links:
        for name, why in carries.items():
            if link.master == name or name.startswith(f"{link.name}."):
                protected[link.name] = f"it is a part of {name}: {why}"
    return protected


def choose_settings(
    facts: Facts, request: LinkRequest, protected_links: Mapping[str, str]
) -> tuple[LinkSetting, ...]:
    """Return the settings for each link, also where it has them already.

    `protected_links` has by interface why not to change it. Raise a Problem for options that exclude
    each other, an unusable link or address, or if there is no fast link.
    """
    if request.ring and request.interface:
        raise Problem(
            "--ring is for all cables of this host",
            cause=f"--interface {request.interface} names only one",
            fix=f"medley link setup --ring {request.ring}",
        )
    if request.address and not request.interface:
        raise Problem(
            f"--address {request.address} needs a link",
            cause="--address was given without --interface",
            fix=f"ip -brief link; then: medley link setup --interface NAME --address {request.address}",
        )
    if request.interface:
        link = _require_link(facts, request.interface, protected_links, force=request.force)
        return tuple(_list_settings(facts, [link], request))
    fast_links, unused_links = _find_free_links(facts, protected_links)
    if not fast_links:
        raise Problem(
            "there is no fast link to set up",
            cause="; ".join(f"{name}: {why}" for name, why in unused_links.items()) or "there is no link",
            fix="name one: medley link setup --interface NAME",
        )
    if request.ring:
        return tuple(_list_ring_settings(_group_by_port(fast_links), request.ring, request))
    return tuple(_list_settings(facts, fast_links, request))


def _group_by_port(links: list[Interface]) -> list[list[Interface]]:
    """Return the links of each QSFP port; raise a Problem unless there are two ports."""
    ports: dict[str, list[Interface]] = {}
    for link in links:
        ports.setdefault(link.port_name or link.name, []).append(link)
    if len(ports) != _RING_PORTS:
        raise Problem(
            "a ring needs two ports with cables on this host",
            cause=f"{len(ports)} of them up and fast: {', '.join(link.name for link in links)}",
            fix="connect a cable to each of its two ports, and check: ip -brief link",
        )
    return list(ports.values())


def _list_ring_settings(
    ports: list[list[Interface]], place: int, request: LinkRequest
) -> Iterator[LinkSetting]:
    """Yield the settings of the first port, to the next host, and the second, to the previous one."""
    for port, cable in zip(ports, (place, (place - 2) % RING_HOSTS + 1), strict=True):
        neighbor = place % RING_HOSTS + 1 if cable == place else cable
        for function, link in enumerate(port):
            third = _FIRST_SUBNET + 10 * cable + function
            address = IPv4Interface(f"192.168.{third}.{request.number or place}/24")
            current = [link_address.cidr for link_address in link.addresses]
            replaced = [old for old in current if old.is_link_local or _is_suggested(old)]
            yield LinkSetting(
                interface=link.name,
                kind=link.kind,
                address=str(address),
                mtu=request.mtu or _FAST_MTU,
                old_mtu=link.mtu,
                has_address=address in current,
                dropped_addresses=tuple(str(old) for old in replaced if old != address),
                why=f"the cable to host {neighbor} of the ring",
            )


def _is_suggested(address: IPv4Interface) -> bool:
    return str(address.ip).startswith("192.168.") and _FIRST_SUBNET <= address.ip.packed[2] <= _LAST_SUBNET


def _require_link(facts: Facts, name: str, protected_links: Mapping[str, str], *, force: bool) -> Interface:
    link = next((link for link in facts.net.links if link.name == name), None)
    if link is None or link.kind not in _LINK_KINDS:
        known = ", ".join(known_link.name for known_link in facts.net.links if known_link.kind in _LINK_KINDS)
        raise Problem(
            f"{name} is not a link that can be set up",
            cause=f"it is a {link.kind}" if link else f"this host's links are {known or 'none'}",
            fix=f"name one of these: {known}" if known else "ip -brief link",
        )
    if link.master:
        raise Problem(
            f"{name} has no address of its own",
            cause=f"it is a part of {link.master}, which has the addresses",
            fix=f"medley link setup --interface {link.master}",
        )
    if name in protected_links and not force:
        raise Problem(
            f"{name} was not changed",
            cause=f"{protected_links[name]}: a mistake would cut this host off",
            fix=f"if you can reach its console: medley link setup --interface {name} --force",
        )
    return link


def _find_free_links(
    facts: Facts, protected_links: Mapping[str, str]
) -> tuple[list[Interface], dict[str, str]]:
    """Return the fastest links that may be changed, in order of ports, and why the others are not."""
    why = {
        link.name: reason for link in facts.net.links if (reason := _find_unfit_reason(link, protected_links))
    }
    usable = [link for link in facts.net.links if link.name not in why]
    fastest = max((link.mbit or 0 for link in usable), default=0)
    for link in usable:
        if (link.mbit or 0) < fastest:
            why[link.name] = f"{format_speed(link.mbit or 0)}, and another has {format_speed(fastest)}"
    fastest_links = (link for link in usable if link.name not in why)
    return sorted(fastest_links, key=lambda link: (link.port_name or "", link.pci or "", link.name)), why


def _find_unfit_reason(link: Interface, protected_links: Mapping[str, str]) -> str | None:
    if link.kind != "ethernet":
        return f"a {link.kind}"
    if link.master:
        return f"a part of {link.master}"
    if not link.up:
        return "down, or without a cable"
    return protected_links.get(link.name)


def _list_settings(facts: Facts, links: list[Interface], request: LinkRequest) -> Iterator[LinkSetting]:
    """Yield the setting of each link, in a network that no other link or route has."""
    names = {link.name for link in links}
    used_networks = [
        network for link in facts.net.links if link.name not in names for network in link.networks
    ]
    other_routes = [route for route in facts.net.routes if route.interface not in names]
    destinations = (route.destination for route in other_routes if route.destination != "default")
    used_networks += [IPv4Network(destination, strict=False) for destination in destinations]
    for link in links:
        address, why = _choose_address(link, used_networks, request, facts)
        used_networks.append(address.network)
        is_fast = link.kind == "ethernet" and (link.mbit or 0) >= FAST_MBIT
        current = [link_address.cidr for link_address in link.addresses]
        # All cables share the link-local network, which does not identify a cable.
        replaced = [old for old in current if old.is_link_local or _has_overlap(old.network, used_networks)]
        yield LinkSetting(
            interface=link.name,
            kind=link.kind,
            address=str(address),
            mtu=request.mtu or (_FAST_MTU if is_fast else link.mtu),
            old_mtu=link.mtu,
            has_address=address in current,
            dropped_addresses=tuple(str(old) for old in replaced if old != address),
            why=why,
        )


def _choose_address(
    link: Interface, used_networks: list[IPv4Network], request: LinkRequest, facts: Facts
) -> tuple[IPv4Interface, str]:
    """Return the address of a link and the reason: the user's, its own, or a suggested one."""
    if request.address:
        return _parse_address(request.address, used_networks, request), "as requested"
    for candidate in (link_address.cidr for link_address in link.addresses):
        if not candidate.is_link_local and not _has_overlap(candidate.network, used_networks):
            return candidate, "it has this address already"
    host_number, number_reason = _choose_host_number(request, facts)
    for third in range(_FIRST_SUBNET, _LAST_SUBNET + 1):
        candidate = IPv4Interface(f"192.168.{third}.{host_number}/24")
        if not _has_overlap(candidate.network, used_networks):
            return candidate, f"a network that no other link has; .{host_number} {number_reason}"
    raise Problem(
        f"there is no free network for {link.name}",
        cause="this host has addresses in all of "
        f"192.168.{_FIRST_SUBNET}.0/24 to 192.168.{_LAST_SUBNET}.0/24",
        fix=f"name an address: medley link setup --interface {link.name} --address 10.99.0.1/24",
    )


def _parse_address(text: str, used_networks: list[IPv4Network], request: LinkRequest) -> IPv4Interface:
    command = f"medley link setup --interface {request.interface} --address"
    if not re.fullmatch(r"[0-9.]+/[0-9]+", text):
        raise Problem(
            f"{text} is not an address with a prefix length",
            cause="it needs a prefix length, the same on both hosts",
            fix=f"{command} 192.168.100.1/24",
        )
    try:
        address = IPv4Interface(text)
    except ValueError as error:
        raise Problem(
            f"{text} is not an address", cause=str(error), fix=f"{command} 192.168.100.1/24"
        ) from error
    network = address.network
    reserved = {network.network_address, network.broadcast_address}
    if network.prefixlen < _POINT_TO_POINT_PREFIX and address.ip in reserved:
        raise Problem(
            f"{address.ip} is not a host address",
            cause=f"it is the first or last of {address.network}",
            fix=f"{command} {address.network.network_address + 1}/{address.network.prefixlen}",
        )
    if _has_overlap(address.network, used_networks) and not request.force:
        raise Problem(
            f"another link of this host has {address.network} already",
            cause="with two links in one network the kernel mixes up their MAC addresses",
            fix=f"use another network: {command} 192.168.{_FIRST_SUBNET}.1/24   # or --force",
        )
    return address


def _choose_host_number(request: LinkRequest, facts: Facts) -> tuple[int, str]:
    """Return the last number of the host's LAN address, which is unique there, and why it was chosen."""
    if request.number is not None:
        return request.number, "as requested"
    for link in facts.net.links:
        if link.name in facts.net.default_links and link.addresses:
            ip = link.addresses[0].ip
            return int(ip.rpartition(".")[2]) or 1, f"as in {ip}, its address on {link.name}"
    return 1, "without an address in a LAN; give the other hosts --number 2, 3, ..."


def _has_overlap(network: IPv4Network, networks: list[IPv4Network]) -> bool:
    return any(network.overlaps(other) for other in networks)
