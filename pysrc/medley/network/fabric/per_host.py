"""Choose the endpoint and variables of a head, a worker or a single host.

A head starts before the others join, so `ray start` sets only a host's own variables; those of the group are
set when a model starts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Interface

from medley.command import Variable
from medley.errors import Finding, Problem
from medley.host.facts import Facts
from medley.host.hypothetical import readdressed
from medley.network.fabric import fabric, findings, subnets, types
from medley.network.fabric.endpoints import Candidates, EndpointCandidate, Group, endpoint_candidates
from medley.network.fabric.subgroups import faster_subgroups
from medley.network.fabric.subnets import Shared
from medley.network.fabric.transport import muddles, unmuddled
from medley.network.fabric.types import Endpoint, Fabric, NetworkOptions, RejectedLink
from medley.network.fabric.variables import of_group, of_host, settled

_PEER = "its mirror image"  # not a possible host name


@dataclass(frozen=True)
class LoneHost:
    ways: Candidates
    rejected: tuple[RejectedLink, ...]
    findings: tuple[Finding, ...] = ()


def alone(host: str, facts: Facts, options: NetworkOptions) -> LoneHost:
    """Find the links of this host for a group; raise a Problem without the link that the user named."""
    found, unfit = endpoint_candidates(host, facts, options)
    group = Group({host: facts}, {host: found}, options)
    usable = list(unmuddled(subnets.shared(group.wanted()), group))
    if options.transport == "rdma":
        usable.sort(key=lambda one: not one.rdma)
    ranked = tuple(one.ways[0] for one in usable)
    every = subnets.shared(group.ways)
    pairs = [pair for one in every for pair in subnets.muddled(one, group.hosts)]
    taken = {way.link.name for way in ranked}
    rest = {way.link.name: way for way in reversed(found) if way.link.name not in taken}
    lost = [RejectedLink(host, name, _why(way, group, every, pairs)) for name, way in rest.items()]
    # Do not report an interface that the user left out.
    whole = options.link is None and not options.exclude
    noted = (
        *muddles(every, group),
        *findings.of_host(
            facts, ranked, slowest=whole, known={way.link.name for pair in pairs for way in pair}
        ),
        *_idle(host, facts, ranked),
    )
    return LoneHost(ranked, tuple(sorted((*unfit, *lost), key=lambda one: one.interface)), noted)


def _idle(host: str, facts: Facts, ranked: Candidates) -> Iterator[Finding]:
    """Yield fast ports without an address, unless another fast port is used."""
    named = {way.link.name for way in ranked}
    free = findings.idle_ports({host: facts}, {}).get(host, ())
    left = tuple(link for link in free if link.name not in named and not link.addresses)
    if left and not any((way.link.mbit or 0) >= types.FAST_MBIT for way in ranked):
        yield findings.idle_finding({host: left})


def _why(
    way: EndpointCandidate,
    group: Group,
    every: list[Shared],
    muddled: list[tuple[EndpointCandidate, EndpointCandidate]],
) -> str:
    if not group.is_wanted(way):
        return f"you asked for {group.options.link_of(way.host)}"
    if pair := next((pair for pair in muddled if way in pair), None):
        names = " and ".join(each.link.name for each in pair)
        return f"{names} are both in {way.network}, and each may answer for the other"
    first = next((one.ways[0] for one in every if way.ip in one.network), way)
    if first.wired and not way.wired:
        return f"Wi-Fi, and {first.link.name} is a cabled link to the same network"
    return f"{first.link.name} is in {way.network} too, and is preferred"


def foreseen(host: str, facts: Facts, options: NetworkOptions) -> Fabric:
    """Choose the fabric of this host and a mirror image of it."""
    found, rejected = endpoint_candidates(host, facts, options)
    if not found:
        shown = "; ".join(f"{one.interface}: {one.why}" for one in rejected)
        raise Problem(
            "this host has no address that other hosts can reach",
            cause=shown or "it has no network interface",
            fix="bring a link up (ip -brief link), or name one: --link INTERFACE",
        )
    one_sided = replace(options, link={host: options.link} if isinstance(options.link, str) else options.link)
    both = fabric({host: facts, _PEER: readdressed(facts, _neighbor)}, one_sided)
    return replace(
        both,
        ends={host: both.ends[host]},
        findings=(),
        rejected=tuple(one for one in both.rejected if one.host == host),
    )


def _neighbor(at: IPv4Interface) -> str:
    following = IPv4Address(int(at.ip) + 1) if int(at.ip) < 2**32 - 1 else at.ip
    fits = following in at.network and following != at.network.broadcast_address
    return str(following if fits else IPv4Address(int(at.ip) - 1))


@dataclass(frozen=True)
class HostNetwork:
    end: Endpoint
    variables: tuple[Variable, ...]
    why: tuple[str, ...]
    findings: tuple[Finding, ...] = ()

    def said(self) -> Iterator[str]:
        yield f"{self.end.interface} ({self.end.address}): {'; '.join(self.why)}"
        yield from map(str, self.findings)


def head_network(
    name: str, facts: Facts, options: NetworkOptions, environment: Mapping[str, str]
) -> HostNetwork:
    """Choose the fastest link of this host, unless the user names one."""
    found = _by_version(foreseen(name, facts, options))
    end = found.ends[name]
    rest = (f"not {one.interface}: {one.why}" for one in found.rejected if one.interface != "lo")
    why = "named with --link" if options.link else "the fastest link of this host"
    return HostNetwork(end, settled(of_host(found, name, facts), environment), (why, *rest))


def worker_network(
    hosts: Mapping[str, Facts],
    name: str,
    head: tuple[str, str],
    options: NetworkOptions,
    environment: Mapping[str, str],
) -> HostNetwork:
    """Find how this host reaches the head, given as (name, address)."""
    links = {head[0]: head[1], **({name: options.link} if isinstance(options.link, str) else {})}
    try:
        found = _by_version(fabric(hosts, replace(options, link=links)))
    except Problem as problem:
        raise _apart(hosts, options, head, problem) from problem
    faster = tuple(_faster(hosts, options, found)) if options.link is None else ()
    variables = settled(of_host(found, name, hosts[name]), environment)
    return HostNetwork(found.ends[name], variables, found.why, (*found.findings, *faster))


def running_cluster_network(
    hosts: Mapping[str, Facts],
    addresses: Mapping[str, str],
    here: str,
    options: NetworkOptions,
    environment: Mapping[str, str],
) -> tuple[Fabric, tuple[Variable, ...]]:
    """Find the fabric of a cluster whose hosts have these addresses in Ray, and its engine's variables."""
    found = _by_version(fabric(hosts, replace(options, link=None, joined=dict(addresses))))
    ours = (*of_host(found, here, hosts[here]), *of_group(found, hosts))
    return found, settled(ours, environment)


