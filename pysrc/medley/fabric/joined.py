"""Hosts that Ray knows by addresses of one network may share a better one for NCCL: a cable.

Sockets stay where Ray is, because vLLM waits for a host at the address that Ray knows. RDMA needs sockets
only to set up its connections.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from medley.fabric.shapes import Fabric, Wishes
from medley.facts import Facts
from medley.problem import Problem

Find = Callable[[Wishes], Fabric]


def over_cable(hosts: Mapping[str, Facts], wishes: Wishes, find: Find) -> Fabric:
    """The fabric at the addresses that Ray knows, with RDMA over another network where that is faster."""
    at = replace(wishes, link=wishes.joined, joined=None)
    if wishes.transport == "tcp":
        return find(at)
    base = find(replace(at, transport=None))
    if base.transport != "tcp":
        return base
    try:
        cable = find(replace(wishes, joined=None, transport="rdma"))
    except Problem:
        return find(at)  # raises what keeps RDMA from this network, where it was asked for
    hca = _hca(hosts, cable)
    faster = all((cable.ends[host].mbit or 0) > (base.ends[host].mbit or 0) for host in hosts)
    return _made(base, cable, hca) if hca and (faster or wishes.transport == "rdma") else find(at)


def _hca(hosts: Mapping[str, Facts], cable: Fabric) -> str | None:
    """The ports of all hosts by name; None where a host would take the wrong one."""
    every = sorted({port.named for end in cable.ends.values() for port in end.ports})
    for host, facts in hosts.items():
        own = {port.named for port in cable.ends[host].ports}
        if {port.named for port in facts.rdma} & set(every) != own:
            return None
    return ",".join(every) or None


def _made(base: Fabric, cable: Fabric, hca: str) -> Fabric:
    ends = {
        host: replace(end, mbit=cable.ends[host].mbit, ports=cable.ends[host].ports, gid_index=None)
        for host, end in base.ends.items()
    }
    shared = ", ".join(cable.networks)
    why = f"RDMA over {shared}, which these hosts share; Ray and sockets stay in {base.networks[0]}"
    return replace(
        cable,
        ends=ends,
        networks=(*base.networks[:1], *cable.networks),
        hca=hca,
        why=(why, *cable.why),
        rejected=base.rejected,
    )
