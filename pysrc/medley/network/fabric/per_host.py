"""Choose the endpoint and variables of a head, a worker or a single host.

A head starts before the others join, so `ray start` sets only a host's own variables; those of the group are
set when a model starts.
"""

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address, IPv4Interface
from typing import NamedTuple

from medley.command import Variable
from medley.errors import Finding, Problem
from medley.host.facts import Facts
from medley.host.hypothetical import change_addresses
from medley.network.fabric import findings, subnets
from medley.network.fabric.choice import Endpoint, Fabric, NetworkOptions, RejectedLink
from medley.network.fabric.choose import choose_fabric
from medley.network.fabric.endpoints import (
    CandidateGroup,
    Candidates,
    EndpointCandidate,
    find_endpoint_candidates,
)
from medley.network.fabric.speed import FAST_MBIT
from medley.network.fabric.subgroups import find_faster_subgroups
from medley.network.fabric.subnets import SharedNetwork
from medley.network.fabric.transport import list_ambiguity_findings, list_unambiguous_networks
from medley.network.fabric.variables import list_group_variables, list_host_variables, merge_user_variables
from medley.values import Value

_MIRROR_HOST = "its mirror image"  # not a possible host name


class HostLinks(Value):
    """The links of one host that a group may use, the best first, and its rejected links."""

    candidates: Candidates
    rejected: tuple[RejectedLink, ...]
    findings: tuple[Finding, ...] = ()


def rank_host_links(host: str, facts: Facts, options: NetworkOptions) -> HostLinks:
    """Rank the links of this host for a group; raise a Problem without the link that the user named."""
    candidates, unfit = find_endpoint_candidates(host, facts, options)
    group = CandidateGroup({host: facts}, {host: candidates}, options)
    usable = list(list_unambiguous_networks(subnets.find_shared_networks(group.select_candidates()), group))
    if options.transport == "rdma":
        usable.sort(key=lambda network: not network.has_rdma)
    ranked = tuple(network.candidates[0] for network in usable)
    all_networks = subnets.find_shared_networks(group.candidates)
    pairs = [pair for network in all_networks for pair in subnets.find_ambiguous_links(network, group.hosts)]
    ranked_names = {candidate.link.name for candidate in ranked}
    rejected = list(unfit)
    # Of the candidates of one interface the first counts, because in a dict the last one wins.
    unranked = [candidate for candidate in reversed(candidates) if candidate.link.name not in ranked_names]
    for name, candidate in {candidate.link.name: candidate for candidate in unranked}.items():
        rejected.append(RejectedLink(host, name, _explain_rejection(candidate, group, all_networks, pairs)))
    # Do not report an interface that the user left out.
    is_unrestricted = options.link is None and not options.exclude
    paired = {candidate.link.name for pair in pairs for candidate in pair}
    problems = (
        *list_ambiguity_findings(all_networks, group),
        *findings.list_port_findings(facts, ranked, reports_unused=is_unrestricted, reported=paired),
        *_list_idle_findings(host, facts, ranked),
    )
    return HostLinks(ranked, tuple(sorted(rejected, key=lambda link: link.interface)), problems)


def _list_idle_findings(host: str, facts: Facts, ranked: Candidates) -> Iterator[Finding]:
    """Yield fast ports without an address, unless another fast port is used."""
    ranked_names = {candidate.link.name for candidate in ranked}
    idle_links = findings.find_idle_ports({host: facts}, {}).get(host, ())
    unaddressed = tuple(link for link in idle_links if link.name not in ranked_names and not link.addresses)
    if unaddressed and not any((candidate.link.mbit or 0) >= FAST_MBIT for candidate in ranked):
        yield findings.build_idle_ports_finding({host: unaddressed})