def new_cluster_network(
    hosts: Mapping[str, Facts], options: NetworkOptions
) -> tuple[Mapping[str, Endpoint], Mapping[str, tuple[Variable, ...]], tuple[str, ...]]:
    """Return each host's end, the variables of its Ray, and the reasons."""
    if len(hosts) == 1:
        ((name, facts),) = hosts.items()
        alone = head_network(name, facts, replace(options, link=options.link_of(name)), {})
        return {name: alone.end}, {name: alone.variables}, tuple(alone.said())
    found = _by_version(fabric(hosts, options))
    variables = {name: settled(of_host(found, name, facts), {}) for name, facts in hosts.items()}
    subgroups, idle = faster_subgroups(hosts, found, options)
    return found.ends, variables, (*found.why, *map(str, (*subgroups, *found.findings, *idle)))


def _by_version(found: Fabric) -> Fabric:
    """Remove the GID's index, which a later host may not share; NCCL >= 2.21 finds it by RoCE version."""
    return replace(found, ends={host: replace(end, gid_index=None) for host, end in found.ends.items()})


def _apart(
    hosts: Mapping[str, Facts], options: NetworkOptions, head: tuple[str, str], problem: Problem
) -> Problem:
    """Explain a host that shares another network with the head."""
    try:
        other = fabric(hosts, options).ends[head[0]]
    except Problem:
        return problem
    return Problem(
        f"this host cannot reach {head[0]} at {head[1]}, its cluster's address",
        cause=f"{problem.cause}; both are in the network of {other.address} ({other.interface} there)",
        fix=f"on {head[0]}: medley ray-stop; medley ray-head --link {other.interface}",
    )


def _faster(hosts: Mapping[str, Facts], options: NetworkOptions, found: Fabric) -> Iterator[Finding]:
    best = fabric(hosts, options)
    for name, end in best.ends.items():
        now = found.ends[name]
        if end.address != now.address and (end.mbit or 0) > (now.mbit or 0):
            yield Finding(
                f"{name} shares a faster link with this cluster's hosts",
                f"{end.interface} carries {end.mbit} Mbit/s, {now.interface} {now.mbit}",
                f"medley ray-stop on all hosts, then on the head: medley ray-head --link {best.networks[0]}",
            )
            return
