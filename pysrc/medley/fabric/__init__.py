"""The fabric is which links of these hosts can talk, how fast, RDMA or TCP: one transport for the group."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations

from medley.fabric import findings, idle, nccl, networks, speed
from medley.fabric.joined import over_cable
from medley.fabric.networks import Shared
from medley.fabric.rejections import rejections
from medley.fabric.shapes import End, Fabric, Finding, Rejected, Wishes
from medley.fabric.transport import Carried, carried, muddles, unmuddled
from medley.fabric.ways import Group, Way, ways
from medley.facts import Facts
from medley.problem import Problem

__all__ = ["End", "Fabric", "Finding", "Rejected", "Wishes", "fabric"]

_ANYTHING = Wishes()
_LOOPBACK_MTU = 65536


def fabric(
    hosts: Mapping[str, Facts], wishes: Wishes = _ANYTHING, *, version: tuple[int, ...] = nccl.LOCKED
) -> Fabric:
    """The fabric of these hosts, or a Problem that says what keeps them apart; `version` is NCCL's."""
    if wishes.joined and len(hosts) > 1:
        return over_cable(hosts, wishes, lambda each: fabric(hosts, each, version=version))
    looked = {host: ways(host, hosts[host], wishes) for host in sorted(hosts)}
    group = Group(hosts, {host: each[0] for host, each in looked.items()}, wishes, version)
    unfit = tuple(one for host in looked for one in looked[host][1])
    if len(hosts) < 2:  # noqa: PLR2004 - a group
        return _alone(group, unfit)
    everywhere = networks.shared(group.named())
    usable = list(unmuddled(everywhere, group))
    if not usable:
        return _without_network(group, everywhere, unfit)
    best = next((one for one in usable if one.rdma and wishes.transport == "rdma"), usable[0])
    every = networks.shared(group.ways)
    data = carried(best, list(_side(best, every, group)), group)
    ends = {way.host: way for way in best.ways}
    seen = (*muddles([*everywhere, *every], group), *data.findings, *_noted(best, data, hosts))
    lost = rejections(group, _taken(ends, data), best, usable)
    return _made(hosts, ends, data, best=best, findings=seen, rejected=(*unfit, *lost))


def _side(best: Shared, every: list[Shared], group: Group) -> Iterator[Shared]:
    """What may carry beside the best; where the user named a link, the other lanes of its cage alone."""
    for one in unmuddled(every, group):
        if group.wishes.link is None or networks.of_one_cage(best, one):
            yield one


def _made(
    hosts: Mapping[str, Facts],
    sockets: Mapping[str, Way],
    data: Carried,
    *,
    best: Shared | None,
    findings: tuple[Finding, ...],
    rejected: tuple[Rejected, ...],
) -> Fabric:
    used = {str(way.network) for ways in data.ways.values() for way in ways}
    ends = {host: _end(sockets[host], data, host) for host in hosts}
    unused = idle.idle(hosts, ends)
    first = str(best.network) if best else None
    return Fabric(
        transport="rdma" if data.rdma else "tcp",
        ends=ends,
        networks=((first,) if first else ()) + tuple(sorted(used - {first})),
        ring=data.ring,
        subnet_bits=data.subnet_bits,
        why=(*_chosen(best), *data.why, *_gids(data)),
        findings=tuple(dict.fromkeys((*findings, *([idle.finding(unused)] if unused else [])))),
        rejected=tuple(sorted(rejected, key=lambda one: (one.host, one.interface))),
    )


def _end(way: Way, data: Carried, host: str) -> End:
    carrying = data.ways[host]
    indexes = {each.gid_index for each in carrying}
    end = End(
        way.link.name,
        str(way.ip),
        data.pair_mbit or _mbit(carrying),
        way.link.mtu,
        lanes=(way.link.name,),
    )
    if data.rdma:
        ports = {each.port.device: each.port for each in carrying if each.port}
        in_order = sorted(ports.values(), key=lambda port: (port.pci or "", port.device))
        return replace(end, ports=tuple(in_order), gid_index=indexes.pop() if len(indexes) == 1 else None)
    return replace(end, lanes=tuple(each.link.name for each in carrying))


