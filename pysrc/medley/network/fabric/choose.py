"""Choose the network and transport that a group of hosts shares.

`endpoints.py` has the candidates of each host, `subnets.py` ranks their networks, and `transport.py` chooses
RDMA or TCP.
"""

from collections.abc import Iterator, Mapping

from medley.errors import Finding, Problem
from medley.host.facts import Facts
from medley.network.fabric import findings, ring, subnets
from medley.network.fabric.choice import Endpoint, Fabric, NetworkOptions, RejectedLink, find_slowest_mbit
from medley.network.fabric.endpoints import (
    CandidateGroup,
    Candidates,
    EndpointCandidate,
    find_endpoint_candidates,
)
from medley.network.fabric.findings import list_idle_findings, list_rejections
from medley.network.fabric.nccl import has_nccl_gpu
from medley.network.fabric.neighbors import find_cabling
from medley.network.fabric.speed import format_speed
from medley.network.fabric.subnets import SharedNetwork, compute_parallel_mbit
from medley.network.fabric.transport import (
    DataPath,
    choose_data_path,
    list_ambiguity_findings,
    list_unambiguous_networks,
)

_NO_OPTIONS = NetworkOptions()
_LOOPBACK_MTU = 65536
_MIN_GROUP_HOSTS = 2


def choose_fabric(hosts: Mapping[str, Facts], options: NetworkOptions = _NO_OPTIONS) -> Fabric:
    """Choose the fabric of these hosts; raise a Problem where they share none."""
    if options.ray_addresses and len(hosts) > 1:
        return _choose_joined_fabric(hosts, options)
    candidates: dict[str, Candidates] = {}
    rejected: list[RejectedLink] = []
    for host in sorted(hosts):
        candidates[host], unfit_links = find_endpoint_candidates(host, hosts[host], options)
        rejected += unfit_links
    group = CandidateGroup(hosts, candidates, options)
    if len(hosts) < _MIN_GROUP_HOSTS:
        return _build_lone_fabric(group, tuple(rejected))
    # The best network comes first, here and in the lists below.
    allowed_networks = subnets.find_shared_networks(group.select_candidates())
    usable_networks = list(list_unambiguous_networks(allowed_networks, group))
    if not usable_networks:
        return _choose_routed_fabric(group, allowed_networks, tuple(rejected))
    best = usable_networks[0]
    if options.transport == "rdma":
        best = next((network for network in usable_networks if network.has_rdma), best)
    all_networks = subnets.find_shared_networks(group.candidates)
    parallel_networks = list(list_unambiguous_networks(all_networks, group))
    if options.link is not None:
        # Where the user named a link, only the other lanes of its QSFP port are used with it.
        parallel_networks = [network for network in parallel_networks if subnets.is_same_port(best, network)]
    path = choose_data_path(best, parallel_networks, group)
    ambiguities = list_ambiguity_findings([*allowed_networks, *all_networks], group)
    problems = (*ambiguities, *path.findings, *_list_findings(best, path, hosts))
    rejected += list_rejections(group, (*best.candidates, *path.all_candidates), best, usable_networks)
    return _build_fabric(
        group, best.candidates, path, best=best, other_findings=problems, rejected=tuple(rejected)
    )


def _build_fabric(
    group: CandidateGroup,
    socket_candidates: Candidates,
    path: DataPath,
    *,
    best: SharedNetwork | None,
    other_findings: tuple[Finding, ...],
    rejected: tuple[RejectedLink, ...],
) -> Fabric:
    """Build the fabric from one candidate of each host; `best` is their network if they share one.

    `other_findings`: those without the ports that stay idle.
    """
    by_host = {candidate.host: candidate for candidate in socket_candidates}
    endpoints = {host: _build_endpoint(by_host[host], path) for host in group.hosts}
    first = (str(best.network),) if best else ()
    others = {str(candidate.network) for candidate in path.all_candidates} - set(first)
    return Fabric(
        transport="rdma" if path.is_rdma else "tcp",
        endpoints=endpoints,
        networks=(*first, *sorted(others)),
        is_ring=path.is_ring,
        subnet_bits=path.subnet_bits,
        cabling=find_cabling(group),
        why=tuple(_list_reasons(best, path)),
        findings=tuple(
            dict.fromkeys((*other_findings, *list_idle_findings(group.hosts, endpoints, other_findings)))
        ),
        rejected=tuple(sorted(rejected, key=lambda link: (link.host, link.interface))),
    )


