"""`medley models`."""

from collections.abc import Iterator
from typing import Any

from medley.cli import Verb, flag, group, switch
from medley.cli.launch_options import Planning, site
from medley.cli.output import print_result
from medley.cli.progress import watch
from medley.environment.engine_source import EngineRequest
from medley.planner import listed
from medley.serving import alternatives
from medley.serving.catalog import Entry, entries

_GB, _BILLION, _KI = 1e9, 1e9, 1024


class ModelsVerb(Verb):
    DESCRIPTION_MORE = """
For each: the size of its weights, its parameters and those that one token meets, its context, its license,
the hosts that can hold all of it alone, and on these hosts together the layout that plan would choose with
its predicted speed, or by how much it does not fit.
It asks no network: numbers come from models/, yours in ~/.config/medley/models among them.

Examples:
    medley models
    medley models --hosts spark:2,thor:1
    medley models --hosts spark:2 --for throughput --json
    medley models add Qwen/Qwen3-14B
    medley models import recipe.yaml
"""
    USAGE = (
        "    {progname} [SWITCHES] [--from FILE...]\n"
        "    {progname} add [SWITCHES] ORG/NAME\n"
        "    {progname} import [SWITCHES] FILE|URL|-\n"
    )
    planning: Planning = group(Planning)
    replayed: list[str] = switch("--from FILE", "the hosts of these transcripts")
    imagined: str | None = switch(
        "--hosts KINDS", "hosts one need not own: spark:2,thor:1", excludes=["--from"]
    )
    as_json: bool = flag("--json", "print one JSON array")

    def main(self, *more: str) -> None:
        if self.nested_command:
            return
        if more and not self.replayed:
            raise self.no_verb(more[0])
        wanted = self.planning.wanted()
        hosts = site((*self.replayed, *more), self.imagined)
        on = alternatives.with_engine_sources(hosts, wanted, EngineRequest())
        with watch().stage("plan every model"):
            found = list(entries(on, wanted))
        print_result(list(map(_table, found)), _lines(found), as_json=self.as_json)


def _table(entry: Entry) -> dict[str, Any]:
    made, told = entry.shape, entry.choice and entry.choice.prediction
    return {
        "name": entry.name,
        "aliases": entry.model.aliases,
        "title": entry.model.title,
        "repository": entry.model.repository,
        "license": entry.model.license,
        "weights": made and made.weights,
        "size_bytes": entry.size_bytes,
        "parameters": made and made.parameters,
        "active_parameters": made and made.active_parameters,
        "context": made and made.context,
        "alone_on": entry.alone,
        "layout": entry.layout,
        "tokens_per_s": told and {"predicted": told.tokens_per_s, "low": told.low, "high": told.high},
        "lacks": entry.lacks,
    }


def _lines(found: list[Entry]) -> Iterator[str]:
    """A line for each; what fits first, the fastest on top."""
    rows = [("model", "GB", "parameters", "context", "license", "tokens/s", "fits alone on", "layout")]
    rows += map(_row, sorted(found, key=lambda each: -_speed(each)))
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, size, *rest, last in rows:
        cells = (f"{name:<{wide[0]}}", f"{size:>{wide[1]}}")
        others = (f"{cell:<{width}}" for cell, width in zip(rest, wide[2:], strict=False))
        yield "  ".join((*cells, *others, last)).rstrip()


def _row(entry: Entry) -> tuple[str, str, str, str, str, str, str, str]:
    made, told = entry.shape, entry.choice and entry.choice.prediction
    count = _count(made.parameters) if made else ""
    if made and made.active_parameters < made.parameters:
        count += f", {_count(made.active_parameters)} active"
    return (
        entry.name,
        f"{(entry.size_bytes or 0) / _GB:.1f}" if entry.size_bytes else "",
        count,
        f"{made.context // _KI}Ki" if made else "",
        entry.model.license or "",
        f"{told.tokens_per_s:.1f} ({told.low:.1f} to {told.high:.1f})" if told else "",
        listed(entry.alone) if entry.alone else "-",
        entry.layout or f"not here: {entry.lacks}",
    )


def _count(parameters: int) -> str:
    """Of the units that makers use: 4.2B, 120B, 7M."""
    if parameters < _BILLION:
        return f"{parameters / _BILLION * 1000:.0f}M"
    return f"{parameters / _BILLION:.{0 if parameters >= 100 * _BILLION else 1}f}B"


def _speed(entry: Entry) -> float:
    return entry.choice.prediction.tokens_per_s if entry.choice else 0.0
