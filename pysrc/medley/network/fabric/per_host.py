"""A head's, worker's or lone host's endpoint and variables.

A head starts before it knows the others, a worker knows the head, and who serves knows them all. So what is
set at `ray start` is a host's own, and what is the group's is set when a model starts.
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
from medley.network.fabric.subnets import Shared
from medley.network.fabric.transport import muddles, unmuddled
from medley.network.fabric.types import Endpoint, Fabric, NetworkOptions, RejectedLink
from medley.network.fabric.variables import of_group, of_host, settled

_PEER = "its like"  # no host has this name


@dataclass(frozen=True)
class LoneHost:
    ways: Candidates
    """The best first."""
    rejected: tuple[RejectedLink, ...]
    """Every link that none of them is of."""
    findings: tuple[Finding, ...] = ()


def alone(host: str, facts: Facts, options: NetworkOptions) -> LoneHost:
    """Find what this host would bring to a group; a Problem where it lacks the link that was asked for."""
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
    # What a half lacks that the user left out is no news.
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
    """Its fast ports without an address; where they are used or have one, another host may be there."""
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
        return f"{names} are both in {way.network}, and either may answer for the other"
    first = next((one.ways[0] for one in every if way.ip in one.network), way)
    if first.wired and not way.wired:
        return f"Wi-Fi, and {first.link.name} is a wire to the same network"
    return f"{first.link.name} is in {way.network} too, and comes first"


def foreseen(host: str, facts: Facts, options: NetworkOptions) -> Fabric:
    """Choose the fabric of this host and its mirror image; a Problem where nothing leads out."""
    found, rejected = endpoint_candidates(host, facts, options)
    if not found:
        shown = "; ".join(f"{one.interface}: {one.why}" for one in rejected)
        raise Problem(
            "this host has no address that others could reach",
            cause=shown or "it has no network interface",
            fix="bring a link up (ip -brief link), or name one: --link INTERFACE",
        )
    one_sided = replace(options, link={host: options.link} if isinstance(options.link, str) else options.link)
    both = fabric({host: facts, _PEER: readdressed(facts, _neighbour)}, one_sided)
    return replace(
        both,
        ends={host: both.ends[host]},
        findings=(),
        rejected=tuple(one for one in both.rejected if one.host == host),
    )


def _neighbour(at: IPv4Interface) -> str:
    """The address after it; the one before, where that is the network's last."""
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
        yield from map(_text, self.findings)


def head_network(
    name: str, facts: Facts, options: NetworkOptions, environment: Mapping[str, str]
) -> HostNetwork:
    """Take the fastest way out of this host, unless the user names one."""
    found = _by_version(foreseen(name, facts, options))
    end = found.ends[name]
    rest = (f"not {one.interface}: {one.why}" for one in found.rejected if one.interface != "lo")
    why = "as --link says" if options.link else "the fastest way out of this host"
    return HostNetwork(end, settled(of_host(found, name, facts), environment), (why, *rest))


def worker_network(
    hosts: Mapping[str, Facts],
    name: str,
    head: tuple[str, str],
    options: NetworkOptions,
    environment: Mapping[str, str],
) -> HostNetwork:
    """Find how this host reaches the head, given as (name, address), on the network of its choice."""
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
    """Find the fabric of a cluster whose hosts have joined by these addresses, and its engine's variables."""
    found = _by_version(fabric(hosts, replace(options, link=None, joined=dict(addresses))))
    ours = (*of_host(found, here, hosts[here]), *of_group(found, hosts))
    return found, settled(ours, environment)


def new_cluster_network(
    hosts: Mapping[str, Facts], options: NetworkOptions
) -> tuple[Mapping[str, Endpoint], Mapping[str, tuple[Variable, ...]], tuple[str, ...]]:
    """Return each host's end, the variables that its Ray is started with, and why."""
    if len(hosts) == 1:
        ((name, facts),) = hosts.items()
        alone = head_network(name, facts, replace(options, link=options.link_of(name)), {})
        return {name: alone.end}, {name: alone.variables}, tuple(alone.said())
    found = _by_version(fabric(hosts, options))
    variables = {name: settled(of_host(found, name, facts), {}) for name, facts in hosts.items()}
    return found.ends, variables, (*found.why, *map(_text, found.findings))


def _text(finding: Finding) -> str:
    return f"{finding.what}: {finding.cause}; {finding.fix}"


def _by_version(found: Fabric) -> Fabric:
    """Without the GID's index: hosts come one by one, and what is set on one may not fit the next.

    NCCL 2.21 and later finds the GID by RoCE version and address family, which are set for the group instead.
    """
    return replace(found, ends={host: replace(end, gid_index=None) for host, end in found.ends.items()})


def _apart(
    hosts: Mapping[str, Facts], options: NetworkOptions, head: tuple[str, str], problem: Problem
) -> Problem:
    """They may share another network than the one that the head is on."""
    try:
        other = fabric(hosts, options).ends[head[0]]
    except Problem:
        return problem
    return Problem(
        f"this host cannot reach {head[0]} at {head[1]}, where its cluster is",
        cause=f"{problem.cause}; both are in the network of {other.address} ({other.interface} there)",
        fix=f"on {head[0]}: medley ray-stop; medley ray-head --link {other.interface}",
    )


def _faster(hosts: Mapping[str, Facts], options: NetworkOptions, found: Fabric) -> Iterator[Finding]:
    """Whether the hosts share a better network than the head's."""
    best = fabric(hosts, options)
    for name, end in best.ends.items():
        now = found.ends[name]
        if end.address != now.address and (end.mbit or 0) > (now.mbit or 0):
            yield Finding(
                f"{name} has a faster link in common with this cluster's hosts",
                f"{end.interface} carries {end.mbit} Mbit/s, {now.interface} {now.mbit}",
                f"medley ray-stop on all hosts, then on the head: medley ray-head --link {best.networks[0]}",
            )
            return
