"""Fast ports that are up and carry nothing, because they have no address, or one where no other host is."""

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Interface, IPv4Network

from medley.fabric.shapes import End, Finding
from medley.fabric.speed import link_mbit, shown
from medley.facts import Facts
from medley.facts.net import Link

FAST_MBIT = 25_000
"""Ports of this speed are bought to join hosts, and not for a LAN."""
_TIMES = 2
"""So much faster than what carries now a port must be to be worth a word."""


def idle(hosts: Mapping[str, Facts], ends: Mapping[str, End]) -> dict[str, tuple[Link, ...]]:
    """By host its fast ports that are up and meet no other host's, in PCI order.

    None unless two hosts have some, because a cable has two ends. `ends` is what carries now, by host.
    """
    networks = {
        host: {each for link in facts.net.links for each in _networks(link)} for host, facts in hosts.items()
    }
    found: dict[str, tuple[Link, ...]] = {}
    for host, facts in hosts.items():
        others = [each for other, them in networks.items() if other != host for each in them]
        now = (ends[host].mbit or 0) if host in ends else 0
        ports = (link for link in facts.net.links if _is_fast(link, facts, now))
        free = [
            link
            for link in ports
            if not any(each.overlaps(one) for each in _networks(link) for one in others)
        ]
        if free:
            found[host] = tuple(sorted(free, key=lambda link: (link.pci or "", link.name)))
    return found if len(found) > 1 or len(hosts) == 1 else {}


def _is_fast(link: Link, facts: Facts, now: int) -> bool:
    real = link.kind == "ethernet" and link.up and link.master is None
    speed = link_mbit(link, facts.rdma) or 0
    return real and speed >= FAST_MBIT and speed >= _TIMES * now


def _networks(link: Link) -> Iterator[IPv4Network]:
    for each in link.addresses:
        network = IPv4Interface(f"{each.ip}/{each.prefix}").network
        if not network.is_link_local:
            yield network


def finding(found: Mapping[str, tuple[Link, ...]]) -> Finding:
    """What to do so that these ports carry; medley link setup keeps it over a boot."""
    speed = shown(max(link.mbit or 0 for links in found.values() for link in links))
    said = "; ".join(_said(host, link) for host, links in found.items() for link in links)
    if len(found) == 1:
        return Finding(
            f"{next(iter(found))}: a fast port is up and carries nothing ({speed})",
            said,
            "sudo medley link setup  # and the same on the host at the other end of its cable",
            topic="idle",
        )
    return Finding(
        f"{' and '.join(found)} have fast ports that are up and carry nothing ({speed})",
        said,
        "; ".join(_fixes(found)),
        topic="idle",
    )


def _said(host: str, link: Link) -> str:
    if not link.addresses:
        return f"{host} {link.name} has no IPv4 address"
    if not list(_networks(link)):
        return f"{host} {link.name} has a link-local address alone"
    have = ", ".join(f"{each.ip}/{each.prefix}" for each in link.addresses)
    return f"{host} {link.name} has {have}, where no other host is"


def _fixes(found: Mapping[str, tuple[Link, ...]]) -> Iterator[str]:
    """Where one end has an address, the others join its network; else medley finds one for all."""
    addressed = next((link for links in found.values() for link in links if list(_networks(link))), None)
    if addressed is None:
        yield f"on each of {', '.join(found)}: sudo medley link setup"
        return
    network = next(_networks(addressed))
    taken = {each.ip for links in found.values() for link in links for each in link.addresses}
    free = (str(each) for each in network.hosts() if str(each) not in taken)
    for host, links in found.items():
        if addressed not in links:
            at = f"{next(free)}/{network.prefixlen}"
            yield f"on {host}: sudo medley link setup --interface {links[0].name} --address {at}"