def _mbit(carrying: tuple[Way, ...]) -> int | None:
    return speed.together_mbit((each.link, each.port, each.mbit) for each in carrying)


def _chosen(best: Shared | None) -> Iterator[str]:
    if best is None:
        return
    slow = min(best.ways, key=lambda way: (way.mbit, way.host))
    yield f"all hosts are in {best.network}: {speed.shown(slow.mbit)} at its slowest end ({slow.host})"


def _gids(data: Carried) -> Iterator[str]:
    if not data.rdma:
        return
    found = {way.gid_index for ways in data.ways.values() for way in ways}
    if len(found) > 1:
        shown = ", ".join(
            f"{host} {'/'.join(str(way.gid_index) for way in data.ways[host])}" for host in sorted(data.ways)
        )
        yield f"the GID's index differs ({shown}): NCCL is to pick it by RoCE version and address family"


def _taken(ends: Mapping[str, Way], data: Carried) -> dict[str, tuple[Way, ...]]:
    return {host: (ends[host], *data.ways[host]) for host in ends}


def _noted(best: Shared, data: Carried, hosts: Mapping[str, Facts]) -> Iterator[Finding]:
    yield from findings.mtus([*best.ways, *(way for ways in data.ways.values() for way in ways)])
    if not networks.muddled(best, hosts):
        yield from findings.doubled(best)
    yield from findings.odd_kinds(best.ways)
    speeds = {host: _mbit(data.ways[host]) or 0 for host in data.ways}
    told = {(way.host, way.link.name) for pair in networks.muddled(best, hosts) for way in pair}
    for host in sorted(data.ways):
        slowest = speeds[host] == min(speeds.values())
        known = {name for each, name in told if each == host}
        yield from findings.of_host(hosts[host], data.ways[host], slowest=slowest, told=known)


def _without_network(group: Group, everywhere: list[Shared], unfit: tuple[Rejected, ...]) -> Fabric:
    if muddle := list(muddles(everywhere, group)):
        raise Problem(
            "; ".join(each.what for each in muddle) + ": there is no other network",
            cause="; ".join(each.cause for each in muddle),
            fix="\n".join(each.fix for each in muddle),
        )
    chosen = networks.routed(group.named(), group.hosts)
    if chosen is None or group.wishes.transport == "rdma":
        raise _apart(group)
    why = ("these hosts share no subnet", "TCP: RDMA would need one")
    data = Carried(rdma=False, ways={way.host: (way,) for way in chosen}, why=why)
    ends = {way.host: way for way in chosen}
    lost = rejections(group, _taken(ends, data), None, [])
    noted = (findings.by_route(chosen), *findings.odd_kinds(chosen))
    return _made(group.hosts, ends, data, best=None, findings=noted, rejected=(*unfit, *lost))


def _apart(group: Group) -> Problem:
    named = group.named()
    if all(networks.shared({one: named[one], two: named[two]}) for one, two in combinations(named, 2)):
        return Problem(
            f"each two of {', '.join(named)} share a cable, but no network reaches all of them",
            cause=f"Ray, Gloo and NCCL's first words need one; {findings.addresses(named)}",
            fix="join the hosts' ordinary ports by a switch too; RDMA may then go over the cables",
        )
    return Problem(
        f"{', '.join(group.ways)} have no network in common",
        cause=findings.addresses(named),
        fix="join them by a cable or a switch, and give each an address in one subnet: "
        "sudo ip address add 192.168.100.1/24 dev INTERFACE (.2 on the next)",
    )


def _alone(group: Group, unfit: tuple[Rejected, ...]) -> Fabric:
    """One host talks to itself: whatever its links are, the loopback is always there."""
    rest = tuple(
        Rejected(way.host, name, "one host alone needs no network")
        for ways in group.ways.values()
        for name, way in {way.link.name: way for way in ways}.items()
    )
    end = End("lo", "127.0.0.1", None, _LOOPBACK_MTU, lanes=("lo",))
    return Fabric(
        transport="none",
        ends=dict.fromkeys(group.ways, end),
        why=("one host alone needs no network",),
        rejected=tuple(sorted((*unfit, *rest), key=lambda one: (one.host, one.interface))),
    )
