"""The hosts of a guide: typical or recorded ones, with the guide's own names and addresses of links."""

import re
from collections.abc import Mapping
from ipaddress import IPv4Interface
from typing import Any

from medley import config
from medley.environment.engine_source import EngineRequest
from medley.host.facts import Facts, read_facts
from medley.host.facts.network import Address, Interface
from medley.host.facts.rdma import RdmaPort
from medley.host.kind import SiteHost, find_kind
from medley.planner.placement import PlacementOptions
from medley.planner.site import Site
from medley.serving.engine_sources import add_engine_sources
from medley.transcript import parse_transcript
from tests.host.recordings import HOSTS


def site(table: Mapping[str, Any], name: str, wanted: PlacementOptions, image: str | None) -> Site:
    """Return the hosts of this name in scenarios.toml, each with the engine that it would have."""
    found = {host: _host(each, table["renamed"]) for host, each in table["hosts"][name].items()}
    hosts = Site({name: SiteHost(each, find_kind(each)) for name, each in found.items()})
    return add_engine_sources(hosts, wanted, EngineRequest(image))


def _host(table: Mapping[str, Any], renamings: Mapping[str, Mapping[str, str]]) -> Facts:
    """`like`: a kind of host or a recording; `renamed`: parts of its names; `links`: the address of each.

    A link whose address is empty has none.
    """
    typical = config.find_table_files("hosts/typical", ".txt")
    known = typical.get(table["like"], HOSTS / f"{table['like']}.txt")
    text, renamed = known.read_text(encoding="utf-8"), renamings.get(table.get("renamed", ""), {})
    if renamed:
        longest = sorted(renamed, key=len, reverse=True)
        text = re.sub("|".join(map(re.escape, longest)), lambda each: renamed[each[0]], text)
    return _addressed(read_facts(parse_transcript(text)), table["links"])


def _addressed(found: Facts, links: Mapping[str, str]) -> Facts:
    new = {name: IPv4Interface(at) if at else None for name, at in links.items()}

    def link(old: Interface) -> Interface:
        if old.name not in new:
            return old
        at = new[old.name]
        return old.replace(addresses=(Address(str(at.ip), at.network.prefixlen),) if at else ())

    def port(old: RdmaPort) -> RdmaPort:
        if old.interface not in new:
            return old
        at = new[old.interface]
        kept = (each for each in old.gids if at or each.address is None)
        return old.replace(
            gids=tuple(each.replace(address=str(at.ip)) if each.address and at else each for each in kept),
        )

    net = found.net.replace(links=tuple(map(link, found.net.links)))
    return found.replace(net=net, rdma=tuple(map(port, found.rdma)))
