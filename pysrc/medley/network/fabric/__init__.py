"""Choose the network and transport that a group of hosts shares."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from medley.errors import Finding, Problem
from medley.host.facts import Facts
from medley.network.fabric import findings, ring, subnets, types
from medley.network.fabric.endpoints import Candidates, EndpointCandidate, Group, endpoint_candidates
from medley.network.fabric.findings import idle_findings, rejections
from medley.network.fabric.neighbors import cabled
from medley.network.fabric.subnets import Shared, together_mbit
from medley.network.fabric.transport import Carried, carried, muddles, unmuddled
from medley.network.fabric.types import Endpoint, Fabric, NetworkOptions, RejectedLink

_ANYTHING = NetworkOptions()
_LOOPBACK_MTU = 65536


def fabric(hosts: Mapping[str, Facts], options: NetworkOptions = _ANYTHING) -> Fabric:
    """Choose the fabric of these hosts; raise a Problem where they share none."""
    if options.joined and len(hosts) > 1:
        return _over_cable(hosts, options)
    looked = {host: endpoint_candidates(host, hosts[host], options) for host in sorted(hosts)}
    group = Group(hosts, {host: each[0] for host, each in looked.items()}, options)
    unfit = tuple(one for host in looked for one in looked[host][1])
    if len(hosts) < 2:  # noqa: PLR2004 - a group
        return _alone(group, unfit)
    everywhere = subnets.shared(group.wanted())
    usable = list(unmuddled(everywhere, group))
    if not usable:
        return _without_network(group, everywhere, unfit)
    best = next((one for one in usable if one.rdma and options.transport == "rdma"), usable[0])
    every = subnets.shared(group.ways)
    # Where the user named a link, only the other lanes of its QSFP port are used with it.
    beside = [
        one for one in unmuddled(every, group) if options.link is None or subnets.of_one_cage(best, one)
    ]
    data = carried(best, beside, group)
    seen = (*muddles([*everywhere, *every], group), *data.findings, *_noted(best, data, hosts))
    lost = rejections(group, (*best.ways, *data.every), best, usable)
    return _made(group, best.ways, data, best=best, findings=seen, rejected=(*unfit, *lost))


def _made(
    group: Group,
    sockets: Candidates,
    data: Carried,
    *,
    best: Shared | None,
    findings: tuple[Finding, ...],
    rejected: tuple[RejectedLink, ...],
) -> Fabric:
    by_host = {way.host: way for way in sockets}
    ends = {host: _end(by_host[host], data) for host in group.hosts}
    first = (str(best.network),) if best else ()
    others = {str(way.network) for way in data.every} - set(first)
    return Fabric(
        transport="rdma" if data.rdma else "tcp",
        ends=ends,
        networks=(*first, *sorted(others)),
        ring=data.ring,
        subnet_bits=data.subnet_bits,
        cabling=cabled(group),
        why=tuple(_why(best, data)),
        findings=tuple(dict.fromkeys((*findings, *idle_findings(group.hosts, ends, findings)))),
        rejected=tuple(sorted(rejected, key=lambda one: (one.host, one.interface))),
    )


def _end(way: EndpointCandidate, data: Carried) -> Endpoint:
    carrying = data.ways[way.host]
    mbit = data.pair_mbit or together_mbit(carrying)
    end = Endpoint(way.link.name, str(way.ip), mbit, way.link.mtu, lanes=(way.link.name,))
    if not data.rdma:
        return replace(end, lanes=tuple(each.link.name for each in carrying))
    ports = {each.port.device: each.port for each in carrying if each.port}
    in_order = sorted(ports.values(), key=lambda port: (port.pci or "", port.device))
    indexes = {each.gid_index for each in carrying}
    return replace(end, ports=tuple(in_order), gid_index=indexes.pop() if len(indexes) == 1 else None)


def _why(best: Shared | None, data: Carried) -> Iterator[str]:
    if best is not None:
        slow = min(best.ways, key=lambda way: (way.mbit, way.host))
        speed = types.speed_text(slow.mbit)
        yield f"all hosts are in {best.network}: {speed} at its slowest end ({slow.host})"
    yield from data.why
    if data.rdma and len({way.gid_index for way in data.every}) > 1:
        shown = ", ".join(
            f"{host} {'/'.join(str(way.gid_index) for way in data.ways[host])}" for host in sorted(data.ways)
        )
        yield f"the GID's index differs ({shown}): NCCL picks it by RoCE version and address family"


def _noted(best: Shared, data: Carried, hosts: Mapping[str, Facts]) -> Iterator[Finding]:
    yield from findings.mtus([*best.ways, *data.every])
    muddled = subnets.muddled(best, hosts)
    if not muddled:
        yield from findings.doubled(best)
    yield from findings.odd_kinds(best.ways)
    speeds = {host: together_mbit(ways) or 0 for host, ways in data.ways.items()}
    for host in sorted(data.ways):
        slowest = speeds[host] == min(speeds.values())
        known = {way.link.name for pair in muddled for way in pair if way.host == host}
        yield from findings.of_host(hosts[host], data.ways[host], slowest=slowest, known=known)


def _without_network(group: Group, everywhere: list[Shared], unfit: tuple[RejectedLink, ...]) -> Fabric:
    if muddle := list(muddles(everywhere, group)):
        raise Problem(
            "; ".join(each.what for each in muddle) + ": there is no other network",
            cause="; ".join(each.cause for each in muddle),
            fix="\n".join(each.fix for each in muddle),
        )
    chosen = subnets.routed(group.wanted(), group.hosts)
    if chosen is None or group.options.transport == "rdma":
        raise _apart(group)
    why = ("these hosts share no subnet", "TCP: RDMA needs a shared subnet")
    data = Carried(rdma=False, ways={way.host: (way,) for way in chosen}, why=why)
    lost = rejections(group, chosen, None, [])
    noted = (findings.by_route(chosen), *findings.odd_kinds(chosen))
    return _made(group, chosen, data, best=None, findings=noted, rejected=(*unfit, *lost))


def _apart(group: Group) -> Problem:
    named = group.wanted()
    cabling = cabled(group)
    if cabling.groups and not cabling.others:
        lacking = ring.unserved(cabling.whole, group) if cabling.whole else None
        why = f"; {lacking.what}" if lacking else ""
        return Problem(
            f"{cabling}: no network connects all of these hosts",
            cause=f"Ray, Gloo and NCCL's bootstrap need one; {findings.addresses(named)}{why}",
            fix="connect the hosts' Ethernet ports to a switch; RDMA can then use the cables"
            + (f"\n{lacking.fix}" if lacking else ""),
        )
    return Problem(
        f"{', '.join(group.ways)} have no network in common",
        cause=findings.addresses(named),
        fix="connect them with a cable or a switch, and give each an address in one subnet: "
        "sudo ip address add 192.168.100.1/24 dev INTERFACE (.2 on the next)",
    )


def _alone(group: Group, unfit: tuple[RejectedLink, ...]) -> Fabric:
    rest = tuple(
        RejectedLink(way.host, name, "a single host needs no network")
        for ways in group.ways.values()
        for name, way in {way.link.name: way for way in ways}.items()
    )
    end = Endpoint("lo", "127.0.0.1", None, _LOOPBACK_MTU, lanes=("lo",))
    return Fabric(
        transport="none",
        ends=dict.fromkeys(group.ways, end),
        why=("a single host needs no network",),
        rejected=tuple(sorted((*unfit, *rest), key=lambda one: (one.host, one.interface))),
    )


def _over_cable(hosts: Mapping[str, Facts], options: NetworkOptions) -> Fabric:
    """Choose the fabric at the hosts' addresses in Ray, with the ranks on another network if that is faster.

    Ray stays on its network, because vLLM waits for a host at its address in Ray.
    """
    at = replace(options, link=options.joined, joined=None)
    if options.transport == "tcp":
        return _with_faster_sockets(fabric(hosts, at), hosts, options)
    base = fabric(hosts, replace(at, transport=None))
    if base.transport != "tcp":
        return base
    try:
        cable = fabric(hosts, replace(options, joined=None, transport="rdma"))
    except Problem:
        # Raises the reason against RDMA on this network, where the user asked for it.
        found = _with_cables_noted(fabric(hosts, at), hosts, options)
        return _with_faster_sockets(found, hosts, options)
    hca = _hca(hosts, cable)
    if hca is None and (bits := ring.pair_bits(hosts, cable.ends, options.nccl)):
        cable = replace(cable, ring=True, subnet_bits=bits)
        hca = ",".join(_ports(cable))
    if hca and (_is_faster(cable, base) or options.transport == "rdma"):
        return _with_rdma(base, cable, hca)
    return _with_faster_sockets(fabric(hosts, at), hosts, options)


def _is_faster(one: Fabric, other: Fabric) -> bool:
    """Whether every host has a faster end in `one`; an unknown speed is the slowest."""
    return all((end.mbit or 0) > (other.ends[host].mbit or 0) for host, end in one.ends.items())


def _with_faster_sockets(found: Fabric, hosts: Mapping[str, Facts], options: NetworkOptions) -> Fabric:
    """Move the ranks' sockets to a faster network of these hosts; where its names do not allow it, say so."""
    if found.transport != "tcp":
        return found
    try:
        free = fabric(hosts, replace(options, joined=None, transport="tcp"))
    except Problem:  # two links in one subnet, of which Ray's address names one
        return found
    if not _is_faster(free, found):
        return found
    if finding := _socket_obstacle(hosts, free, found):
        return replace(found, findings=(*found.findings, finding))
    ends = {host: replace(end, mbit=free.ends[host].mbit) for host, end in found.ends.items()}
    why = f"sockets of the ranks use {', '.join(free.networks)}; Ray stays in {', '.join(found.networks)}"
    return replace(
        found,
        ends=ends,
        networks=tuple(dict.fromkeys((*found.networks, *free.networks))),
        rank_ends=free.ends,
        why=(why, *free.why),
        findings=free.findings,
        rejected=free.rejected,
    )


