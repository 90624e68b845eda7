"""Imagined hosts are those one does not own yet: each as its kind typically is, by a transcript in hosts/."""

import re
from collections.abc import Iterator
from ipaddress import IPv4Interface

from medley import config
from medley.fabric.readdressed import readdressed
from medley.facts import Facts, facts
from medley.problem import Problem
from medley.transcript import parse

_MOST = 64
_FIRST = 10  # their host number in each network, past what gateways have


def imagined(asked: str) -> dict[str, Facts]:
    """The hosts of `spark:2,thor:1`, by name: spark-1, spark-2, thor-1, all on the same networks."""
    known = config.files("hosts/typical", ".txt")
    kinds = [kind for word in asked.split(",") for kind in _counted(word.strip(), tuple(known), asked)]
    if len(kinds) > _MOST:
        raise Problem(
            f"--hosts {asked} is too many", cause=f"{len(kinds)} hosts; {_MOST} at most", fix="name fewer"
        )
    typical = {kind: facts(parse(known[kind].read_text(encoding="utf-8"))) for kind in set(kinds)}
    return {
        f"{kind}-{kinds[: at + 1].count(kind)}": _numbered(typical[kind], _FIRST + at)
        for at, kind in enumerate(kinds)
    }


def _counted(word: str, known: tuple[str, ...], asked: str) -> Iterator[str]:
    match = re.fullmatch(r"([\w.-]+?)(?::(\d{1,3}))?", word)
    if match is None or match[1] not in known:
        raise Problem(
            f"--hosts {asked} names no hosts",
            cause=f"{word!r} is no KIND:NUMBER of the typical hosts: {', '.join(known) or 'none is known'}",
            fix="--hosts spark:2,thor:2",
        )
    yield from [match[1]] * int(match[2] or 1)


def _numbered(host: Facts, number: int) -> Facts:
    """The same host with this number in each of its networks."""

    def address(at: IPv4Interface) -> str:
        base = int(at.network.network_address)
        return str(type(at.ip)(base + number)) if at.network.num_addresses > number + 1 else str(at.ip)

    return readdressed(host, address)
