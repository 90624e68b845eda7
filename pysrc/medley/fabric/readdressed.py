"""A host with other addresses is the same host elsewhere: on its links and in its GIDs alike."""

from collections.abc import Callable
from dataclasses import replace
from ipaddress import IPv4Interface

from medley.facts import Facts
from medley.facts.net import Link
from medley.facts.rdma import Gid, RdmaPort


def readdressed(facts: Facts, address: Callable[[IPv4Interface], str]) -> Facts:
    """`address` gives the new one of each, in its network."""
    moved = {
        each.ip: address(IPv4Interface(f"{each.ip}/{each.prefix}"))
        for link in facts.net.links
        for each in link.addresses
    }

    def of_link(link: Link) -> Link:
        return replace(link, addresses=tuple(replace(each, ip=moved[each.ip]) for each in link.addresses))

    def of_gid(gid: Gid) -> Gid:
        return replace(gid, address=moved.get(gid.address, gid.address)) if gid.address else gid

    def of_port(port: RdmaPort) -> RdmaPort:
        return replace(port, gids=tuple(map(of_gid, port.gids)))

    return replace(
        facts,
        net=replace(facts.net, links=tuple(map(of_link, facts.net.links))),
        rdma=tuple(map(of_port, facts.rdma)),
    )
