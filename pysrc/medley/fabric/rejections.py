"""Why a link was not taken, for every link of every host."""

from collections.abc import Iterator, Mapping

from medley.fabric.networks import Shared
from medley.fabric.shapes import Rejected
from medley.fabric.speed import shown
from medley.fabric.ways import Group, Way


def rejections(
    group: Group, chosen: Mapping[str, tuple[Way, ...]], best: Shared | None, others: list[Shared]
) -> Iterator[Rejected]:
    """Of the links that could have been taken; the others were rejected when they were looked at."""
    found = group.ways
    for host in sorted(found):
        taken = {way.link.name for way in chosen[host]}
        by_link = {way.link.name: way for way in reversed(found[host]) if way.link.name not in taken}
        for name in sorted(by_link):
            yield Rejected(host, name, _why(by_link[name], group, best, others))


def _why(way: Way, group: Group, best: Shared | None, others: list[Shared]) -> str:
    found = group.ways
    if not group.wished(way):
        return f"you asked for {group.wishes.link_of(way.host)}"
    if same := [
        host for host in sorted(found) if host != way.host and any(way.ip == w.ip for w in found[host])
    ]:
        return f"{', '.join(same)} has the same address {way.ip}"
    absent = [
        host for host in sorted(found) if not any(way.meets(w) or w.host == way.host for w in found[host])
    ]
    if len(absent) == len(found) - 1:
        return f"no other host of the group is in {way.network}"
    if absent:
        return f"{', '.join(absent)} is not in {way.network}"
    one = next((one for one in others if way in one.ways), None)
    if one is None:
        return _second(way, best, others)
    return _beaten(way, one, best)


def _second(way: Way, best: Shared | None, others: list[Shared]) -> str:
    first = next(
        (
            w
            for one in ([best] if best else []) + others
            for w in one.ways
            if w.host == way.host and w.ip in way.network
        ),
        None,
    )
    if first is None:
        return f"two links of one host are in {way.network}, and either may answer for the other"
    if not way.wired:
        return f"Wi-Fi, and {first.link.name} is a wire to the same network"
    return f"{first.link.name} is in {way.network} too, and is taken"


def _beaten(way: Way, one: Shared, best: Shared | None) -> str:
    if best is None:
        return f"{one.network} is not used"
    if not one.wired and best.wired:
        there = ", ".join(each.host for each in one.ways if not each.wired)
        wifi = "Wi-Fi" if not way.wired else f"{there} is there by Wi-Fi"
        return f"{wifi}, and a wire reaches all hosts in {best.network}"
    if one.mbit < best.mbit:
        slow = min(one.ways, key=lambda way: way.mbit)
        return f"{one.network} has {shown(slow.mbit)} at {slow.host}, {best.network} {shown(best.mbit)}"
    if best.rdma and not one.rdma:
        return f"as fast as {best.network}, which can do RDMA on every host"
    return f"no faster than {best.network}, which was taken for its MTU or its lower address"