def _build_endpoint(candidate: EndpointCandidate, path: DataPath) -> Endpoint:
    used_candidates = path.candidates[candidate.host]
    speed_mbit = path.pair_mbit or compute_parallel_mbit(used_candidates)
    endpoint = Endpoint(
        candidate.link.name, str(candidate.ip), speed_mbit, candidate.link.mtu, lanes=(candidate.link.name,)
    )
    if not path.is_rdma:
        return endpoint.replace(lanes=tuple(used.link.name for used in used_candidates))
    ports = {used.port.device: used.port for used in used_candidates if used.port}
    in_order = sorted(ports.values(), key=lambda port: (port.pci or "", port.device))
    indexes = {used.gid_index for used in used_candidates}
    return endpoint.replace(ports=tuple(in_order), gid_index=indexes.pop() if len(indexes) == 1 else None)


def _list_reasons(best: SharedNetwork | None, path: DataPath) -> Iterator[str]:
    if best is not None:
        slowest = min(best.candidates, key=lambda candidate: (candidate.mbit, candidate.host))
        speed = format_speed(slowest.mbit)
        yield f"all hosts are in {best.network}: {speed} at its slowest end ({slowest.host})"
    yield from path.why
    if path.is_rdma and len({candidate.gid_index for candidate in path.all_candidates}) > 1:
        shown = ", ".join(
            f"{host} {'/'.join(str(candidate.gid_index) for candidate in path.candidates[host])}"
            for host in sorted(path.candidates)
        )
        yield f"the GID's index differs ({shown}): NCCL picks it by RoCE version and address family"


def _list_findings(best: SharedNetwork, path: DataPath, hosts: Mapping[str, Facts]) -> Iterator[Finding]:
    yield from findings.list_mtu_findings([*best.candidates, *path.all_candidates])
    ambiguous_links = subnets.find_ambiguous_links(best, hosts)
    if not ambiguous_links:
        yield from findings.list_duplicate_findings(best)
    yield from findings.list_kind_findings(best.candidates)
    speeds = {host: compute_parallel_mbit(candidates) or 0 for host, candidates in path.candidates.items()}
    for host in sorted(path.candidates):
        is_slowest = speeds[host] == min(speeds.values())
        reported = {
            candidate.link.name for pair in ambiguous_links for candidate in pair if candidate.host == host
        }
        yield from findings.list_port_findings(
            hosts[host], path.candidates[host], reports_unused=is_slowest, reported=reported
        )


def _choose_routed_fabric(
    group: CandidateGroup, networks: list[SharedNetwork], unfit_links: tuple[RejectedLink, ...]
) -> Fabric:
    """Choose TCP through gateways; raise a Problem where the hosts have no usable route."""
    if ambiguities := list(list_ambiguity_findings(networks, group)):
        raise Problem(
            "; ".join(finding.what for finding in ambiguities) + ": there is no other network",
            cause="; ".join(finding.cause for finding in ambiguities),
            fix="\n".join(finding.fix for finding in ambiguities),
        )
    chosen = subnets.find_routed_candidates(group.select_candidates(), group.hosts)
    if chosen is None or group.options.transport == "rdma":
        raise _no_network_problem(group)
    why = ("these hosts share no subnet", "TCP: RDMA needs a shared subnet")
    path = DataPath(is_rdma=False, candidates={candidate.host: (candidate,) for candidate in chosen}, why=why)
    rejections = list_rejections(group, chosen, None, [])
    problems = (findings.build_routed_finding(chosen), *findings.list_kind_findings(chosen))
    return _build_fabric(
        group, chosen, path, best=None, other_findings=problems, rejected=(*unfit_links, *rejections)
    )


