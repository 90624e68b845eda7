"""A neighbour is a host that this one's kernel has talked to on a link, or that announces itself there.

No address is tried to find one: the kernel's table is read, and avahi, where it runs, asks who announces ssh.
"""

import re
from collections.abc import Collection, Iterator, Mapping

from medley.fabric import Wishes
from medley.fabric.ways import ways
from medley.facts import Facts
from medley.facts.answers import lines, objects
from medley.mention import Mention, is_address
from medley.transcript import Transcript

TABLE = "ip -json -4 neigh show"
ANNOUNCED = "avahi-browse --parsable --terminate --resolve --no-db-lookup _ssh._tcp"
QUESTIONS = (TABLE, ANNOUNCED)

_THERE = {"REACHABLE", "STALE", "DELAY", "PROBE"}
"""DELAY and PROBE are a stale one that is being asked again."""
_FAST_MBIT = 25_000
"""So fast a link is a cable between boxes like these, and no home's network."""
_ESCAPE = re.compile(r"\\(\d{3})")


def links(facts: Facts) -> dict[str, bool]:
    """The interfaces by which a cluster could go, and whether each is so fast that it was made for one."""
    found, _ = ways("this host", facts, Wishes())
    return {way.link.name: way.mbit >= _FAST_MBIT for way in found if way.wired}


def mentions(answers: Transcript, facts: Facts) -> tuple[Mention, ...]:
    usable = links(facts)
    gateways = {route.gateway for route in facts.net.routes}
    found = (*_announced(answers, usable), *_neighbours(answers, usable))
    return tuple(each for each in found if not {each.name, *each.also} & gateways)


def _neighbours(answers: Transcript, usable: Mapping[str, bool]) -> Iterator[Mention]:
    for row in objects(answers, TABLE):
        match row:
            case {"dst": str(address), "dev": str(interface), "state": list(states)} if (
                interface in usable and is_address(address) and _THERE & {str(state) for state in states}
            ):
                likely = usable[interface]
                yield Mention(address, f"neighbour on {interface}", interface, (address,), likely=likely)


def _announced(answers: Transcript, usable: Collection[str]) -> Iterator[Mention]:
    """Lines of `=;INTERFACE;IPv4;SERVICE;TYPE;DOMAIN;HOST;ADDRESS;PORT;TEXT`."""
    for line in lines(answers, ANNOUNCED):
        match line.split(";"):
            case ["=", interface, "IPv4", _, _, _, host, address, *_] if interface in usable:
                name = _ESCAPE.sub(lambda code: chr(int(code[1])), host)
                also = (address,) if is_address(address) else ()
                yield Mention(name, f"announced on {interface}", interface, also)
