"""What hosts would gain if the fast ports that lie idle between them had addresses."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from ipaddress import IPv4Interface

from medley.fabric import Wishes, fabric
from medley.fabric.idle import idle
from medley.fabric.speed import shown
from medley.facts import Facts
from medley.facts.net import Address, Link
from medley.facts.rdma import Gid
from medley.layout.choose import Choice, score
from medley.layout.words import named
from medley.link.settings import Asked, Setting, settings
from medley.placement import Wanted, placement
from medley.predict import Prediction
from medley.problem import Problem
from medley.site import Site
from medley.tables import Shape

_WORTH = 1.05
"""Predictions that are nearer than this are equal."""


def gain(shape: Shape, site: Site, wanted: Wanted, choice: Choice[Prediction]) -> Iterator[str]:
    """In a sentence what to type and how fast it would be; nothing where it would be no faster."""
    found = _idle(site, wanted.wishes)
    if not found or wanted.wishes.transport == "tcp":
        return
    try:
        better = placement(shape, _with_addresses(site, found), wanted)
    except Problem:
        return
    now, then = (score(wanted.goal, each.prediction) for each in (choice, better))
    if then >= _WORTH * now and better.prediction.fitted:
        speed = shown(max(link.mbit or 0 for links in found.values() for link in links))
        yield (
            f"{', '.join(found)} have fast ports that lie idle ({speed}): with addresses on them "
            f"{then:.1f} tokens/s instead of {now:.1f} ({named(better.layout)}); "
            "on each: sudo medley link setup"
        )


def _idle(site: Site, wishes: Wishes) -> dict[str, tuple[Link, ...]]:
    """Of hosts that can talk already; those that cannot have a Problem that says how to join them."""
    if len(site.hosts) == 1:
        return {}
    try:
        ends = fabric(site.facts, site.wishes(wishes)).ends
    except Problem:
        ends = {}
    return idle(site.facts, ends)


def _with_addresses(site: Site, found: Mapping[str, tuple[Link, ...]]) -> Site:
    """As medley link setup would have them, each host with a number of its own."""
    hosts = dict(site.hosts)
    for number, host in enumerate(found, 1):
        facts, kind = hosts[host]
        hosts[host] = (_addressed(facts, settings(facts, Asked(number=number), {})), kind)
    return replace(site, hosts=hosts)


def _addressed(facts: Facts, wanted: tuple[Setting, ...]) -> Facts:
    by_name = {each.interface: each for each in wanted}

    def of_link(link: Link) -> Link:
        if link.name not in by_name:
            return link
        at = IPv4Interface(by_name[link.name].address)
        address = Address(str(at.ip), at.network.prefixlen)
        return replace(link, addresses=(address,), mtu=by_name[link.name].mtu)

    ports = tuple(
        replace(port, gids=(*port.gids, _gid(by_name[port.interface]))) if port.interface in by_name else port
        for port in facts.rdma
    )
    links = tuple(map(of_link, facts.net.links))
    return replace(facts, net=replace(facts.net, links=links), rdma=ports)


def _gid(setting: Setting) -> Gid:
    """The RoCE v2 row that the kernel makes of an address."""
    ip = str(IPv4Interface(setting.address).ip)
    return Gid(3, f"::ffff:{ip}", "RoCE v2", setting.interface, ip)