def _explain_rejection(
    candidate: EndpointCandidate,
    group: CandidateGroup,
    networks: list[SharedNetwork],
    ambiguous_pairs: list[tuple[EndpointCandidate, EndpointCandidate]],
) -> str:
    if not group.is_allowed(candidate):
        return f"you asked for {group.options.find_link(candidate.host)}"
    if pair := next((pair for pair in ambiguous_pairs if candidate in pair), None):
        names = " and ".join(paired.link.name for paired in pair)
        return f"{names} are both in {candidate.network}, and each may answer for the other"
    first = next(
        (network.candidates[0] for network in networks if candidate.ip in network.network), candidate
    )
    if first.is_wired and not candidate.is_wired:
        return f"Wi-Fi, and {first.link.name} is a cabled link to the same network"
    return f"{first.link.name} is in {candidate.network} too, and is preferred"


def choose_mirrored_fabric(host: str, facts: Facts, options: NetworkOptions) -> Fabric:
    """Choose the fabric of this host and a mirror image of it.

    The other hosts are unknown before they join, so this takes an equal host for the other end of each link.
    """
    candidates, rejected = find_endpoint_candidates(host, facts, options)
    if not candidates:
        reasons = "; ".join(f"{link.interface}: {link.why}" for link in rejected)
        raise Problem(
            "this host has no address that other hosts can reach",
            cause=reasons or "it has no network interface",
            fix="bring a link up (ip -brief link), or name one: --link INTERFACE",
        )
    one_sided = options.replace(link={host: options.link} if isinstance(options.link, str) else options.link)
    mirrored = choose_fabric(
        {host: facts, _MIRROR_HOST: change_addresses(facts, _choose_neighbor_address)}, one_sided
    )
    return mirrored.replace(
        endpoints={host: mirrored.endpoints[host]},
        findings=(),
        rejected=tuple(link for link in mirrored.rejected if link.host == host),
    )


def _choose_neighbor_address(address: IPv4Interface) -> str:
    """Return the next address in the same network, else the one before."""
    following = IPv4Address(int(address.ip) + 1) if int(address.ip) < 2**32 - 1 else address.ip
    fits = following in address.network and following != address.network.broadcast_address
    return str(following if fits else IPv4Address(int(address.ip) - 1))


class HostNetwork(Value):
    """One host's endpoint, the variables of its `ray start`, and the reasons for the choice."""

    endpoint: Endpoint
    variables: tuple[Variable, ...]
    why: tuple[str, ...]
    findings: tuple[Finding, ...] = ()

    def describe(self) -> Iterator[str]:
        """Yield the endpoint with its reasons, then the findings."""
        yield f"{self.endpoint.interface} ({self.endpoint.address}): {'; '.join(self.why)}"
        yield from map(str, self.findings)


def choose_head_network(
    name: str, facts: Facts, options: NetworkOptions, user_variables: Mapping[str, str]
) -> HostNetwork:
    """Choose the fastest link of this host, unless the user names one."""
    expected = _drop_gid_index(choose_mirrored_fabric(name, facts, options))
    endpoint = expected.endpoints[name]
    rejections = (f"not {link.interface}: {link.why}" for link in expected.rejected if link.interface != "lo")
    why = "named with --link" if options.link else "the fastest link of this host"
    return HostNetwork(
        endpoint,
        merge_user_variables(list_host_variables(expected, name, facts), user_variables),
        (why, *rejections),
    )


class HeadAddress(NamedTuple):
    """The head of a cluster, and its address there."""

    host: str
    address: str


def choose_worker_network(
    hosts: Mapping[str, Facts],
    name: str,
    head: HeadAddress,
    options: NetworkOptions,
    user_variables: Mapping[str, str],
) -> HostNetwork:
    """Find how this host reaches the head."""
    links = {head.host: head.address, **({name: options.link} if isinstance(options.link, str) else {})}
    try:
        joined_fabric = _drop_gid_index(choose_fabric(hosts, options.replace(link=links)))
    except Problem as problem:
        raise _build_other_network_problem(hosts, options, head, problem) from problem
    faster_findings = (
        tuple(_list_faster_link_findings(hosts, options, joined_fabric)) if options.link is None else ()
    )
    variables = merge_user_variables(list_host_variables(joined_fabric, name, hosts[name]), user_variables)
    return HostNetwork(
        joined_fabric.endpoints[name],
        variables,
        joined_fabric.why,
        (*joined_fabric.findings, *faster_findings),
    )