def _no_network_problem(group: CandidateGroup) -> Problem:
    """Return the Problem of hosts without a common network; mention cables between them."""
    addresses = findings.format_addresses(group.select_candidates())
    cabling = find_cabling(group)
    if cabling.groups and not cabling.others:
        obstacle = ring.find_ring_obstacle(cabling.only_group, group) if cabling.only_group else None
        obstacle_text = f"; {obstacle.what}" if obstacle else ""
        return Problem(
            f"{cabling}: no network connects all of these hosts",
            cause=f"Ray, Gloo and NCCL's bootstrap need one; {addresses}{obstacle_text}",
            fix="connect the hosts' Ethernet ports to a switch; RDMA can then use the cables"
            + (f"\n{obstacle.fix}" if obstacle else ""),
        )
    return Problem(
        f"{', '.join(group.candidates)} have no network in common",
        cause=addresses,
        fix="connect them with a cable or a switch, and give each an address in one subnet: "
        "sudo ip address add 192.168.100.1/24 dev INTERFACE (.2 on the next)",
    )


def _build_lone_fabric(group: CandidateGroup, unfit_links: tuple[RejectedLink, ...]) -> Fabric:
    unused = tuple(
        RejectedLink(candidate.host, name, "a single host needs no network")
        for candidates in group.candidates.values()
        for name, candidate in {candidate.link.name: candidate for candidate in candidates}.items()
    )
    endpoint = Endpoint("lo", "127.0.0.1", None, _LOOPBACK_MTU, lanes=("lo",))
    return Fabric(
        transport="none",
        endpoints=dict.fromkeys(group.candidates, endpoint),
        why=("a single host needs no network",),
        rejected=tuple(sorted((*unfit_links, *unused), key=lambda link: (link.host, link.interface))),
    )


def _choose_joined_fabric(hosts: Mapping[str, Facts], options: NetworkOptions) -> Fabric:
    """Choose the fabric at the hosts' addresses in Ray, with the ranks on another network if that is faster.

    Ray stays on its network, because vLLM waits for a host at its address in Ray.
    """
    at_ray_addresses = options.replace(link=options.ray_addresses, ray_addresses=None)
    if options.transport == "tcp":
        return _move_rank_sockets(choose_fabric(hosts, at_ray_addresses), hosts, options)
    base = choose_fabric(hosts, at_ray_addresses.replace(transport=None))
    if base.transport != "tcp":
        return base
    try:
        rdma_fabric = choose_fabric(hosts, options.replace(ray_addresses=None, transport="rdma"))
    except Problem:
        # If the user asked for RDMA, this call raises the reason against it.
        without_rdma = _add_ring_findings(choose_fabric(hosts, at_ray_addresses), hosts, options)
        return _move_rank_sockets(without_rdma, hosts, options)
    hca = _build_hca_list(hosts, rdma_fabric)
    if hca is None and (bits := ring.compute_pair_bits(hosts, rdma_fabric.endpoints, options.nccl_version)):
        rdma_fabric = rdma_fabric.replace(is_ring=True, subnet_bits=bits)
        hca = ",".join(_list_port_names(rdma_fabric))
    if hca and (_is_faster(rdma_fabric, base) or options.transport == "rdma"):
        return _move_rdma_to_cables(base, rdma_fabric, hca)
    return _move_rank_sockets(choose_fabric(hosts, at_ray_addresses), hosts, options)


def _is_faster(first: Fabric, second: Fabric) -> bool:
    """Return whether every host has a faster end in `first`; an unknown speed is the slowest."""
    return all(
        (endpoint.mbit or 0) > (second.endpoints[host].mbit or 0)
        for host, endpoint in first.endpoints.items()
    )


def _move_rank_sockets(base: Fabric, hosts: Mapping[str, Facts], options: NetworkOptions) -> Fabric:
    """Move the ranks' sockets to a faster network; add a finding where interface names do not allow it."""
    if base.transport != "tcp":
        return base
    try:
        faster = choose_fabric(hosts, options.replace(ray_addresses=None, transport="tcp"))
    except Problem:  # two links in one subnet, of which Ray's address names one
        return base
    if not _is_faster(faster, base):
        return base
    if finding := _find_name_conflict(hosts, faster, base):
        return base.replace(findings=(*base.findings, finding))
    endpoints = {
        host: endpoint.replace(mbit=faster.endpoints[host].mbit) for host, endpoint in base.endpoints.items()
    }
    why = f"sockets of the ranks use {', '.join(faster.networks)}; Ray stays in {', '.join(base.networks)}"
    return base.replace(
        endpoints=endpoints,
        networks=tuple(dict.fromkeys((*base.networks, *faster.networks))),
        rank_endpoints=faster.endpoints,
        why=(why, *faster.why),
        findings=faster.findings,
        rejected=faster.rejected,
    )


