"""Draw a layout as a picture, by rich's SVG export."""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from operator import attrgetter

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from medley.planner import Layout, named, pipelines, speed_and_transport
from medley.planner.choose import Choice
from medley.planner.fit import Rank, gib
from medley.planner.report import layers_of, predicted, printable

_WIDE = 116
_ACROSS = 4
"""Stages beside each other."""
_WIDEST = 60
_ARROW = 12
_NOT = 6
"""Rejected layouts that are told; the rest are counted."""
_PARTS = (("weights", "#2f6db3"), ("KV cache", "#e69f00"), ("engine", "#8e5ea2"), ("free", "#dfe3ea"))
_INK, _PAPER, _MUTED, _LINE, _ALERT = "#1d2330", "#ffffff", "#5b6475", "#b8c0cc", "#9a3412"
_THEME = TerminalTheme((255, 255, 255), (29, 35, 48), [(29, 35, 48)] * 8)
_DOCUMENT = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" \
height="{height}" role="img" aria-labelledby="title description">
<title id="title">TITLE</title>
<desc id="description">DESCRIPTION</desc>
<style>
.{unique_id}-matrix {{ font: {char_height}px/{line_height}px Menlo, 'DejaVu Sans Mono', monospace; }}
{styles}
</style>
<defs>
{lines}
</defs>
<rect width="100%" height="100%" fill="PAPER"/>
<g transform="translate({terminal_x}, 20)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def drawn(model: str, choice: Choice) -> str:
    """Return an SVG document that needs nothing outside itself."""
    console = Console(
        record=True, file=io.StringIO(), width=_WIDE, color_system="truecolor", force_terminal=True
    )
    speed, *bound = predicted(choice.prediction)
    console.print(_text(model, "bold"), _text(named(choice.layout), "bold"), _text(speed), sep="\n")
    for each in bound:
        console.print(_text(each))
    console.print(Text(), _legend(choice.layout), Text(), *_rows(choice), *_reasons(choice), sep="\n")
    description = "; ".join([*map(str, choice.fit.ranks), *choice.warnings, *choice.why])
    told = {"TITLE": f"{model}: {named(choice.layout)}", "DESCRIPTION": description, "PAPER": _PAPER}
    document = _DOCUMENT
    for name, text in told.items():
        document = document.replace(name, escape(printable(text)).replace("{", "{{").replace("}", "}}"))
    return console.export_svg(theme=_THEME, code_format=document)


def _text(words: str, style: str = "") -> Text:
    return Text(printable(words), style or _INK)


def _legend(layout: Layout) -> Text:
    found = Text()
    for name, color in _PARTS:
        found.append("  ", f"on {color}").append(f" {name}   ", _INK)
    link = layout.link
    between = (
        f"; between hosts {' '.join(speed_and_transport(link))}, {link.latency_us:g} µs one way"
        if link
        else ""
    )
    return found.append(f"in GiB{between}", _INK)


def _rows(choice: Choice) -> Iterator[RenderableType]:
    """The stages of each pipeline from left to right; those of short ones share a row."""
    layout = choice.layout
    deep, many = len(layout.stages), len(pipelines(layout))
    lines = -(-deep // _ACROSS)
    across = -(-deep // lines) if lines > 1 else min(_ACROSS, deep * many) // deep * deep
    cells = list(_stages(choice))
    gap = _ARROW if deep > 1 else 2
    wide = min(_WIDEST, _WIDE // across - gap)
    # A pipeline that is longer than a row begins on a row of its own.
    whole = deep if deep > _ACROSS else len(cells)
    for first in range(0, len(cells), whole):
        for begun in range(first, first + whole, across):
            row, found = Table.grid(), list[RenderableType]()
            for nth in range(begun, min(begun + across, first + whole)):
                row.add_column(width=wide)
                row.add_column(width=gap)
                found += [cells[nth], _arrow(layout, nth % deep) if (nth + 1) % deep else ""]
            row.add_row(*found)
            yield row
            yield Text()


def _arrow(layout: Layout, nth: int) -> Text:
    """From a stage to the next; the network is named where it leaves the host."""
    here, there = ({device.host for device in stage.devices} for stage in layout.stages[nth : nth + 2])
    speed, kind = speed_and_transport(layout.link) if layout.link is not None and here != there else ("", "")
    return Text(f"\n\n\n{speed}\n────────▶\n{kind}", _MUTED, justify="center")


def _stages(choice: Choice) -> Iterator[Group]:
    layout = choice.layout
    ranks = {place: list(found) for place, found in groupby(choice.fit.ranks, attrgetter("replica", "stage"))}
    for replica, names in enumerate(layers_of(layout)):
        for stage, name in enumerate(names):
            place = [f"replica {replica + 1}"] if layout.replicas else []
            place += [f"stage {stage + 1}"] if len(names) > 1 else []
            labels = [", ".join(place), name] if place else [name]
            yield Group(*map(_text, labels), *_hosts(layout, ranks[replica, stage]))


def _hosts(layout: Layout, ranks: Sequence[Rank]) -> Iterator[RenderableType]:
    """Joined by the network that a tensor-parallel stage crosses."""
    for nth, (host, found) in enumerate(groupby(ranks, lambda rank: rank.device.host)):
        if nth and layout.link is not None:
            yield Text(f"  ↕ tensor parallel, {' '.join(speed_and_transport(layout.link))}", _MUTED)
        title = Text(printable(host), f"bold {_INK}", overflow="ellipsis")
        yield Panel(Group(*map(_rank, found)), title=title, title_align="left", border_style=_LINE)


def _rank(rank: Rank) -> Group:
    device = rank.device
    what = f"{'CPU' if device.kind == 'cpu' else 'GPU'} {device.index} {device.name}".strip()
    parts = ", ".join(f"{name} {gib(size)}" for (name, _), size in zip(_PARTS, _sizes(rank), strict=True))
    name = Text(printable(what), _MUTED, no_wrap=True, overflow="ellipsis")
    return Group(
        name, Bar(rank), Text(f"{gib(rank.total_bytes)} of {gib(device.memory_bytes)}: {parts}", _MUTED)
    )


@dataclass(frozen=True)
class Bar:
    """As wide as the memory that a rank may take."""

    rank: Rank

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        whole, filled, begun = max(1, self.rank.device.memory_bytes), 0, 0
        for (_, color), size in zip(_PARTS, _sizes(self.rank), strict=True):
            filled += size
            end = round(options.max_width * min(filled, whole) / whole)
            yield Segment(" " * (end - begun), Style(bgcolor=color))
            begun = end
        yield Segment.line()


def _sizes(rank: Rank) -> tuple[int, int, int, int]:
    return rank.weights_bytes, rank.kv_bytes, rank.overhead_bytes, max(0, rank.free_bytes)


def _reasons(choice: Choice) -> Iterator[Text]:
    yield from (_text(f"warning: {each}", _ALERT) for each in choice.warnings)
    yield from (_text(f"why: {each}") for each in choice.why if not each.startswith("predicted "))
    yield from (_text(f"not: {each.what}: {each.because}", _MUTED) for each in choice.rejected[:_NOT])
    if len(choice.rejected) > _NOT:
        yield _text(f"not: {len(choice.rejected) - _NOT} more", _MUTED)
