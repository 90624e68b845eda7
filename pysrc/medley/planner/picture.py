"""Draw a layout as an SVG picture: speed, hosts, and their memory."""

from collections.abc import Iterator
from html import escape
from itertools import groupby

from rich.cells import cell_len, set_cell_size

from medley.planner import arrangement, named
from medley.planner.choose import Choice
from medley.planner.fit import Rank, gib
from medley.planner.report import (
    PARTS,
    device_name,
    layers_of,
    link_text,
    parts_of,
    printable,
    speed_range,
    where,
)

_WIDE, _MARGIN, _GAP, _ACROSS = 1180, 40, 54, 3
_WIDEST, _PAD, _BAR, _RANK = 523, 18, 26, 70
"""Of a card: its largest width, its inner margin; a bar's height, and a rank's with its numbers."""
_TOP, _HEAD, _FOOT = 124, 74, 44
_CELL, _BOLD = 0.55, 0.64
"""Width of a letter in ems, on average."""
_STYLE = """
text { font-family: system-ui, 'Segoe UI', 'Helvetica Neue', 'DejaVu Sans', sans-serif; fill: #5b6475 }
.paper { fill: #ffffff } .card { fill: #f6f7fa; stroke: #dfe3ea } .free { fill: #dfe3ea }
.ink { fill: #14161f } .b { font-weight: 700 } .arrow { stroke: #8a92a0; stroke-width: 2.5; fill: none }
@media (prefers-color-scheme: dark) {
text { fill: #9aa4b2 } .paper { fill: #0d1117 } .card { fill: #161b22; stroke: #30363d }
.free { fill: #30363d } .ink { fill: #e6edf3 } }
"""


