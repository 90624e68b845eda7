"""`medley models`."""

from collections.abc import Mapping
from typing import Any

from medley.cli import Verb, flag, group, switch
from medley.cli.launch_options import Planning, read_site
from medley.cli.output import format_table, print_result
from medley.cli.progress import start_progress
from medley.environment.engine_source import EngineRequest
from medley.serving import catalog
from medley.serving.catalog import Entry
from medley.serving.engine_sources import add_engine_sources

_GB, _BILLION, _KI = 1e9, 1e9, 1024


class ModelsVerb(Verb):
    USAGE = "    {progname} [OPTIONS] [--from FILE...]\n"
    planning: Planning = group(Planning)
    replayed: list[str] = switch("--from FILE", "transcript of a host to plan for")
    imagined: str | None = switch(
        "--hosts KINDS", "kinds of hosts to plan for: spark:2,thor:1", excludes=["--from"]
    )
    as_json: bool = flag("--json", "one JSON array")

    def main(self, *more: str) -> None:
        if self.nested_command:
            return
        if more and not self.replayed:
            raise self.unknown_verb_usage(more[0])
        wanted = self.planning.build_placement()
        hosts = read_site((*self.replayed, *more), self.imagined)
        on = add_engine_sources(hosts, wanted, EngineRequest())
        with start_progress().stage("plan every model"):
            here = catalog.measure_downloads()
            found = list(catalog.list_entries(on, wanted, here))
        print_result(list(map(_table, found)), _lines(found, here), as_json=self.as_json)


def _table(entry: Entry) -> dict[str, Any]:
    made, told = entry.shape, entry.choice and entry.choice.prediction
    told = told if told and told.fitted else None  # plan has no speed of a CPU either
    return {
        "name": entry.name,
        "aliases": entry.model.aliases,
        "title": entry.model.title,
        "repository": entry.model.repository,
        "license": entry.model.license,
        "weights": made and made.weights,
        "size_bytes": entry.size_bytes,
        "on_disk_bytes": entry.on_disk_bytes,
        "parameters": made and made.parameters,
        "active_parameters": made and made.active_parameters,
        "context": made and made.context,
        "alone_on": entry.single_hosts,
        "layout": entry.layout,
        "tokens_per_s": told and {"predicted": told.tokens_per_s, "low": told.low, "high": told.high},
        "lacks": entry.gap,
    }


def _lines(found: list[Entry], here: Mapping[str, int]) -> list[str]:
    """A line for each; what fits first, the fastest on top; then what else is on this host."""
    rows = list(map(_row, sorted(found, key=lambda each: -_speed(each))))
    known = {each.model.repository for each in found}
    more = ((name, size) for name, size in here.items() if name not in known)
    rows += ((name, "", _in_gb(size), "", "", "", f"medley plan {name}") for name, size in more)
    return format_table(
        ("model", "GB", "on disk", "parameters", "context", "tok/s", "layout"), rows, optional=_OPTIONAL
    )


_OPTIONAL = ("on disk", "parameters", "context")
"""Columns that a narrow terminal does without."""


def _row(entry: Entry) -> tuple[str, str, str, str, str, str, str]:
    told = entry.choice and entry.choice.prediction
    made, lacks = entry.shape, (entry.gap or "").partition(" in the nearest")[0]
    count = _count(made.parameters) if made else ""
    if made and made.active_parameters < made.parameters:
        count += f", {_count(made.active_parameters)} active"
    return (
        entry.name,
        _in_gb(entry.size_bytes),
        _in_gb(entry.on_disk_bytes),
        count,
        f"{made.context // _KI}Ki" if made else "",
        ("" if not told else f"{told.tokens_per_s:.1f}" if told.fitted else "-"),
        entry.layout or (f"does not fit: {lacks}" if made else lacks),
    )


def _in_gb(size: int | None) -> str:
    return "" if not size else f"{size / _GB:.1f}" if size > _GB / 20 else "<0.1"


def _count(parameters: int) -> str:
    """Of the units that makers use: 4.2B, 120B, 7M."""
    if parameters < _BILLION:
        return f"{parameters / _BILLION * 1000:.0f}M"
    return f"{parameters / _BILLION:.{0 if parameters >= 100 * _BILLION else 1}f}B"


def _speed(entry: Entry) -> float:
    return entry.choice.prediction.tokens_per_s if entry.choice else 0.0
