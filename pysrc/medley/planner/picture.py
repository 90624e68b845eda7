"""Draw a layout as an SVG picture: speed, hosts, and their memory."""

from collections.abc import Iterator
from html import escape
from itertools import groupby

from rich.cells import cell_len, set_cell_size

from medley.planner import describe_layout, describe_split
from medley.planner.choose import Choice
from medley.planner.fit import Rank, format_gib
from medley.planner.report import (
    MEMORY_PARTS,
    describe_hosts,
    format_device_name,
    format_link,
    format_speed_range,
    list_layer_ranges,
    list_memory_parts,
    make_printable,
)

_PAGE_WIDTH, _MARGIN, _GAP, _MAX_CARDS_PER_ROW = 1180, 40, 54, 3
_MAX_CARD_WIDTH, _CARD_PADDING, _BAR_HEIGHT, _RANK_HEIGHT = 523, 18, 26, 70
"""Pixels: a card's largest width and inner margin, and the heights of a bar and of a rank."""
_TOP_HEIGHT, _CARD_HEAD_HEIGHT, _FOOT_HEIGHT = 124, 74, 44
_LETTER_WIDTH, _BOLD_LETTER_WIDTH = 0.55, 0.64
"""The mean width of a letter in ems."""
_STYLE = """
text { font-family: system-ui, 'Segoe UI', 'Helvetica Neue', 'DejaVu Sans', sans-serif; fill: #5b6475 }
.paper { fill: #ffffff } .card { fill: #f6f7fa; stroke: #dfe3ea } .free { fill: #dfe3ea }
.ink { fill: #14161f } .b { font-weight: 700 } .arrow { stroke: #8a92a0; stroke-width: 2.5; fill: none }
@media (prefers-color-scheme: dark) {
text { fill: #9aa4b2 } .paper { fill: #0d1117 } .card { fill: #161b22; stroke: #30363d }
.free { fill: #30363d } .ink { fill: #e6edf3 } }
"""


