"""`medley` without a verb: this host, what it could serve, what it serves, and the command to type next."""

import platform
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

from medley import config
from medley.cli.output import fit, print_result
from medley.cluster import cluster_file, membership
from medley.cluster.membership import Membership
from medley.cluster.remote import Server
from medley.environment.engine_source import EngineRequest
from medley.errors import Problem
from medley.host import facts
from medley.host.facts import GIB, Facts
from medley.host.kind import Kind, SiteHost, load_answers, match_kind
from medley.planner.devices import read_measurements
from medley.planner.placement import PlacementOptions
from medley.planner.site import Site
from medley.serving import catalog, server_records
from medley.serving.catalog import CatalogEntry
from medley.serving.engine_sources import add_engine_sources

_MAX_MODEL_COUNT = 3
_MAX_WARNING_CHARS = 120
_HELP = "medley --help lists the commands"


@dataclass(frozen=True)
class HostOverview:
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


def print_overview(*, as_json: bool) -> None:
    overview = read_overview()
    lines = (fit(f"{label:<12} {text}", hanging_indent=13) for label, text in list_lines(overview))
    print_result(_build_table(overview), lines, as_json=as_json)


def read_overview() -> HostOverview:
    """Read the state of this host without a request to a server."""
    host_facts = facts.read_facts(load_answers())
    name = platform.node()
    return HostOverview(
        name,
        host_facts,
        kind := _find_kind(host_facts),
        [] if isinstance(kind, Problem) else list_usable_models(name, host_facts, kind),
        catalog.find_trial_model(),
        server_records.list_servers(),
        membership.find_membership(),
        cluster_file.find_cluster_file() is not None,
    )


def _find_kind(host_facts: Facts) -> Kind | Problem:
    try:
        return match_kind(host_facts, config.load_hosts())
    except Problem as problem:
        return problem


def list_usable_models(name: str, host_facts: Facts, kind: Kind) -> list[CatalogEntry]:
    """Return the largest models that this host alone serves at a pleasant speed."""
    site = Site({name: SiteHost(host_facts, kind)}, measurements=read_measurements())
    placement = PlacementOptions()
    site = add_engine_sources(site, placement, EngineRequest())
    return catalog.find_largest_usable_models(site, placement, _MAX_MODEL_COUNT)


def list_lines(overview: HostOverview) -> Iterator[tuple[str, str]]:
    """Yield five labels with their texts."""
    yield overview.name, _format_host(overview)
    yield "could serve", _format_models(overview)
    yield "runs here", _format_servers(overview)
    yield ("fix" if isinstance(overview.kind, Problem) else "type"), overview.next_command
    yield "help", _HELP


def _format_host(overview: HostOverview) -> str:
    host_facts, memory = (
        overview.host_facts,
        f"{overview.host_facts.memory.total_bytes / GIB:.0f} GiB of memory",
    )
    if isinstance(overview.kind, Problem):
        return f"{overview.kind.what} ({host_facts.system}, {memory})"
    counts = Counter((gpu.name, gpu.memory_bytes) for gpu in host_facts.gpus)
    devices = ", ".join(_format_devices(*gpu, number) for gpu, number in counts.items())
    parts = (devices or f"{host_facts.cpu.threads} processor threads", memory)
    warning = f"; {shorten(overview.kind.warning, _MAX_WARNING_CHARS)}" if overview.kind.warning else ""
    return f"{overview.kind.table.title} ({overview.kind.name}): {', '.join(parts)}{warning}"


def _format_devices(name: str, own_bytes: int | None, count: int) -> str:
    count_text = f"{count} x " if count > 1 else ""
    return f"{count_text}{name}{f' with {own_bytes / GIB:.0f} GiB' if own_bytes else ''}"


def _format_models(overview: HostOverview) -> str:
    if isinstance(overview.kind, Problem):
        return f"nothing yet: {shorten(overview.kind.cause, _MAX_WARNING_CHARS)}"
    rates = ", ".join(
        f"{entry.name} {entry.choice.prediction.tokens_per_s:.0f} tok/s"
        for entry in overview.usable_entries
        if entry.choice
    )
    if rates:
        return f"{rates} (predicted); all: medley models"
    reason = "no speed is predicted on a CPU" if not overview.host_facts.gpus else "larger ones are slow here"
    return f"{overview.trial_model}, a small model to try; {reason}; all: medley models"


def _format_servers(overview: HostOverview) -> str:
    serves = ", ".join(
        f"{server.model} at {server.url}{'' if server.state == 'ready' else f' ({server.state})'}"
        for server in overview.servers
    )
    cluster_text = (
        f"{overview.member.role} of the cluster at {overview.member.head}"
        if overview.member
        else "in no cluster"
    )
    return f"{serves or 'nothing'}; {cluster_text}"


def _build_table(overview: HostOverview) -> Mapping[str, Any]:
    known_kind = overview.kind if isinstance(overview.kind, Kind) else None
    return {
        "host": overview.name,
        "kind": known_kind and known_kind.name,
        "problem": None if isinstance(overview.kind, Kind) else overview.kind.table,
        "could_serve": [
            {"name": entry.name, "tokens_per_s": entry.choice.prediction.tokens_per_s}
            for entry in overview.usable_entries
            if entry.choice
        ],
        "serving": [
            {"url": server.url, "model": server.model, "state": server.state} for server in overview.servers
        ],
        "role": overview.member and overview.member.role,
        "head": overview.member and overview.member.head,
        "next": overview.next_command,
    }
