"""A chosen layout as a picture: each host a box, its memory a bar, and the wire between the stages."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from itertools import groupby

from medley.layout.choose import Choice, P, predicted
from medley.layout.fit import Rank, gib
from medley.layout.shapes import Layout, Link
from medley.layout.words import named, pipelines, wire
from medley.picture import (
    FONT,
    INK,
    MUTED,
    Block,
    Style,
    at,
    centred,
    element,
    framed,
    label,
    paragraph,
    printable,
    stacked,
    titled,
    width,
)

_PAGE, _MARGIN, _PADDING = 1180, 30, 11
_ACROSS = 4
"""Hosts beside each other."""
_WIDEST = 560
_WIRE, _GAP = 92, 22
"""Between stages that a wire joins, and between those that none does."""
_BAR = 16
_NOT = 6
"""Rejected layouts that are told; the rest are counted."""
_PARTS = (("weights", "#2f6db3"), ("KV cache", "#e69f00"), ("engine", "#8e5ea2"), ("free", "#dfe3ea"))
_LINE, _PAPER, _BOX = "#b8c0cc", "#ffffff", "#f6f8fb"
_TITLE, _STRONG, _PLAIN, _SMALL = Style(24, bold=True), Style(15, bold=True), Style(13), Style(11.5, MUTED)
_HOST, _ALERT = Style(13, bold=True), Style(13, "#9a3412")


def drawn(model: str, choice: Choice[P]) -> str:
    """An SVG document that needs nothing outside itself."""
    room = _PAGE - 2 * _MARGIN
    whole = stacked(
        [
            stacked(_heading(model, choice, room), 4),
            _legend(choice.layout.link),
            stacked(_rows(choice, room), _GAP),
            stacked(_reasons(choice, room), 5),
        ],
        _GAP,
    )
    height = whole.height + 2 * _MARGIN
    page = element(
        "svg",
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_PAGE} {height:.0f}",
        width=_PAGE,
        height=f"{height:.0f}",
        font_family=FONT,
        role="img",
        aria_labelledby="title description",
    )
    title, description = element("title", id="title"), element("desc", id="description")
    title.text = printable(f"{model}: {named(choice.layout)}")
    description.text = printable("; ".join(_told(choice)))
    # Paper of its own, so that it reads the same on a dark page.
    paper = element("rect", width="100%", height="100%", fill=_PAPER)
    page.extend([title, description, paper, at(whole.element, _MARGIN, _MARGIN)])
    return ET.tostring(page, encoding="unicode") + "\n"


def _told(choice: Choice[P]) -> Iterator[str]:
    yield from map(str, choice.fit.ranks)
    yield from choice.warnings
    yield from choice.why


def _heading(model: str, choice: Choice[P], room: float) -> Iterator[Block]:
    yield paragraph(model, room, _TITLE)
    yield paragraph(named(choice.layout), room, _STRONG)
    speed, *bound = predicted(choice.prediction)
    yield paragraph(speed, room, Style(15))
    yield from (paragraph(each, room, _PLAIN) for each in bound)


def _legend(link: Link | None) -> Block:
    outer, x = element("g"), 0.0
    for name, colour in _PARTS:
        outer.append(element("rect", x=x, width=14, height=14, rx=2, fill=colour, stroke=_LINE))
        outer.append(at(label(name, _PAGE, _PLAIN).element, x + 20, 0))
        x += 20 + width(name, _PLAIN) + _GAP
    between = (
        "" if link is None else f"; between hosts {' '.join(wire(link))}, {link.latency_us:g} µs one way"
    )
    outer.append(at(label(f"in GiB{between}", _PAGE - _MARGIN - x, _PLAIN).element, x, 0))
    return Block(outer, _PLAIN.line)


def _rows(choice: Choice[P], room: float) -> Iterator[Block]:
    """The stages of each pipeline from left to right; those of short ones share a row."""
    layout = choice.layout
    deep, many = len(layout.stages), len(pipelines(layout))
    gap = _WIRE if deep > 1 else _GAP
    lines = -(-deep // _ACROSS)
    across = -(-deep // lines) if lines > 1 else min(_ACROSS, deep * many) // deep * deep
    wide = min(_WIDEST, (room - gap * (across if deep > _ACROSS else across - 1)) / across)
    cells = list(_cells(choice, wide))
    # A pipeline that is longer than a row begins on a row of its own.
    whole = deep if deep > _ACROSS else len(cells)
    for first in range(0, len(cells), whole):
        for begun in range(first, first + whole, across):
            yield _row(choice, cells, range(begun, min(begun + across, first + whole)), wide)


def _row(choice: Choice[P], cells: Sequence[Block], which: range, wide: float) -> Block:
    deep, outer = len(choice.layout.stages), element("g")
    step = wide + (_WIRE if deep > 1 else _GAP)
    for place, nth in enumerate(which):
        outer.append(at(cells[nth].element, place * step, 0))
        if (nth + 1) % deep:
            outer.append(at(_arrow(choice.layout, nth % deep), place * step + wide, 50))
    return Block(outer, max(cells[nth].height for nth in which))


def _arrow(layout: Layout, nth: int) -> ET.Element:
    """From a stage to the next; a wire is named where it leaves the host."""
    outer = element("g")
    outer.append(_path(f"M8 22H{_WIRE - 10}m-7 -5l7 5l-7 5"))
    here, there = ({device.host for device in stage.devices} for stage in layout.stages[nth : nth + 2])
    if layout.link is not None and here != there:
        speed, kind = wire(layout.link)
        outer.append(at(centred(speed, _WIRE, _SMALL).element, 0, 2))
        outer.append(at(centred(kind, _WIRE, _SMALL).element, 0, 28))
    return outer


def _cells(choice: Choice[P], wide: float) -> Iterator[Block]:
    ranks = {place: list(found) for place, found in groupby(choice.fit.ranks, _place)}
    for replica, stages in enumerate(pipelines(choice.layout)):
        last = 0
        for nth, stage in enumerate(stages):
            first, last = last + 1, last + stage.layers
            replicas = [f"replica {replica + 1}"] if choice.layout.replicas else []
            place = ", ".join([*replicas, *([f"stage {nth + 1}"] if len(stages) > 1 else [])])
            names = [*([place] if place else []), f"layers {first}-{last}"]
            hosts = _stage(choice.layout.link, ranks[replica, nth], wide)
            yield stacked([*(label(name, wide, _PLAIN) for name in names), *hosts], 4)


def _place(rank: Rank) -> tuple[int, int]:
    return rank.replica, rank.stage


def _stage(link: Link | None, ranks: Sequence[Rank], wide: float) -> Iterator[Block]:
    """Its hosts, joined by the wire that a tensor-parallel stage crosses."""
    for nth, (host, found) in enumerate(groupby(ranks, lambda rank: rank.device.host)):
        if nth and link is not None:
            yield _crossing(link, wide)
        yield _host(host, list(found), wide)


def _crossing(link: Link, wide: float) -> Block:
    outer = element("g")
    outer.append(_path("M18 0V22m-5 -7l5 7l5 -7M13 7l5 -7l5 7"))
    words = label(f"tensor parallel, {' '.join(wire(link))}", wide - 36, _SMALL)
    outer.append(at(words.element, 36, 4))
    return Block(outer, 22)


def _host(host: str, ranks: Sequence[Rank], wide: float) -> Block:
    room = wide - 2 * _PADDING
    inner = stacked([label(host, room, _HOST), *(_rank(rank, room) for rank in ranks)], 5)
    return framed(inner, wide, padding=_PADDING, fill=_BOX, stroke=_LINE)


def _rank(rank: Rank, room: float) -> Block:
    device = rank.device
    what = f"{'CPU' if device.kind == 'cpu' else 'GPU'} {device.index}"
    parts = [f"{name} {gib(size)}" for (name, _), size in zip(_PARTS, _sizes(rank), strict=True)]
    said = [f"{gib(rank.total_bytes)} of {gib(device.memory_bytes)}:", *(f"{each}," for each in parts[:-1])]
    inner = stacked(
        [
            label(f"{what} {device.name}".strip(), room, _SMALL),
            Block(_bar(rank, room), _BAR),
            paragraph([*said, parts[-1]], room, _SMALL),
        ],
        3,
    )
    return Block(titled(inner.element, str(rank)), inner.height)


def _bar(rank: Rank, room: float) -> ET.Element:
    """As wide as the memory that a rank may take."""
    whole, filled, x = max(1, rank.device.memory_bytes), 0, 0.0
    outer = element("g", shape_rendering="crispEdges")
    for (name, colour), size in zip(_PARTS, _sizes(rank), strict=True):
        filled += size
        end = round(room * min(filled, whole) / whole, 2)
        part = element("rect", x=x, width=end - x, height=_BAR, fill=colour)
        outer.append(titled(part, f"{name} {gib(size)} GiB"))
        x = end
    outer.append(element("rect", width=room, height=_BAR, fill="none", stroke=_LINE))
    return outer


def _sizes(rank: Rank) -> tuple[int, int, int, int]:
    return rank.weights_bytes, rank.kv_bytes, rank.overhead_bytes, max(0, rank.free_bytes)


def _path(line: str) -> ET.Element:
    return element("path", d=line, fill="none", stroke=INK, stroke_width=1.5)


def _reasons(choice: Choice[P], room: float) -> Iterator[Block]:
    for each in choice.warnings:
        yield paragraph(f"warning: {each}", room, _ALERT)
    for each in choice.why:
        if not each.startswith("predicted "):
            yield paragraph(f"why: {each}", room, _PLAIN)
    for rejected in choice.rejected[:_NOT]:
        yield paragraph(f"not: {rejected.what}: {rejected.because}", room, Style(13, MUTED))
    if len(choice.rejected) > _NOT:
        yield paragraph(f"not: {len(choice.rejected) - _NOT} more", room, Style(13, MUTED))
