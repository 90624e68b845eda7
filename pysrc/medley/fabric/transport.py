"""The transport is RDMA where every host of the group can, else TCP for all: a mixed group hangs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from medley.fabric import findings, nccl
from medley.fabric.networks import Shared, are_twins, cable_mbit, cables, crossed, muddled, of_twins, rails
from medley.fabric.shapes import Finding
from medley.fabric.speed import shown
from medley.fabric.ways import Group, Way
from medley.problem import Problem


@dataclass(frozen=True)
class Carried:
    """What carries the group's data: the networks side by side, and by host its ways on them."""

    rdma: bool
    ways: Mapping[str, tuple[Way, ...]]
    why: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    ring: bool = False
    pair_mbit: int | None = None
    """In a ring: between the slowest two hosts."""
    subnet_bits: int | None = None


def carried(best: Shared, others: list[Shared], group: Group) -> Carried:
    """`best` is where sockets go; `others` are all networks that all hosts share."""
    if silent := [host for host in sorted(group.hosts) if not nccl.speaks(group.hosts[host])]:
        return _tcp(best, others, f"TCP: no GPU on {', '.join(silent)}, and Gloo speaks nothing else")
    ring = _ring(best, group)
    if ring and ring.rdma:
        return ring
    extra = ring.findings if ring else ()
    if group.wishes.transport == "tcp":
        return _tcp(best, others, "TCP: you asked for it")
    if best.rdma:
        return _rdma(best, others, group.version)
    lacking = ring.findings[0].what if ring else _lacking(best)
    if group.wishes.transport == "rdma":
        raise _no_rdma(lacking, best)
    return _tcp(best, others, f"TCP on all hosts: {lacking}", extra)


def _rdma(best: Shared, others: list[Shared], version: tuple[int, ...]) -> Carried:
    side = rails(best, others, rdma=True)
    noted: tuple[Finding, ...] = ()
    if len(side) > 1 and crossed(side) and version < nccl.SUBNET_AWARE:
        noted, side = (findings.crossed(best),), [best]
    layer = best.ways[0].port.link_layer if best.ways[0].port else None
    sort = "InfiniBand" if layer == "InfiniBand" else "RoCE v2"
    why = f"RDMA: {sort} is ACTIVE on every host in {_named(side)}"
    return Carried(rdma=True, ways=_by_host(side), why=(why,), findings=noted)


def _tcp(best: Shared, others: list[Shared], why: str, noted: tuple[Finding, ...] = ()) -> Carried:
    ways = _by_host(rails(best, others, rdma=False))
    return Carried(rdma=False, ways=ways, why=(why,), findings=noted)


def _ring(best: Shared, group: Group) -> Carried | None:
    """RDMA over a cable for each pair, where that beats the network that all share; else None."""
    wishes, version = group.wishes, group.version
    if len(group.hosts) < 3 or wishes.transport == "tcp" or wishes.link is not None:  # noqa: PLR2004 - no pair
        return None
    cabled = cables(group.ways, group.hosts)
    mbit = cable_mbit(cabled) if cabled else 0
    if cabled is None or mbit <= best.mbit:
        return None
    if version < nccl.SUBNET_AWARE:
        finding = findings.old_for_ring(version, mbit)
        if wishes.transport == "rdma" and not best.rdma:
            raise Problem(finding.what, cause=finding.cause, fix=finding.fix)
        return Carried(rdma=False, ways={}, why=(), findings=(finding,))
    bits = _subnet_bits([one for networks in cabled.values() for one in networks])
    if bits is None:
        return None
    ways = {host: _ways_of(host, networks) for host, networks in cabled.items()}
    why = (f"RDMA over a ring: a cable of {shown(mbit)} joins each pair of hosts",)
    return Carried(rdma=True, ways=ways, why=why, ring=True, pair_mbit=mbit, subnet_bits=bits)


def _ways_of(host: str, networks: list[Shared]) -> tuple[Way, ...]:
    found = {way.link.name: way for one in networks for way in one.ways if way.host == host}
    return tuple(sorted(found.values(), key=_bus))


def _subnet_bits(networks: list[Shared]) -> int | None:
    """NCCL compares addresses by one prefix length, 24 unless told: it must tell the cables apart."""
    bits: int
    for bits in (24, *range(31, 0, -1)):
        masks = [{int(way.ip) >> (32 - bits) for way in one.ways} for one in set(networks)]
        whole = all(len(mask) == 1 for mask in masks)
        if whole and not any(one & other for one, other in combinations(masks, 2)):
            return bits
    return None


def _by_host(side: list[Shared]) -> dict[str, tuple[Way, ...]]:
    found: dict[str, tuple[Way, ...]] = {}
    for ways in zip(*(one.ways for one in side), strict=True):
        found[ways[0].host] = ways
    return found


def _named(side: list[Shared]) -> str:
    return " and ".join(str(one.network) for one in side)


def _lacking(best: Shared) -> str:
    lacking = [f"{way.host}: {way.no_rdma}" for way in best.ways if way.port is None]
    return "; ".join(lacking) or "some hosts have InfiniBand there, others RoCE"


def _no_rdma(lacking: str, best: Shared) -> Problem:
    return Problem(
        f"not every host can do RDMA in {best.network}",
        cause=lacking,
        fix="rdma link; ibv_devinfo -v on these hosts; or let all use TCP: --transport tcp",
    )


def unmuddled(found: list[Shared], group: Group) -> Iterator[Shared]:
    """Networks where no host has two links that could be taken for each other, or those that the user named.

    With both halves of a cage in one network, one of them carries: each leads down the same cable.
    """
    for one in found:
        pairs = muddled(one, group.hosts)
        halves = all(are_twins(*pair, group.hosts[pair[0].host]) for pair in pairs)
        if halves or all(group.wishes.link_of(way.host) for way in one.ways):
            yield one


def muddles(found: list[Shared], group: Group) -> Iterator[Finding]:
    """What parts two links of one host that are in one subnet."""
    taken = [way.network for each in group.ways.values() for way in each]
    for one in found:
        for first, second in muddled(one, group.hosts):
            apart = [to for mate in one.ways for to in of_twins(mate, group)]
            yield findings.one_subnet(first, second, min(apart, default=None), taken)


def _bus(way: Way) -> tuple[str, str]:
    return ((way.port.pci or "") if way.port else "", way.link.name)
