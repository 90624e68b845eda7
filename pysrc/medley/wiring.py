"""A wiring is how a host meets its cluster: its end of the fabric, and the variables that follow from it.

A head starts before it knows the others, a worker knows the head, and who serves knows them all. So what is
set at `ray start` is a host's own, and what is the group's is set when a model starts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from medley.fabric import End, Fabric, Finding, Wishes, fabric
from medley.fabric.foreseen import foreseen
from medley.fabric.variables import of_group, of_host, settled
from medley.facts import Facts
from medley.problem import Problem
from medley.variables import Variable


@dataclass(frozen=True)
class Wiring:
    end: End
    variables: tuple[Variable, ...]
    why: tuple[str, ...]
    findings: tuple[Finding, ...] = ()

    def said(self) -> Iterator[str]:
        """For people: the wire and why, and what could be better."""
        yield f"{self.end.interface} ({self.end.address}): {'; '.join(self.why)}"
        for each in self.findings:
            yield f"{each.what}: {each.cause}; {each.fix}"


def of_head(name: str, facts: Facts, wishes: Wishes, environment: Mapping[str, str]) -> Wiring:
    """The fastest way out of this host, unless the user names one."""
    found = _by_version(foreseen(name, facts, wishes))
    end = found.ends[name]
    rest = (f"not {one.interface}: {one.why}" for one in found.rejected if one.interface != "lo")
    why = "as --link says" if wishes.link else "the fastest way out of this host"
    return Wiring(end, settled(of_host(found, name, facts), environment), (why, *rest))


def of_worker(
    hosts: Mapping[str, Facts],
    name: str,
    head: tuple[str, str],
    wishes: Wishes,
    environment: Mapping[str, str],
) -> Wiring:
    """How this host reaches the head, given as (name, address), on the wire that the head has chosen."""
    links = {head[0]: head[1], **({name: wishes.link} if isinstance(wishes.link, str) else {})}
    try:
        found = _by_version(fabric(hosts, replace(wishes, link=links)))
    except Problem as problem:
        raise _apart(hosts, wishes, head, problem) from problem
    faster = tuple(_faster(hosts, wishes, found)) if wishes.link is None else ()
    variables = settled(of_host(found, name, hosts[name]), environment)
    return Wiring(found.ends[name], variables, found.why, (*found.findings, *faster))


def of_all(
    hosts: Mapping[str, Facts],
    addresses: Mapping[str, str],
    here: str,
    wishes: Wishes,
    environment: Mapping[str, str],
) -> tuple[Fabric, tuple[Variable, ...]]:
    """The fabric of a cluster whose hosts have joined by these addresses, and what its engine needs."""
    found = _by_version(fabric(hosts, replace(wishes, link=None, joined=dict(addresses))))
    ours = (*of_host(found, here, hosts[here]), *of_group(found, hosts))
    return found, settled(ours, environment)


def of_cluster(
    hosts: Mapping[str, Facts], wishes: Wishes
) -> tuple[Mapping[str, End], Mapping[str, tuple[Variable, ...]], tuple[str, ...]]:
    """The wire of hosts that are to be a cluster: each one's end, what its Ray is started with, and why."""
    if len(hosts) == 1:
        ((name, facts),) = hosts.items()
        link = wishes.link.get(name) if isinstance(wishes.link, Mapping) else wishes.link
        alone = of_head(name, facts, replace(wishes, link=link), {})
        return {name: alone.end}, {name: alone.variables}, tuple(alone.said())
    found = _by_version(fabric(hosts, wishes))
    variables = {name: settled(of_host(found, name, facts), {}) for name, facts in hosts.items()}
    findings = (f"{each.what}: {each.cause}; {each.fix}" for each in found.findings)
    return found.ends, variables, (*found.why, *findings)


def _by_version(found: Fabric) -> Fabric:
    """Without the GID's index: hosts come one by one, and what is set on one may not fit the next.

    NCCL 2.21 and later finds the GID by RoCE version and address family, which are set for the group instead.
    """
    return replace(found, ends={host: replace(end, gid_index=None) for host, end in found.ends.items()})


def _apart(hosts: Mapping[str, Facts], wishes: Wishes, head: tuple[str, str], problem: Problem) -> Problem:
    """They may share another network than the one that the head is on."""
    try:
        other = fabric(hosts, wishes).ends[head[0]]
    except Problem:
        return problem
    return Problem(
        f"this host cannot reach {head[0]} at {head[1]}, where its cluster is",
        cause=f"{problem.cause}; both are in the network of {other.address} ({other.interface} there)",
        fix=f"on {head[0]}: medley ray-stop; medley ray-head --link {other.interface}",
    )


def _faster(hosts: Mapping[str, Facts], wishes: Wishes, found: Fabric) -> Iterator[Finding]:
    """Whether the hosts share a better wire than the head's."""
    best = fabric(hosts, wishes)
    for name, end in best.ends.items():
        now = found.ends[name]
        if end.address != now.address and (end.mbit or 0) > (now.mbit or 0):
            yield Finding(
                f"{name} has a faster link in common with this cluster's hosts",
                f"{end.interface} carries {end.mbit} Mbit/s, {now.interface} {now.mbit}",
                f"medley ray-stop on all hosts, then on the head: medley ray-head --link {best.networks[0]}",
            )
            return