def choose_running_cluster_network(
    hosts: Mapping[str, Facts],
    addresses: Mapping[str, str],
    host_name: str,
    options: NetworkOptions,
    user_variables: Mapping[str, str],
) -> tuple[Fabric, tuple[Variable, ...]]:
    """Find the fabric of a cluster whose hosts have these addresses in Ray, and its engine's variables."""
    joined_fabric = _drop_gid_index(
        choose_fabric(hosts, options.replace(link=None, ray_addresses=dict(addresses)))
    )
    fabric_variables = (
        *list_host_variables(joined_fabric, host_name, hosts[host_name]),
        *list_group_variables(joined_fabric, hosts),
    )
    return joined_fabric, merge_user_variables(fabric_variables, user_variables)


class ClusterNetwork(NamedTuple):
    """The network of a new cluster, by host."""

    endpoints: Mapping[str, Endpoint]
    variables: Mapping[str, tuple[Variable, ...]]
    """The variables of each host's `ray start`."""
    why: tuple[str, ...]
    """The reasons for the choice, then the findings."""


def choose_new_cluster_network(hosts: Mapping[str, Facts], options: NetworkOptions) -> ClusterNetwork:
    """Choose the network of a cluster before its Ray starts."""
    if len(hosts) == 1:
        ((name, facts),) = hosts.items()
        head = choose_head_network(name, facts, options.replace(link=options.find_link(name)), {})
        return ClusterNetwork({name: head.endpoint}, {name: head.variables}, tuple(head.describe()))
    chosen = _drop_gid_index(choose_fabric(hosts, options))
    variables = {
        name: merge_user_variables(list_host_variables(chosen, name, facts), {})
        for name, facts in hosts.items()
    }
    subgroups, idle = find_faster_subgroups(hosts, chosen, options)
    why = (*chosen.why, *map(str, (*subgroups, *chosen.findings, *idle)))
    return ClusterNetwork(chosen.endpoints, variables, why)


def _drop_gid_index(chosen: Fabric) -> Fabric:
    """Remove the GID's index, which a later host may not share; NCCL >= 2.21 finds it by RoCE version."""
    return chosen.replace(
        endpoints={host: endpoint.replace(gid_index=None) for host, endpoint in chosen.endpoints.items()},
    )


def _build_other_network_problem(
    hosts: Mapping[str, Facts], options: NetworkOptions, head: HeadAddress, problem: Problem
) -> Problem:
    """Explain a host that shares another network with the head."""
    try:
        shared = choose_fabric(hosts, options).endpoints[head.host]
    except Problem:
        return problem
    return Problem(
        f"this host cannot reach {head.host} at {head.address}, its cluster's address",
        cause=f"{problem.cause}; both are in the network of {shared.address} ({shared.interface} there)",
        fix=f"on {head.host}: medley ray-stop; medley ray-head --link {shared.interface}",
    )


def _list_faster_link_findings(
    hosts: Mapping[str, Facts], options: NetworkOptions, current: Fabric
) -> Iterator[Finding]:
    """Yield at most one finding: a host that shares a faster link than the one of its cluster."""
    free = choose_fabric(hosts, options)
    for name, endpoint in free.endpoints.items():
        used = current.endpoints[name]
        if endpoint.address != used.address and (endpoint.mbit or 0) > (used.mbit or 0):
            yield Finding(
                f"{name} shares a faster link with this cluster's hosts",
                f"{endpoint.interface} carries {endpoint.mbit} Mbit/s, {used.interface} {used.mbit}",
                f"medley ray-stop on all hosts, then on the head: medley ray-head --link {free.networks[0]}",
            )
            return
