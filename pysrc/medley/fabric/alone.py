"""A host alone has its ways in the order in which a group that shares all of its networks would take them."""

from collections.abc import Iterator
from dataclasses import dataclass

from medley.fabric import findings, idle, nccl, networks
from medley.fabric.networks import Shared
from medley.fabric.shapes import Finding, Rejected, Wishes
from medley.fabric.transport import muddles, unmuddled
from medley.fabric.ways import Group, Way, ways
from medley.facts import Facts
from medley.facts.net import Link


@dataclass(frozen=True)
class Alone:
    ways: tuple[Way, ...]
    """The best first."""
    rejected: tuple[Rejected, ...]
    """Every link that none of them is of."""
    findings: tuple[Finding, ...] = ()


def alone(host: str, facts: Facts, wishes: Wishes) -> Alone:
    """What this host would bring to a group; a Problem where it lacks the link that was asked for."""
    found, unfit = ways(host, facts, wishes)
    group = Group({host: facts}, {host: found}, wishes, nccl.LOCKED)
    usable = list(unmuddled(networks.shared(group.named()), group))
    if wishes.transport == "rdma":
        usable.sort(key=lambda one: not one.rdma)
    ranked = tuple(one.ways[0] for one in usable)
    lost = _lost(group, found, ranked)
    # What a half lacks that the user left out is no news.
    whole = wishes.link is None and not wishes.exclude
    every = networks.shared(group.ways)
    told = {way.link.name for one in every for pair in networks.muddled(one, group.hosts) for way in pair}
    noted = (
        *muddles(every, group),
        *findings.of_host(facts, ranked, slowest=whole, told=told),
        *([idle.finding(unused)] if (unused := _idle(host, facts, ranked)) else []),
    )
    return Alone(ranked, tuple(sorted((*unfit, *lost), key=lambda one: one.interface)), noted)


def _idle(host: str, facts: Facts, ranked: tuple[Way, ...]) -> dict[str, tuple[Link, ...]]:
    """Its fast ports without an address; where they are used or have one, another host may be there."""
    named = {way.link.name for way in ranked}
    free = idle.idle({host: facts}, {}).get(host, ())
    left = tuple(link for link in free if link.name not in named and not link.addresses)
    return {host: left} if left and not any((way.link.mbit or 0) >= idle.FAST_MBIT for way in ranked) else {}


def _lost(group: Group, found: tuple[Way, ...], ranked: tuple[Way, ...]) -> Iterator[Rejected]:
    kept = {way.link.name for way in ranked}
    every = networks.shared(group.ways)
    for name, way in {way.link.name: way for way in reversed(found) if way.link.name not in kept}.items():
        yield Rejected(way.host, name, _why(way, group, every))


def _why(way: Way, group: Group, every: list[Shared]) -> str:
    if not group.wished(way):
        return f"you asked for {group.wishes.link_of(way.host)}"
    pair = next((pair for one in every for pair in networks.muddled(one, group.hosts) if way in pair), None)
    if pair:
        names = " and ".join(each.link.name for each in pair)
        return f"{names} are both in {way.network}, and either may answer for the other"
    first = next((one.ways[0] for one in every if way.ip in one.network), way)
    if first.wired and not way.wired:
        return f"Wi-Fi, and {first.link.name} is a wire to the same network"
    return f"{first.link.name} is in {way.network} too, and comes first"
