"""`medley models`."""

from collections.abc import Mapping
from typing import Any

from medley.cli import Verb, flag, group, switch
from medley.cli.launch_options import PlanningOptions, read_site
from medley.cli.output import format_table, print_result
from medley.cli.progress import start_progress
from medley.environment.engine_source import EngineRequest
from medley.serving import catalog
from medley.serving.catalog import CatalogEntry
from medley.serving.engine_sources import add_engine_sources

_GB, _BILLION, _KI = 1e9, 1e9, 1024


class ModelsVerb(Verb):
    USAGE = "    {progname} [OPTIONS] [--from FILE...]\n"
    planning: PlanningOptions = group(PlanningOptions)
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
        placement = self.planning.build_placement()
        hosts = read_site((*self.replayed, *more), self.imagined)
        site = add_engine_sources(hosts, placement, EngineRequest())
        with start_progress().stage("plan every model"):
            download_sizes = catalog.measure_downloads()
            entries = list(catalog.list_entries(site, placement, download_sizes))
        print_result(
            list(map(_build_table, entries)), _list_lines(entries, download_sizes), as_json=self.as_json
        )


def _build_table(entry: CatalogEntry) -> dict[str, Any]:
    shape, prediction = entry.shape, entry.choice and entry.choice.prediction
    prediction = (
        prediction if prediction and prediction.is_calibrated else None
    )  # plan has no speed of a CPU either
    return {
        "name": entry.name,
        "aliases": entry.model.aliases,
        "title": entry.model.title,
        "repository": entry.model.repository,
        "license": entry.model.license,
        "weights": shape and shape.weights,
        "size_bytes": entry.size_bytes,
        "on_disk_bytes": entry.on_disk_bytes,
        "parameters": shape and shape.parameters,
        "active_parameters": shape and shape.active_parameters,
        "context": shape and shape.context,
        "alone_on": entry.single_hosts,
        "layout": entry.layout,
        "tokens_per_s": prediction
        and {"predicted": prediction.tokens_per_s, "low": prediction.low, "high": prediction.high},
        "lacks": entry.refusal,
    }


def _list_lines(entries: list[CatalogEntry], download_sizes: Mapping[str, int]) -> list[str]:
    """Return a line for each model, the fastest first; then the other downloads of this host."""
    rows = list(map(_build_row, sorted(entries, key=lambda entry: -_get_speed(entry))))
    known_repositories = {item.model.repository for item in entries}
    other_downloads = (
        (name, size) for name, size in download_sizes.items() if name not in known_repositories
    )
    rows += (
        (name, "", _format_gb(size), "", "", "", f"medley plan {name}") for name, size in other_downloads
    )
    return format_table(
        ("model", "GB", "on disk", "parameters", "context", "tok/s", "layout"),
        rows,
        optional=_OPTIONAL_COLUMNS,
    )


_OPTIONAL_COLUMNS = ("on disk", "parameters", "context")
"""Columns that a narrow terminal leaves out."""


def _build_row(entry: CatalogEntry) -> tuple[str, str, str, str, str, str, str]:
    prediction = entry.choice and entry.choice.prediction
    shape, gap = entry.shape, (entry.refusal or "").partition(" in the nearest")[0]
    count = _format_parameters(shape.parameters) if shape else ""
    if shape and shape.active_parameters < shape.parameters:
        count += f", {_format_parameters(shape.active_parameters)} active"
    rate = ""
    if prediction:
        rate = f"{prediction.tokens_per_s:.1f}" if prediction.is_calibrated else "-"
    return (
        entry.name,
        _format_gb(entry.size_bytes),
        _format_gb(entry.on_disk_bytes),
        count,
        f"{shape.context // _KI}Ki" if shape else "",
        rate,
        entry.layout or (f"does not fit: {gap}" if shape else gap),
    )


def _format_gb(size: int | None) -> str:
    if not size:
        return ""
    return f"{size / _GB:.1f}" if size > _GB / 20 else "<0.1"


def _format_parameters(parameters: int) -> str:
    """Return the count in the units that makers use: 4.2B, 120B, 7M."""
    if parameters < _BILLION:
        return f"{parameters / _BILLION * 1000:.0f}M"
    return f"{parameters / _BILLION:.{0 if parameters >= 100 * _BILLION else 1}f}B"


def _get_speed(entry: CatalogEntry) -> float:
    return entry.choice.prediction.tokens_per_s if entry.choice else 0.0
