"""Choose RDMA and its ports where every host can, else TCP."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from medley.errors import Finding, Problem
from medley.network.fabric import findings, ring, types
from medley.network.fabric.endpoints import Candidates, Group
from medley.network.fabric.subnets import Shared, are_twins, crossed, muddled, of_twins, rails


@dataclass(frozen=True)
class Carried:
    """The transport of the group's data, and each host's ways on the networks used in parallel."""

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
    """Choose the transport; sockets use `best`, and `others` are all shared networks."""
    if silent := [host for host in sorted(group.hosts) if not types.nccl_speaks(group.hosts[host])]:
        return _tcp(best, others, f"TCP: no GPU on {', '.join(silent)}, and Gloo has no other transport")
    over = ring.ring(best, group)
    if isinstance(over, ring.Ring):
        bits = over.subnet_bits
        return Carried(
            rdma=True, ways=over.ways, why=(over.why,), ring=True, pair_mbit=over.mbit, subnet_bits=bits
        )
    if over and group.options.transport == "rdma" and not best.rdma:
        raise Problem(over.what, cause=over.cause, fix=over.fix)
    if group.options.transport == "tcp":
        return _tcp(best, others, "TCP: you asked for it")
    if best.rdma:
        return _rdma(best, others, group.options.nccl)
    each = [f"{way.host}: {way.no_rdma}" for way in best.ways if way.port is None]
    lacking = "; ".join(each) or "some hosts use InfiniBand, others RoCE"
    lacking = over.what if over else lacking
    if group.options.transport == "rdma":
        raise Problem(
            f"not every host can do RDMA in {best.network}",
            cause=lacking,
            fix="rdma link; ibv_devinfo -v on these hosts; or use TCP on all hosts: --transport tcp",
        )
    return _tcp(best, others, f"TCP on all hosts: {lacking}", (over,) if over else ())


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


def _by_host(side: list[Shared]) -> dict[str, Candidates]:
    return {ways[0].host: ways for ways in zip(*(one.ways for one in side), strict=True)}


def unmuddled(found: list[Shared], group: Group) -> Iterator[Shared]:
    """Yield networks without two ambiguous links of a host, except interfaces of one port and named links."""
    for one in found:
        pairs = muddled(one, group.hosts)
        halves = all(are_twins(*pair, group.hosts[pair[0].host]) for pair in pairs)
        if halves or all(group.options.link_of(way.host) for way in one.ways):
            yield one


def muddles(found: list[Shared], group: Group) -> Iterator[Finding]:
    """Yield how to separate two links of one host in one subnet."""
    taken = [way.network for each in group.ways.values() for way in each]
    for one in found:
        for first, second in muddled(one, group.hosts):
            apart = [to for mate in one.ways for to in of_twins(mate, group)]
            yield findings.one_subnet(first, second, min(apart, default=None), taken)