def _find_name_conflict(hosts: Mapping[str, Facts], faster: Fabric, current: Fabric) -> Finding | None:
    """Return the finding if one list cannot name the interfaces of all hosts.

    One list has to, because all ranks get the same variables.
    """
    cause, first_interfaces = "", sorted({endpoint.interface for endpoint in faster.endpoints.values()})
    interfaces = {lane for endpoint in faster.endpoints.values() for lane in endpoint.lanes}
    for host, facts in hosts.items():
        usable = {link.name for link in facts.net.links if link.up and link.addresses}
        if foreign := (usable & interfaces) - set(faster.endpoints[host].lanes):
            cause = f"{', '.join(sorted(foreign))} of {host} has another host's name and leads elsewhere"
    if not cause and len(first_interfaces) > 1 and not any(has_nccl_gpu(facts) for facts in hosts.values()):
        cause = f"Gloo takes one name, and theirs differ: {', '.join(first_interfaces)}"
    if not cause:
        return None
    speeds = [format_speed(find_slowest_mbit(fabric_choice)) for fabric_choice in (faster, current)]
    return Finding(
        f"{' and '.join(hosts)} have a faster network that Ray's variables cannot name ({speeds[0]})",
        f"their ranks use {speeds[1]}: {cause}",
        f'a cluster of only these hosts can use it: link = "{faster.networks[0]}" in its cluster.toml',
        topic="names",
    )


def _add_ring_findings(base: Fabric, hosts: Mapping[str, Facts], options: NetworkOptions) -> Fabric:
    try:
        unrestricted = choose_fabric(hosts, options.replace(ray_addresses=None, transport=None))
    except Problem:  # Ray's own network has none
        return base
    ring_findings = tuple(finding for finding in unrestricted.findings if finding.topic == "ring")
    base_findings = (finding for finding in base.findings if finding.topic != "idle")
    idle = list_idle_findings(hosts, base.endpoints, ring_findings)
    return base.replace(findings=(*base_findings, *ring_findings, *idle))


def _list_port_names(rdma_fabric: Fabric) -> list[str]:
    return sorted({port.nccl_name for endpoint in rdma_fabric.endpoints.values() for port in endpoint.ports})


def _build_hca_list(hosts: Mapping[str, Facts], rdma_fabric: Fabric) -> str | None:
    """Return NCCL_IB_HCA for all hosts; None if on some host it would not match exactly the fabric's ports.

    NCCL uses each active port that the list names.
    """
    all_ports = _list_port_names(rdma_fabric)
    for host, facts in hosts.items():
        host_ports = {port.nccl_name for port in rdma_fabric.endpoints[host].ports}
        if {port.nccl_name for port in facts.rdma if port.active} & set(all_ports) != host_ports:
            return None
    return ",".join(all_ports) or None


def _move_rdma_to_cables(base: Fabric, rdma_fabric: Fabric, hca: str) -> Fabric:
    """Return the fabric with Ray and sockets in `base` and RDMA over `rdma_fabric`."""
    endpoints = {
        host: endpoint.replace(
            mbit=rdma_fabric.endpoints[host].mbit,
            ports=rdma_fabric.endpoints[host].ports,
            gid_index=None,
        )
        for host, endpoint in base.endpoints.items()
    }
    cables = tuple(network for network in rdma_fabric.networks if network not in base.networks)
    why = f"RDMA over {', '.join(cables)}; Ray and sockets stay in {base.networks[0]}"
    return rdma_fabric.replace(
        endpoints=endpoints,
        networks=(*base.networks[:1], *cables),
        hca=hca,
        why=(why, *rdma_fabric.why),
        rejected=base.rejected,
    )