def draw_layout(model: str, choice: Choice, command: str) -> str:
    """Return a self-contained SVG document; the plan's reasons are in its description."""
    groups = groupby(choice.fit.ranks, lambda rank: (rank.replica, rank.stage, rank.device.host))
    cards = [list(ranks) for _, ranks in groups]
    columns = -(-len(cards) // -(-len(cards) // _MAX_CARDS_PER_ROW))
    card_width = min(_MAX_CARD_WIDTH, (_PAGE_WIDTH - 2 * _MARGIN - _GAP * (columns - 1)) // columns)
    y, body = _TOP_HEIGHT, list[str]()
    for start in range(0, len(cards), columns):
        row = cards[start : start + columns]
        height = _CARD_HEAD_HEIGHT + _RANK_HEIGHT * max(map(len, row)) + 4
        for nth, ranks in enumerate(row):
            x, following = _MARGIN + nth * (card_width + _GAP), cards[start + nth + 1 : start + nth + 2]
            body += _draw_card(choice, ranks, (x, y, card_width, height))
            body += _draw_arrow(ranks, following, x + card_width, y + height // 2)
        y += height + _BAR_HEIGHT
    height = y + _FOOT_HEIGHT
    drawing = "\n".join((*_draw_heading(model, choice), *body, *_draw_legend(height - _BAR_HEIGHT, command)))
    reasons = "; ".join([*map(str, choice.fit.ranks), *choice.warnings, *choice.why])
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_PAGE_WIDTH} {height}" \
width="{_PAGE_WIDTH}" height="{height}" role="img" aria-labelledby="title description">
<title id="title">{escape(make_printable(f"{model}: {describe_layout(choice.layout)}"))}</title>
<desc id="description">{escape(make_printable(reasons))}</desc>
<style>{_STYLE}</style>
<clipPath id="bar"><rect width="{card_width - 2 * _CARD_PADDING}" height="{_BAR_HEIGHT}" rx="6"/></clipPath>
<rect class="paper" width="100%" height="100%"/>
{drawing}
</svg>
"""


def _draw_text(text: str, place: tuple[int, int], size: int, style: str = "", max_width: int = 0) -> str:
    """Return a text of at most `max_width` pixels; it ends at its place if that is negative."""
    letter_width = size * (_BOLD_LETTER_WIDTH if "b" in style else _LETTER_WIDTH)
    text, max_cells = make_printable(text), int(abs(max_width) / letter_width)
    if max_width and cell_len(text) > max_cells:
        text = set_cell_size(text, max_cells - 1).rstrip() + "…"
    end = ' text-anchor="end"' if max_width < 0 else ""
    x, y = place
    return f'<text class="{style}" x="{x}" y="{y}" font-size="{size}"{end}>{escape(text)}</text>'


def _draw_heading(model: str, choice: Choice) -> Iterator[str]:
    layout, prediction = choice.layout, choice.prediction
    weights = sum(rank.weights_bytes for rank in choice.fit.ranks if not rank.replica)
    about = (
        describe_split(layout),
        f"{format_gib(weights)} GiB of weights",
        format_link(layout).partition(",")[0],
    )
    yield _draw_text(f"{model} on {describe_hosts(layout)}", (_MARGIN, 62), 29, "ink b", 790)
    yield _draw_text(" · ".join(filter(None, about)), (_MARGIN, 92), 16, max_width=790)
    right, streams = _PAGE_WIDTH - _MARGIN, choice.workload.load.concurrency
    for_streams = f" for {streams} streams" if streams > 1 else ""
    speed = f"{prediction.tokens_per_s:.1f} tok/s"
    speed_note = f"predicted{for_streams}, range {format_speed_range(prediction)}"
    if not prediction.is_calibrated:
        speed, speed_note = "no prediction", "runs on a CPU"
    yield _draw_text(speed, (right, 66), 38, "ink b", -320)
    yield _draw_text(speed_note, (right, 92), 14, max_width=-320)


def _draw_card(choice: Choice, ranks: list[Rank], box: tuple[int, int, int, int]) -> Iterator[str]:
    """Yield the card of a stage's host, with a bar for each of its ranks; a wider bar is cut off."""
    x, y, width, height = box
    first_rank, right_x, inner_width = ranks[0], width - _CARD_PADDING, width - 2 * _CARD_PADDING
    yield f'<svg x="{x}" y="{y}" width="{width}" height="{height}">'
    yield f'<rect class="card" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="12"/>'
    yield _draw_text(first_rank.device.host, (_CARD_PADDING, 32), 19, "ink b", inner_width // 2)
    yield _draw_text(
        format_device_name(first_rank.device), (right_x, 32), 13, max_width=-inner_width // 2 + 10
    )
    layers = f"layers {list(list_layer_ranges(choice.layout))[first_rank.replica][first_rank.stage]}"
    replica = f"replica {first_rank.replica + 1}, " if choice.layout.other_pipelines else ""
    yield _draw_text(replica + layers, (_CARD_PADDING, 60), 15, "ink", inner_width)
    for nth, rank in enumerate(ranks):
        bar_y, bar_x = _CARD_HEAD_HEIGHT + nth * _RANK_HEIGHT, 0.0
        yield f'<g transform="translate({_CARD_PADDING}, {bar_y})" clip-path="url(#bar)">'
        yield f'<rect class="free" width="{inner_width}" height="{_BAR_HEIGHT}"/>'
        for (_, color), size in zip(MEMORY_PARTS[:-1], list_memory_parts(rank), strict=False):
            part_width = min(inner_width - bar_x, inner_width * size / max(1, rank.device.memory_bytes))
            yield f'<rect fill="{color}" x="{bar_x:.1f}" width="{part_width:.1f}" height="{_BAR_HEIGHT}"/>'
            bar_x += part_width
        yield "</g>"
        used = f"{format_gib(rank.total_bytes)} of {format_gib(rank.device.memory_bytes)} GiB"
        yield _draw_text(used, (_CARD_PADDING, bar_y + 46), 15, "ink b", inner_width * 2 // 3)
        free = f"{format_gib(max(0, rank.free_bytes))} GiB free"
        yield _draw_text(free, (right_x, bar_y + 46), 13, max_width=-inner_width // 3)
    yield "</svg>"


def _draw_arrow(ranks: list[Rank], following: list[list[Rank]], x: int, y: int) -> Iterator[str]:
    """Yield the arrow to the next stage, or both ways in a tensor-parallel group; none between replicas."""
    rank = ranks[0]
    if following and (next_rank := following[0][0]).replica == rank.replica:
        back = f"M{x + 14} {y - 6}L{x + 7} {y}L{x + 14} {y + 6}" if next_rank.stage == rank.stage else ""
        head = f"M{x + 28} {y - 6}L{x + 35} {y}L{x + 28} {y + 6}"
        yield f'<path class="arrow" d="M{x + 7} {y}H{x + 35}{head}{back}"/>'


def _draw_legend(y: int, command: str) -> Iterator[str]:
    for nth, (name, color) in enumerate(MEMORY_PARTS):
        x, style = _MARGIN + 120 * nth, 'class="free"' if name == "free" else f'fill="{color}"'
        yield f'<rect {style} x="{x}" y="{y - 13}" width="16" height="16" rx="4"/>'
        yield _draw_text(name, (x + 24, y), 14)
    yield _draw_text(command, (_PAGE_WIDTH - _MARGIN, y), 14, max_width=-590)
