"""`medley` without a verb: this host, what it could serve, what it serves, and the command to type next."""

import platform
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

from medley import cluster, config, serving
from medley.cli.output import fit, print_result
from medley.cluster import membership
from medley.cluster.membership import Membership
from medley.cluster.remote import Server
from medley.environment.engine_source import EngineRequest
from medley.errors import Problem
from medley.host import facts
from medley.host.facts import GIB, Facts
from medley.host.kind import Kind, load_answers, match_kind
from medley.planner.devices import read_measurements
from medley.planner.placement import PlacementOptions
from medley.planner.topology import Topology
from medley.serving import catalog
from medley.serving.catalog import Entry
from medley.serving.engine_sources import add_engine_sources

_MODELS = 3
_WARNING_CHARS = 120
_HELP = "medley --help lists the commands"


@dataclass(frozen=True)
class Sign:
    """What stands at the door of one host."""

    name: str
    found: Facts
    kind: Kind | Problem
    """A Problem where no kind is like it, or its GPU does not answer."""
    usable: list[Entry]
    """The largest models that are fast enough here."""
    to_try: str
    """The model for trying medley."""
    servers: list[Server]
    joined: Membership | None
    has_cluster_file: bool

    @property
    def next(self) -> str:
        """The one command to type."""
        if isinstance(self.kind, Problem):
            return self.kind.fix
        if self.kind.warning and not self.found.gpus:
            return "medley doctor"  # a GPU is there, and is not used
        if self.servers:
            return "medley chat" if self.servers[0].state == "ready" else "medley logs -f"
        if self.joined and self.joined.role == "worker":
            return "medley status"
        if self.has_cluster_file and not self.joined:
            return "medley up"
        return f"medley serve {self.usable[0].name if self.usable else self.to_try}"


def print_sign(*, as_json: bool) -> None:
    sign = read_sign()
    lines = (fit(f"{label:<12} {text}", hang=13) for label, text in sign_lines(sign))
    print_result(_table(sign), lines, as_json=as_json)


def read_sign() -> Sign:
    """Look at this host and what runs on it; sends no request."""
    found = facts.read_facts(load_answers())
    name = platform.node()
    return Sign(
        name,
        found,
        kind := _kind(found),
        [] if isinstance(kind, Problem) else usable_models(name, found, kind),
        catalog.find_trial_model(),
        serving.list_servers(),
        membership.find_membership(),
        cluster.find_file() is not None,
    )


def _kind(found: Facts) -> Kind | Problem:
    try:
        return match_kind(found, config.hosts())
    except Problem as problem:
        return problem


def usable_models(name: str, found: Facts, kind: Kind) -> list[Entry]:
    """Return the largest models that this host alone serves at a pleasant speed."""
    site = Topology({name: (found, kind)}, measurements=read_measurements())
    wanted = PlacementOptions()
    site = add_engine_sources(site, wanted, EngineRequest())
    return catalog.find_largest_usable(site, wanted, _MODELS)


def sign_lines(sign: Sign) -> Iterator[tuple[str, str]]:
    """Yield five labels with their texts."""
    yield sign.name, _host(sign)
    yield "could serve", _could_serve(sign)
    yield "runs here", _runs(sign)
    yield ("fix" if isinstance(sign.kind, Problem) else "type"), sign.next
    yield "help", _HELP


def _host(sign: Sign) -> str:
    found, memory = sign.found, f"{sign.found.memory.total_bytes / GIB:.0f} GiB of memory"
    if isinstance(sign.kind, Problem):
        return f"{sign.kind.what} ({found.system}, {memory})"
    counts = Counter((gpu.name, gpu.memory_bytes) for gpu in found.gpus)
    devices = ", ".join(_devices(*each, count) for each, count in counts.items())
    parts = (devices or f"{found.cpu.threads} processor threads", memory)
    warning = f"; {shorten(sign.kind.warning, _WARNING_CHARS)}" if sign.kind.warning else ""
    return f"{sign.kind.host.title} ({sign.kind.name}): {', '.join(parts)}{warning}"


def _devices(name: str, own_bytes: int | None, count: int) -> str:
    several = f"{count} x " if count > 1 else ""
    return f"{several}{name}{f' with {own_bytes / GIB:.0f} GiB' if own_bytes else ''}"


def _could_serve(sign: Sign) -> str:
    if isinstance(sign.kind, Problem):
        return f"nothing yet: {shorten(sign.kind.cause, _WARNING_CHARS)}"
    shown = ", ".join(
        f"{each.name} {each.choice.prediction.tokens_per_s:.0f} tok/s" for each in sign.usable if each.choice
    )
    if shown:
        return f"{shown} (predicted); all: medley models"
    reason = "no speed is predicted on a CPU" if not sign.found.gpus else "larger ones are slow here"
    return f"{sign.to_try}, a small model to try; {reason}; all: medley models"


def _runs(sign: Sign) -> str:
    serves = ", ".join(
        f"{each.model} at {each.url}{'' if each.state == 'ready' else f' ({each.state})'}"
        for each in sign.servers
    )
    part = f"{sign.joined.role} of the cluster at {sign.joined.head}" if sign.joined else "in no cluster"
    return f"{serves or 'nothing'}; {part}"


def _table(sign: Sign) -> Mapping[str, Any]:
    known = sign.kind if isinstance(sign.kind, Kind) else None
    return {
        "host": sign.name,
        "kind": known and known.name,
        "problem": None if isinstance(sign.kind, Kind) else sign.kind.table,
        "could_serve": [
            {"name": each.name, "tokens_per_s": each.choice.prediction.tokens_per_s}
            for each in sign.usable
            if each.choice
        ],
        "serving": [{"url": each.url, "model": each.model, "state": each.state} for each in sign.servers],
        "role": sign.joined and sign.joined.role,
        "head": sign.joined and sign.joined.head,
        "next": sign.next,
    }
