"""Choose RDMA and its ports where every host can, else TCP."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from medley.errors import Finding, Problem
from medley.network.fabric import findings, types
from medley.network.fabric.endpoints import Candidates, Group
from medley.network.fabric.subnets import (
    Shared,
    are_twins,
    cable_mbit,
    cables,
    crossed,
    muddled,
    of_twins,
    rails,
)
from medley.network.fabric.types import speed_text


@dataclass(frozen=True)
class Carried:
    """How the group's data travels: by host its ways on the networks used side by side."""

    rdma: bool
    ways: Mapping[str, Candidates]
    why: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    ring: bool = False
    pair_mbit: int | None = None
    subnet_bits: int | None = None

    @property
    def every(self) -> Candidates:
        return tuple(way for ways in self.ways.values() for way in ways)


def carried(best: Shared, others: list[Shared], group: Group) -> Carried:
    """`best` is where sockets go; `others` are all networks that all hosts share."""
    if silent := [host for host in sorted(group.hosts) if not types.nccl_speaks(group.hosts[host])]:
        return _tcp(best, others, f"TCP: no GPU on {', '.join(silent)}, and Gloo speaks nothing else")
    ring = _ring(best, group)
    if isinstance(ring, Carried):
        return ring
    if group.options.transport == "tcp":
        return _tcp(best, others, "TCP: you asked for it")
    if best.rdma:
        return _rdma(best, others, group.options.nccl)
    each = [f"{way.host}: {way.no_rdma}" for way in best.ways if way.port is None]
    lacking = "; ".join(each) or "some hosts have InfiniBand there, others RoCE"
    lacking = ring.what if ring else lacking
    if group.options.transport == "rdma":
        raise Problem(
            f"not every host can do RDMA in {best.network}",
            cause=lacking,
            fix="rdma link; ibv_devinfo -v on these hosts; or let all use TCP: --transport tcp",
        )
    return _tcp(best, others, f"TCP on all hosts: {lacking}", (ring,) if ring else ())


def _rdma(best: Shared, others: list[Shared], version: tuple[int, ...]) -> Carried:
    side = rails(best, others, rdma=True)
    noted: tuple[Finding, ...] = ()
    if len(side) > 1 and crossed(side) and version < types.SUBNET_AWARE:
        noted, side = (findings.crossed(best),), [best]
    layer = best.ways[0].port.link_layer if best.ways[0].port else None
    sort = "InfiniBand" if layer == "InfiniBand" else "RoCE v2"
    networks = " and ".join(str(one.network) for one in side)
    why = f"RDMA: {sort} is ACTIVE on every host in {networks}"
    return Carried(rdma=True, ways=_by_host(side), why=(why,), findings=noted)


def _tcp(best: Shared, others: list[Shared], why: str, noted: tuple[Finding, ...] = ()) -> Carried:
    ways = _by_host(rails(best, others, rdma=False))
    return Carried(rdma=False, ways=ways, why=(why,), findings=noted)


def _ring(best: Shared, group: Group) -> Carried | Finding | None:
    """RDMA over a cable for each pair where that beats the network that all share, or why it cannot be."""
    options = group.options
    if len(group.hosts) < 3 or options.transport == "tcp" or options.link is not None:  # noqa: PLR2004 - no pair
        return None
    pairs = cables(group.ways, group.hosts)
    mbit = cable_mbit(pairs) if pairs else 0
    if mbit <= best.mbit:
        return None
    if options.nccl < types.SUBNET_AWARE:
        finding = findings.old_for_ring(options.nccl, mbit)
        if options.transport == "rdma" and not best.rdma:
            raise Problem(finding.what, cause=finding.cause, fix=finding.fix)
        return finding
    networks = [one for between in pairs for one in between]
    bits = _subnet_bits(networks)
    if bits is None:
        return None
    ways = {}
    for host in group.ways:
        own = {way.link.name: way for one in networks for way in one.ways if way.host == host}
        in_order = sorted(own.values(), key=lambda way: ((way.port and way.port.pci) or "", way.link.name))
        ways[host] = tuple(in_order)
    why = (f"RDMA over a ring: a cable of {speed_text(mbit)} joins each pair of hosts",)
    return Carried(rdma=True, ways=ways, why=why, ring=True, pair_mbit=mbit, subnet_bits=bits)


def _subnet_bits(networks: list[Shared]) -> int | None:
    """NCCL compares addresses by one prefix length, 24 unless told: it must tell the cables apart."""
    bits: int
    for bits in (24, *range(31, 0, -1)):
        masks = [{int(way.ip) >> (32 - bits) for way in one.ways} for one in networks]
        whole = all(len(mask) == 1 for mask in masks)
        if whole and not any(one & other for one, other in combinations(masks, 2)):
            return bits
    return None


def _by_host(side: list[Shared]) -> dict[str, Candidates]:
    return {ways[0].host: ways for ways in zip(*(one.ways for one in side), strict=True)}


def unmuddled(found: list[Shared], group: Group) -> Iterator[Shared]:
    """Networks where no host has two links that could be taken for each other, or those that the user named.

    With both halves of a cage in one network, one of them carries: each leads down the same cable.
    """
    for one in found:
        pairs = muddled(one, group.hosts)
        halves = all(are_twins(*pair, group.hosts[pair[0].host]) for pair in pairs)
        if halves or all(group.options.link_of(way.host) for way in one.ways):
            yield one


def muddles(found: list[Shared], group: Group) -> Iterator[Finding]:
    """Say how to separate two links of one host that are in one subnet."""
    taken = [way.network for each in group.ways.values() for way in each]
    for one in found:
        for first, second in muddled(one, group.hosts):
            apart = [to for mate in one.ways for to in of_twins(mate, group)]
            yield findings.one_subnet(first, second, min(apart, default=None), taken)
