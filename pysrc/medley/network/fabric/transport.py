"""Choose RDMA and its ports where every host can, else TCP."""

from collections.abc import Iterator, Mapping

from medley.errors import Finding, Problem
from medley.network.fabric import findings, ring
from medley.network.fabric.endpoints import CandidateGroup, Candidates
from medley.network.fabric.nccl import SUBNET_AWARE_NCCL, has_nccl_gpu
from medley.network.fabric.subnets import (
    SharedNetwork,
    are_port_functions,
    find_ambiguous_links,
    is_port_order_crossed,
    list_second_function_subnets,
    select_rails,
)
from medley.values import Value


class DataPath(Value):
    """The transport of the group's data, and each host's candidates on the networks used in parallel."""

    is_rdma: bool
    candidates: Mapping[str, Candidates]
    why: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    is_ring: bool = False
    """Whether each pair of hosts has a cable of its own."""
    pair_mbit: int | None = None
    """The speed between two hosts of a ring; None without a ring."""
    subnet_bits: int | None = None
    """The prefix length by which NCCL separates the networks of a ring."""

    @property
    def all_candidates(self) -> Candidates:
        return tuple(way for ways in self.candidates.values() for way in ways)


def choose_data_path(best: SharedNetwork, others: list[SharedNetwork], group: CandidateGroup) -> DataPath:
    """Choose the transport; sockets use `best`, and `others` are all shared networks.

    Raise a Problem if the user asked for RDMA and a host cannot do it.
    """
    if hosts_without_gpu := [host for host in sorted(group.hosts) if not has_nccl_gpu(group.hosts[host])]:
        return _build_tcp_path(
            best, others, f"TCP: no GPU on {', '.join(hosts_without_gpu)}, and Gloo has no other transport"
        )
    ring_choice = ring.choose_ring(best, group)
    if isinstance(ring_choice, ring.Ring):
        subnet_bits = ring_choice.subnet_bits
        return DataPath(
            is_rdma=True,
            candidates=ring_choice.candidates,
            why=(ring_choice.why,),
            is_ring=True,
            pair_mbit=ring_choice.mbit,
            subnet_bits=subnet_bits,
        )
    if ring_choice and group.options.transport == "rdma" and not best.has_rdma:
        raise Problem(ring_choice.what, cause=ring_choice.cause, fix=ring_choice.fix)
    if group.options.transport == "tcp":
        return _build_tcp_path(best, others, "TCP: you asked for it")
    if best.has_rdma:
        return _build_rdma_path(best, others, group.options.nccl_version)
    reasons = [
        f"{candidate.host}: {candidate.no_rdma_reason}"
        for candidate in best.candidates
        if candidate.port is None
    ]
    lacking = "; ".join(reasons) or "some hosts use InfiniBand, others RoCE"
    lacking = ring_choice.what if ring_choice else lacking
    if group.options.transport == "rdma":
        raise Problem(
            f"not every host can do RDMA in {best.network}",
            cause=lacking,
            fix="rdma link; ibv_devinfo -v on these hosts; or use TCP on all hosts: --transport tcp",
        )
    return _build_tcp_path(
        best, others, f"TCP on all hosts: {lacking}", (ring_choice,) if ring_choice else ()
    )


def _build_rdma_path(best: SharedNetwork, others: list[SharedNetwork], version: tuple[int, ...]) -> DataPath:
    used_networks = select_rails(best, others, rdma=True)
    order_findings: tuple[Finding, ...] = ()
    if len(used_networks) > 1 and is_port_order_crossed(used_networks) and version < SUBNET_AWARE_NCCL:
        order_findings, used_networks = (findings.build_crossed_order_finding(best),), [best]
    link_layer = best.candidates[0].port.link_layer if best.candidates[0].port else None
    protocol = "InfiniBand" if link_layer == "InfiniBand" else "RoCE v2"
    networks = " and ".join(str(network.network) for network in used_networks)
    why = f"RDMA: {protocol} is ACTIVE on every host in {networks}"
    return DataPath(
        is_rdma=True, candidates=_group_by_host(used_networks), why=(why,), findings=order_findings
    )


def _build_tcp_path(
    best: SharedNetwork, others: list[SharedNetwork], why: str, extra_findings: tuple[Finding, ...] = ()
) -> DataPath:
    ways = _group_by_host(select_rails(best, others, rdma=False))
    return DataPath(is_rdma=False, candidates=ways, why=(why,), findings=extra_findings)


def _group_by_host(networks: list[SharedNetwork]) -> dict[str, Candidates]:
    return {
        candidates[0].host: candidates
        for candidates in zip(*(network.candidates for network in networks), strict=True)
    }


def list_unambiguous_networks(
    networks: list[SharedNetwork], group: CandidateGroup
) -> Iterator[SharedNetwork]:
    """Yield networks without two ambiguous links of a host, except interfaces of one port and named links."""
    for network in networks:
        pairs = find_ambiguous_links(network, group.hosts)
        are_functions = all(are_port_functions(*pair, group.hosts[pair[0].host]) for pair in pairs)
        if are_functions or all(group.options.find_link(candidate.host) for candidate in network.candidates):
            yield network


def list_ambiguity_findings(networks: list[SharedNetwork], group: CandidateGroup) -> Iterator[Finding]:
    """Yield how to separate two links of one host in one subnet."""
    used_subnets = [candidate.network for on_host in group.candidates.values() for candidate in on_host]
    for network in networks:
        for first, second in find_ambiguous_links(network, group.hosts):
            second_subnets = [
                subnet
                for candidate in network.candidates
                for subnet in list_second_function_subnets(candidate, group)
            ]
            yield findings.build_one_subnet_finding(
                first, second, min(second_subnets, default=None), used_subnets
            )
