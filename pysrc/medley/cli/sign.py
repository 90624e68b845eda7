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
from medley.serving.catalog import CatalogEntry
from medley.serving.engine_sources import add_engine_sources

_MAX_MODELS = 3
_WARNING_CHARS = 120
_HELP = "medley --help lists the commands"


@dataclass(frozen=True)
class Sign:
    """The state of one host for `medley` without a verb."""

    name: str
    host_facts: Facts
    kind: Kind | Problem
    """The kind; a Problem if none matches, or if the GPU does not answer."""
    usable_entries: list[CatalogEntry]
    """The largest models that are fast enough here."""
    trial_model: str
    """The model for trying medley."""
    servers: list[Server]
    member: Membership | None
    has_cluster_file: bool

    @property
    def next_command(self) -> str:
        """The command to type next."""
        if isinstance(self.kind, Problem):
            return self.kind.fix
        if self.kind.warning and not self.host_facts.gpus:
            return "medley doctor"  # a GPU is there, and is not used
        if self.servers:
            return "medley chat" if self.servers[0].state == "ready" else "medley logs -f"
        if self.member and self.member.role == "worker":
            return "medley status"
        if self.has_cluster_file and not self.member:
            return "medley up"
        return f"medley serve {self.usable_entries[0].name if self.usable_entries else self.trial_model}"


def print_sign(*, as_json: bool) -> None:
    sign = read_sign()
    lines = (fit(f"{label:<12} {text}", hang=13) for label, text in list_lines(sign))
    print_result(_build_table(sign), lines, as_json=as_json)


def read_sign() -> Sign:
    """Look at this host and what runs on it; sends no request."""
    host_facts = facts.read_facts(load_answers())
    name = platform.node()
    return Sign(
        name,
        host_facts,
        kind := _find_kind(host_facts),
        [] if isinstance(kind, Problem) else list_usable_models(name, host_facts, kind),
        catalog.find_trial_model(),
        serving.list_servers(),
        membership.find_membership(),
        cluster.find_file() is not None,
    )


def _find_kind(host_facts: Facts) -> Kind | Problem:
    try:
        return match_kind(host_facts, config.hosts())
    except Problem as problem:
        return problem


def list_usable_models(name: str, host_facts: Facts, kind: Kind) -> list[CatalogEntry]:
    """Return the largest models that this host alone serves at a pleasant speed."""
    site = Topology({name: (host_facts, kind)}, measurements=read_measurements())
    placement = PlacementOptions()
    site = add_engine_sources(site, placement, EngineRequest())
    return catalog.find_largest_usable_models(site, placement, _MAX_MODELS)


def list_lines(sign: Sign) -> Iterator[tuple[str, str]]:
    """Yield five labels with their texts."""
    yield sign.name, _format_host(sign)
    yield "could serve", _format_models(sign)
    yield "runs here", _format_servers(sign)
    yield ("fix" if isinstance(sign.kind, Problem) else "type"), sign.next_command
    yield "help", _HELP


def _format_host(sign: Sign) -> str:
    host_facts, memory = sign.host_facts, f"{sign.host_facts.memory.total_bytes / GIB:.0f} GiB of memory"
    if isinstance(sign.kind, Problem):
        return f"{sign.kind.what} ({host_facts.system}, {memory})"
    counts = Counter((gpu.name, gpu.memory_bytes) for gpu in host_facts.gpus)
    devices = ", ".join(_format_devices(*each, count) for each, count in counts.items())
    parts = (devices or f"{host_facts.cpu.threads} processor threads", memory)
    warning = f"; {shorten(sign.kind.warning, _WARNING_CHARS)}" if sign.kind.warning else ""
    return f"{sign.kind.host.title} ({sign.kind.name}): {', '.join(parts)}{warning}"


def _format_devices(name: str, own_bytes: int | None, count: int) -> str:
    several = f"{count} x " if count > 1 else ""
    return f"{several}{name}{f' with {own_bytes / GIB:.0f} GiB' if own_bytes else ''}"


def _format_models(sign: Sign) -> str:
    if isinstance(sign.kind, Problem):
        return f"nothing yet: {shorten(sign.kind.cause, _WARNING_CHARS)}"
    rates = ", ".join(
        f"{each.name} {each.choice.prediction.tokens_per_s:.0f} tok/s"
        for each in sign.usable_entries
        if each.choice
    )
    if rates:
        return f"{rates} (predicted); all: medley models"
    reason = "no speed is predicted on a CPU" if not sign.host_facts.gpus else "larger ones are slow here"
    return f"{sign.trial_model}, a small model to try; {reason}; all: medley models"


def _format_servers(sign: Sign) -> str:
    serves = ", ".join(
        f"{each.model} at {each.url}{'' if each.state == 'ready' else f' ({each.state})'}"
        for each in sign.servers
    )
    cluster_text = (
        f"{sign.member.role} of the cluster at {sign.member.head}" if sign.member else "in no cluster"
    )
    return f"{serves or 'nothing'}; {cluster_text}"


def _build_table(sign: Sign) -> Mapping[str, Any]:
    known_kind = sign.kind if isinstance(sign.kind, Kind) else None
    return {
        "host": sign.name,
        "kind": known_kind and known_kind.name,
        "problem": None if isinstance(sign.kind, Kind) else sign.kind.table,
        "could_serve": [
            {"name": each.name, "tokens_per_s": each.choice.prediction.tokens_per_s}
            for each in sign.usable_entries
            if each.choice
        ],
        "serving": [{"url": each.url, "model": each.model, "state": each.state} for each in sign.servers],
        "role": sign.member and sign.member.role,
        "head": sign.member and sign.member.head,
        "next": sign.next_command,
    }
