"""Choose the address and MTU of each fast link."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv4Network

from medley.errors import Problem
from medley.host.facts import Facts
from medley.host.facts.network import Interface
from medley.network.fabric.types import speed_text

_REAL = {"ethernet", "infiniband", "bond", "bridge", "vlan"}
_FAST_MBIT = 25_000
_FAST_MTU = 9000
"""For fast links; the switch of a LAN seldom forwards such packets."""
_FIRST, _LAST = 100, 199
"""N of the suggested networks 192.168.N.0/24."""
RING = 3
_PORTS = 2


@dataclass(frozen=True)
class LinkRequest:
    """The user's options; medley suggests what is None."""

    interface: str | None = None
    address: str | None = None
    mtu: int | None = None
    number: int | None = None
    """The last number of this host's suggested addresses."""
    ring: int | None = None
    """This host's place, from 1, in a ring of three: its first port leads to the next host's second."""
    force: bool = False


@dataclass(frozen=True)
class Setting:
    interface: str
    kind: str
    address: str
    mtu: int
    old_mtu: int
    has_address: bool
    drops: tuple[str, ...] = ()
    """Addresses to remove, such as a second one in the same network."""
    why: str = ""

    @property
    def is_so(self) -> bool:
        return self.has_address and self.mtu == self.old_mtu and not self.drops


def held(facts: Facts, sessions: Mapping[str, str]) -> dict[str, str]:
    """Return by interface why not to change it; `sessions`: ssh clients by interface or address."""
    carries = dict.fromkeys(facts.net.default_links, "it carries the default route")
    for link in facts.net.links:
        for mark in (link.name, *(address.ip for address in link.addresses)):
            if mark in sessions:
                carries[link.name] = f"the ssh session from {sessions[mark]} uses it"
    found = dict(carries)
    for link in facts.net.links:
        for name, why in carries.items():
            if link.master == name or name.startswith(f"{link.name}."):
                found[link.name] = f"it is a part of {name}: {why}"
    return found


def settings(facts: Facts, asked: LinkRequest, why_held: Mapping[str, str]) -> tuple[Setting, ...]:
    """Return the settings for each link, also where it has them already."""
    if asked.ring and asked.interface:
        raise Problem(
            "--ring is for all cables of this host",
            cause=f"--interface {asked.interface} names only one",
            fix=f"medley link setup --ring {asked.ring}",
        )
    if asked.address and not asked.interface:
        raise Problem(
            f"--address {asked.address} needs a link",
            cause="--address was given without --interface",
            fix=f"ip -brief link; then: medley link setup --interface NAME --address {asked.address}",
        )
    if asked.interface:
        link = _named(facts, asked.interface, why_held, force=asked.force)
        return tuple(_settings(facts, [link], asked))
    found, passed_over = _free(facts, why_held)
    if not found:
        raise Problem(
            "there is no fast link to set up",
            cause="; ".join(f"{name}: {why}" for name, why in passed_over.items()) or "there is no link",
            fix="name one: medley link setup --interface NAME",
        )
    if asked.ring:
        return tuple(_of_ring(_by_port(found), asked.ring, asked))
    return tuple(_settings(facts, found, asked))


def _by_port(links: list[Interface]) -> list[list[Interface]]:
    ports: dict[str, list[Interface]] = {}
    for link in links:
        ports.setdefault(link.port_name or link.name, []).append(link)
    if len(ports) != _PORTS:
        raise Problem(
            "a ring needs two ports with cables on this host",
            cause=f"{len(ports)} of them up and fast: {', '.join(link.name for link in links)}",
            fix="connect a cable to each of its two ports, and check: ip -brief link",
        )
    return list(ports.values())


def _of_ring(ports: list[list[Interface]], place: int, asked: LinkRequest) -> Iterator[Setting]:
    """Yield the settings of the first port, to the next host, and the second, to the previous one."""
    for port, cable in zip(ports, (place, (place - 2) % RING + 1), strict=True):
        to = place % RING + 1 if cable == place else cable
        for half, link in enumerate(port):
            wanted = IPv4Interface(f"192.168.{_FIRST + 10 * cable + half}.{asked.number or place}/24")
            has = [each.at for each in link.addresses]
            ours = [each for each in has if each.is_link_local or _suggested(each)]
            yield Setting(
                interface=link.name,
                kind=link.kind,
                address=str(wanted),
                mtu=asked.mtu or _FAST_MTU,
                old_mtu=link.mtu,
                has_address=wanted in has,
                drops=tuple(str(each) for each in ours if each != wanted),
                why=f"the cable to host {to} of the ring",
            )


def _suggested(at: IPv4Interface) -> bool:
    return str(at.ip).startswith("192.168.") and _FIRST <= at.ip.packed[2] <= _LAST


def _named(facts: Facts, name: str, why_held: Mapping[str, str], *, force: bool) -> Interface:
    link = next((link for link in facts.net.links if link.name == name), None)
    if link is None or link.kind not in _REAL:
        known = ", ".join(each.name for each in facts.net.links if each.kind in _REAL)
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
    if name in why_held and not force:
        raise Problem(
            f"{name} was not changed",
            cause=f"{why_held[name]}: a mistake would cut this host off",
            fix=f"if you can reach its console: medley link setup --interface {name} --force",
        )
    return link