def drawn(model: str, choice: Choice, command: str) -> str:
    """Return an SVG document that needs nothing outside itself; the reasons are in its description."""
    groups = groupby(choice.fit.ranks, lambda rank: (rank.replica, rank.stage, rank.device.host))
    cards = [list(ranks) for _, ranks in groups]
    across = -(-len(cards) // -(-len(cards) // _ACROSS))
    wide = min(_WIDEST, (_WIDE - 2 * _MARGIN - _GAP * (across - 1)) // across)
    y, body = _TOP, list[str]()
    for first in range(0, len(cards), across):
        row = cards[first : first + across]
        high = _HEAD + _RANK * max(map(len, row)) + 4
        for nth, ranks in enumerate(row):
            x, after = _MARGIN + nth * (wide + _GAP), cards[first + nth + 1 : first + nth + 2]
            body += _card(choice, ranks, (x, y, wide, high))
            body += _arrow(ranks, after, x + wide, y + high // 2)
        y += high + _BAR
    high = y + _FOOT
    drawing = "\n".join((*_heading(model, choice), *body, *_legend(high - _BAR, command)))
    reasons = "; ".join([*map(str, choice.fit.ranks), *choice.warnings, *choice.why])
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE} {high}" width="{_WIDE}" \
height="{high}" role="img" aria-labelledby="title description">
<title id="title">{escape(printable(f"{model}: {named(choice.layout)}"))}</title>
<desc id="description">{escape(printable(reasons))}</desc>
<style>{_STYLE}</style>
<clipPath id="bar"><rect width="{wide - 2 * _PAD}" height="{_BAR}" rx="6"/></clipPath>
<rect class="paper" width="100%" height="100%"/>
{drawing}
</svg>
"""


def _text(words: str, place: tuple[int, int], size: int, style: str = "", room: int = 0) -> str:
    """Of at most `room` pixels; to the left of its place where that is negative."""
    words, most = printable(words), int(abs(room) / (size * (_BOLD if "b" in style else _CELL)))
    if room and cell_len(words) > most:
        words = set_cell_size(words, most - 1).rstrip() + "…"
    end = ' text-anchor="end"' if room < 0 else ""
    x, y = place
    return f'<text class="{style}" x="{x}" y="{y}" font-size="{size}"{end}>{escape(words)}</text>'


def _heading(model: str, choice: Choice) -> Iterator[str]:
    layout, told = choice.layout, choice.prediction
    weights = sum(rank.weights_bytes for rank in choice.fit.ranks if not rank.replica)
    about = (arrangement(layout), f"{gib(weights)} GiB of weights", link_text(layout).partition(",")[0])
    yield _text(f"{model} on {where(layout)}", (_MARGIN, 62), 29, "ink b", 790)
    yield _text(" · ".join(filter(None, about)), (_MARGIN, 92), 16, room=790)
    right, streams = _WIDE - _MARGIN, choice.work.load.concurrency
    many = f" for {streams} streams" if streams > 1 else ""
    speed, about_it = f"{told.tokens_per_s:.1f} tok/s", f"predicted{many}, range {speed_range(told)}"
    if not told.fitted:
        speed, about_it = "no prediction", "runs on a CPU"
    yield _text(speed, (right, 66), 38, "ink b", -320)
    yield _text(about_it, (right, 92), 14, room=-320)


def _card(choice: Choice, ranks: list[Rank], box: tuple[int, int, int, int]) -> Iterator[str]:
    """A host of a stage, with a bar for each of its ranks; what is too wide is cut off."""
    x, y, wide, high = box
    one, right, inner = ranks[0], wide - _PAD, wide - 2 * _PAD
    yield f'<svg x="{x}" y="{y}" width="{wide}" height="{high}">'
    yield f'<rect class="card" x="0.5" y="0.5" width="{wide - 1}" height="{high - 1}" rx="12"/>'
    yield _text(one.device.host, (_PAD, 32), 19, "ink b", inner // 2)
    yield _text(device_name(one.device), (right, 32), 13, room=-inner // 2 + 10)
    layers = f"layers {list(layers_of(choice.layout))[one.replica][one.stage]}"
    copy = f"replica {one.replica + 1}, " if choice.layout.replicas else ""
    yield _text(copy + layers, (_PAD, 60), 15, "ink", inner)
    for nth, rank in enumerate(ranks):
        top, left = _HEAD + nth * _RANK, 0.0
        yield f'<g transform="translate({_PAD}, {top})" clip-path="url(#bar)">'
        yield f'<rect class="free" width="{inner}" height="{_BAR}"/>'
        for (_, color), size in zip(PARTS[:-1], parts_of(rank), strict=False):
            width = min(inner - left, inner * size / max(1, rank.device.memory_bytes))
            yield f'<rect fill="{color}" x="{left:.1f}" width="{width:.1f}" height="{_BAR}"/>'
            left += width
        yield "</g>"
        used = f"{gib(rank.total_bytes)} of {gib(rank.device.memory_bytes)} GiB"
        yield _text(used, (_PAD, top + 46), 15, "ink b", inner * 2 // 3)
        yield _text(f"{gib(max(0, rank.free_bytes))} GiB free", (right, top + 46), 13, room=-inner // 3)
    yield "</svg>"


def _arrow(ranks: list[Rank], after: list[list[Rank]], x: int, y: int) -> Iterator[str]:
    """To the next stage, or both ways inside a tensor-parallel group; none between replicas."""
    here = ranks[0]
    if after and (there := after[0][0]).replica == here.replica:
        back = f"M{x + 14} {y - 6}L{x + 7} {y}L{x + 14} {y + 6}" if there.stage == here.stage else ""
        head = f"M{x + 28} {y - 6}L{x + 35} {y}L{x + 28} {y + 6}"
        yield f'<path class="arrow" d="M{x + 7} {y}H{x + 35}{head}{back}"/>'


def _legend(y: int, command: str) -> Iterator[str]:
    for nth, (name, color) in enumerate(PARTS):
        x, look = _MARGIN + 120 * nth, 'class="free"' if name == "free" else f'fill="{color}"'
        yield f'<rect {look} x="{x}" y="{y - 13}" width="16" height="16" rx="4"/>'
        yield _text(name, (x + 24, y), 14)
    yield _text(command, (_WIDE - _MARGIN, y), 14, room=-590)