def _socket_obstacle(hosts: Mapping[str, Facts], free: Fabric, now: Fabric) -> Finding | None:
    """Report why one list of interfaces cannot name those of all hosts; variables of ranks are equal."""
    cause, first = "", sorted({end.interface for end in free.ends.values()})
    interfaces = {lane for end in free.ends.values() for lane in end.lanes}
    for host, facts in hosts.items():
        there = {link.name for link in facts.net.links if link.up and link.addresses}
        if other := (there & interfaces) - set(free.ends[host].lanes):
            cause = f"{', '.join(sorted(other))} of {host} has another host's name and leads elsewhere"
    if not cause and len(first) > 1 and not any(types.nccl_speaks(facts) for facts in hosts.values()):
        cause = f"Gloo takes one name, and theirs differ: {', '.join(first)}"
    if not cause:
        return None
    speeds = [types.speed_text(types.least_mbit(each)) for each in (free, now)]
    return Finding(
        f"{' and '.join(hosts)} have a faster network that Ray's variables cannot name ({speeds[0]})",
        f"their ranks use {speeds[1]}: {cause}",
        f'a cluster of only these hosts can use it: link = "{free.networks[0]}" in its cluster.toml',
        topic="names",
    )


def _with_cables_noted(found: Fabric, hosts: Mapping[str, Facts], options: NetworkOptions) -> Fabric:
    try:
        free = fabric(hosts, replace(options, joined=None, transport=None))
    except Problem:  # Ray's own network has none
        return found
    noted = tuple(each for each in free.findings if each.topic == "ring")
    kept = (each for each in found.findings if each.topic != "idle")
    idle = idle_findings(hosts, found.ends, noted)
    return replace(found, findings=(*kept, *noted, *idle))


def _ports(cable: Fabric) -> list[str]:
    return sorted({port.named for end in cable.ends.values() for port in end.ports})


def _hca(hosts: Mapping[str, Facts], cable: Fabric) -> str | None:
    """Return the ports of all hosts by name; None where NCCL, which uses active ones, would use another."""
    every = _ports(cable)
    for host, facts in hosts.items():
        own = {port.named for port in cable.ends[host].ports}
        if {port.named for port in facts.rdma if port.active} & set(every) != own:
            return None
    return ",".join(every) or None


def _with_rdma(base: Fabric, cable: Fabric, hca: str) -> Fabric:
    ends = {
        host: replace(end, mbit=cable.ends[host].mbit, ports=cable.ends[host].ports, gid_index=None)
        for host, end in base.ends.items()
    }
    cables = tuple(network for network in cable.networks if network not in base.networks)
    why = f"RDMA over {', '.join(cables)}; Ray and sockets stay in {base.networks[0]}"
    return replace(
        cable,
        ends=ends,
        networks=(*base.networks[:1], *cables),
        hca=hca,
        why=(why, *cable.why),
        rejected=base.rejected,
    )