def _free(facts: Facts, why_held: Mapping[str, str]) -> tuple[list[Interface], dict[str, str]]:
    why = {link.name: reason for link in facts.net.links if (reason := _unfit(link, why_held))}
    fit = [link for link in facts.net.links if link.name not in why]
    fastest = max((link.mbit or 0 for link in fit), default=0)
    for link in fit:
        if (link.mbit or 0) < fastest:
            why[link.name] = f"{speed_text(link.mbit or 0)}, and another has {speed_text(fastest)}"
    found = (link for link in fit if link.name not in why)
    return sorted(found, key=lambda link: (link.port_name or "", link.pci or "", link.name)), why


def _unfit(link: Interface, why_held: Mapping[str, str]) -> str | None:
    if link.kind != "ethernet":
        return f"a {link.kind}"
    if link.master:
        return f"a part of {link.master}"
    if not link.up:
        return "down, or without a cable"
    return why_held.get(link.name)


def _settings(facts: Facts, links: list[Interface], asked: LinkRequest) -> Iterator[Setting]:
    names = {link.name for link in links}
    taken = [network for link in facts.net.links if link.name not in names for network in link.networks]
    others = [each.destination for each in facts.net.routes if each.interface not in names]
    taken += [IPv4Network(each, strict=False) for each in others if each != "default"]
    for link in links:
        wanted, why = _address(link, taken, asked, facts)
        taken.append(wanted.network)
        fast = link.kind == "ethernet" and (link.mbit or 0) >= _FAST_MBIT
        has = [each.at for each in link.addresses]
        # All cables share the link-local network, which does not identify a cable.
        drops = [each for each in has if each.is_link_local or _overlaps(each.network, taken)]
        yield Setting(
            interface=link.name,
            kind=link.kind,
            address=str(wanted),
            mtu=asked.mtu or (_FAST_MTU if fast else link.mtu),
            old_mtu=link.mtu,
            has_address=wanted in has,
            drops=tuple(str(each) for each in drops if each != wanted),
            why=why,
        )


def _address(
    link: Interface, taken: list[IPv4Network], asked: LinkRequest, facts: Facts
) -> tuple[IPv4Interface, str]:
    if asked.address:
        return _checked(asked.address, taken, asked), "as requested"
    for at in (each.at for each in link.addresses):
        if not at.is_link_local and not _overlaps(at.network, taken):
            return at, "it has this address already"
    number, of = _number(asked, facts)
    for third in range(_FIRST, _LAST + 1):
        at = IPv4Interface(f"192.168.{third}.{number}/24")
        if not _overlaps(at.network, taken):
            return at, f"a network that no other link has; .{number} {of}"
    raise Problem(
        f"there is no free network for {link.name}",
        cause=f"this host has addresses in all of 192.168.{_FIRST}.0/24 to 192.168.{_LAST}.0/24",
        fix=f"name an address: medley link setup --interface {link.name} --address 10.99.0.1/24",
    )


def _checked(text: str, taken: list[IPv4Network], asked: LinkRequest) -> IPv4Interface:
    again = f"medley link setup --interface {asked.interface} --address"
    if not re.fullmatch(r"[0-9.]+/[0-9]+", text):
        raise Problem(
            f"{text} is not an address with a prefix length",
            cause="it needs a prefix length, the same on both hosts",
            fix=f"{again} 192.168.100.1/24",
        )
    try:
        at = IPv4Interface(text)
    except ValueError as error:
        raise Problem(
            f"{text} is not an address", cause=str(error), fix=f"{again} 192.168.100.1/24"
        ) from error
    if at.network.prefixlen < 31 and at.ip in {at.network.network_address, at.network.broadcast_address}:  # noqa: PLR2004 - a pair
        raise Problem(
            f"{at.ip} is not a host address",
            cause=f"it is the first or last of {at.network}",
            fix=f"{again} {at.network.network_address + 1}/{at.network.prefixlen}",
        )
    if _overlaps(at.network, taken) and not asked.force:
        raise Problem(
            f"another link of this host has {at.network} already",
            cause="with two links in one network the kernel mixes up their MAC addresses",
            fix=f"use another network: {again} 192.168.{_FIRST}.1/24   # or --force",
        )
    return at


def _number(asked: LinkRequest, facts: Facts) -> tuple[int, str]:
    """Take the last number of the host's LAN address, which is unique there."""
    if asked.number is not None:
        return asked.number, "as requested"
    for link in facts.net.links:
        if link.name in facts.net.default_links and link.addresses:
            ip = link.addresses[0].ip
            return int(ip.rpartition(".")[2]) or 1, f"as in {ip}, its address on {link.name}"
    return 1, "without an address in a LAN; give the other hosts --number 2, 3, ..."


def _overlaps(network: IPv4Network, taken: list[IPv4Network]) -> bool:
    return any(network.overlaps(each) for each in taken)
