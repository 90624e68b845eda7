"""Hosts one does not own: `spark:2` from typical transcripts, with other addresses."""

import re
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from ipaddress import IPv4Interface

from medley import config
from medley.errors import Problem
from medley.host.facts import Facts, facts
from medley.host.facts.network import Interface
from medley.host.facts.rdma import RdmaPort
from medley.transcript import parse

MOST_HOSTS = 64
_FIRST = 10  # their host number in each network, past what gateways have


def imagined(asked: str) -> dict[str, Facts]:
    """The hosts of `spark:2,thor:1`, by name: spark-1, spark-2, thor-1, all on the same networks."""
    known = config.files("hosts/typical", ".txt")
    kinds = [kind for word in asked.split(",") for kind in _counted(word.strip(), tuple(known), asked)]
    if len(kinds) > MOST_HOSTS:
        raise Problem(
            f"--hosts {asked} is too many",
            cause=f"{len(kinds)} hosts; {MOST_HOSTS} at most",
            fix="name fewer",
        )
    typical = {kind: _facts(known[kind].read_text(encoding="utf-8")) for kind in set(kinds)}
    return {
        f"{kind}-{kinds[: at + 1].count(kind)}": _numbered(typical[kind], _FIRST + at)
        for at, kind in enumerate(kinds)
    }


@lru_cache(maxsize=64)
def _facts(transcript: str) -> Facts:
    """Parse a transcript once per process, because remedies plan on many hypothetical hosts."""
    return facts(parse(transcript))


def _counted(word: str, known: tuple[str, ...], asked: str) -> list[str]:
    match = re.fullmatch(r"([\w.-]+?)(?::([1-9]\d{0,2}))?", word.lower())
    if match is None or match[1] not in known:
        is_any = word.lower().partition(":")[0] == "cuda"
        why = "is any NVIDIA GPU: name one" if is_any else "is not KIND:NUMBER"
        cause = f"{word!r} {why}, such as spark:2; kinds: {', '.join(known)}"
        fix = f"--hosts {_meant(asked, known) or 'spark:2,thor:2'}; or leave --hosts out, for your own hosts"
        raise Problem(f"--hosts {asked} names no hosts", cause=cause, fix=fix)
    return [match[1]] * int(match[2] or 1)


def _meant(asked: str, known: tuple[str, ...]) -> str:
    """Return what all words of --hosts probably mean, valid as a whole; empty where one is like no kind."""
    counts: dict[str, int] = {}
    for word in asked.lower().split(","):
        # spark:2, and spark=2, spark-2, spark 2, sparkx2, spark
        match = re.fullmatch(r"(.*?)(?:\s*(?::|=|\*|x|\s|-)\s*(\d{0,2}))?", word.strip())
        whole, name, number = word.strip(), match[1] if match else "", match[2] if match else None
        if whole in known:
            kind, count = whole, 1
        else:
            near = ["rtx-5090"] if name == "cuda" else get_close_matches(name, known, 1)
            if not near:
                return ""
            is_own_name = f"{near[0]}-{number}" == whole  # as plan names hosts: spark-1, spark-2
            kind, count = near[0], 1 if is_own_name else int(number or 1) or 1
        counts[kind] = counts.get(kind, 0) + count
    return ",".join(f"{kind}:{min(count, MOST_HOSTS)}" for kind, count in counts.items())


def _numbered(host: Facts, number: int) -> Facts:
    """The same host with this number in each of its networks."""

    def address(at: IPv4Interface) -> str:
        return str(at.network[number]) if at.network.num_addresses > number + 1 else str(at.ip)

    return readdressed(host, address)


def readdressed(facts: Facts, address: Callable[[IPv4Interface], str]) -> Facts:
    """`address` gives the new one of each, in its network."""
    links = facts.net.links
    moved = {each.ip: address(each.at) for link in links for each in link.addresses}

    def of_link(link: Interface) -> Interface:
        return replace(link, addresses=tuple(replace(each, ip=moved[each.ip]) for each in link.addresses))

    def of_port(port: RdmaPort) -> RdmaPort:
        gids = (replace(gid, address=moved.get(gid.address or "", gid.address)) for gid in port.gids)
        return replace(port, gids=tuple(gids))

    net = replace(facts.net, links=tuple(map(of_link, links)))
    return replace(facts, net=net, rdma=tuple(map(of_port, facts.rdma)))
