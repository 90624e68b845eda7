"""The plots of a bench, or of two: throughput and latency over the streams at once, beside the prediction."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence

from medley.bench.plotted import CSS, WIDE, Line, Look, Plot, Point, plotted
from medley.bench.printed import heading
from medley.bench.record import Mode, Record
from medley.picture import FONT, Block, Style, at, element, paragraph, printable, stacked

_GAP, _MARGIN = 28, 20
_HEAD, _PLAIN = Style(18, bold=True), Style(13)


def plots(records: Sequence[Record]) -> tuple[Plot, ...]:
    """Those that have a point; of two records each has its own colour."""
    found = (
        Plot("Output", "tokens/s", tuple(_of(records, "output_tokens_per_s"))),
        Plot("First token", "ms", tuple(_of(records, "ttft_ms", "ttft_p99_ms"))),
        Plot("Each token after it", "ms", tuple(_of(records, "tpot_ms", "tpot_p99_ms"))),
        Plot("Whole batch, offline", "ms", tuple(_of(records, "latency_ms"))),
    )
    return tuple(each for each in found if any(line.points for line in each.lines))


def _of(records: Sequence[Record], measure: str, p99: str | None = None) -> Iterator[Line]:
    """Of two records the medians alone: six lines are too many to tell apart."""
    alike = all(record.expected == records[0].expected for record in records)
    looks: tuple[Look, ...] = ("one", "two")
    for record, look, which in zip(records, looks, ("first", "second"), strict=False):
        name = which if len(records) > 1 else "measured"
        for mode in dict.fromkeys(mode for mode, _ in record.rows):
            far = "" if mode == "served" else f", {mode}"
            yield Line(f"{name}{far}", look, _points(record, mode, measure))
            if p99 and len(records) == 1:
                yield Line(f"p99{far}", look, _points(record, mode, p99), "p99")
        if not alike:
            yield Line(f"{name}, predicted", look, tuple(_predicted(record, measure)), "predicted")
    if alike:
        yield Line("predicted", "told", tuple(_predicted(records[0], measure)), "predicted")


def _points(record: Record, mode: Mode, measure: str) -> tuple[Point, ...]:
    found = ((many, record.spreads(mode, many).get(measure)) for each, many in record.rows if each == mode)
    return tuple(Point(many, each.median, each.low, each.high) for many, each in found if each)


def _predicted(record: Record, measure: str) -> Iterator[Point]:
    """A range is stated of throughput alone."""
    for many in [many for mode, many in record.rows if mode == "served"]:
        told = record.expected.get(many)
        if told is None:
            continue
        if measure == "output_tokens_per_s":
            yield Point(many, told.output_tokens_per_s, told.low, told.high)
        value = {"ttft_ms": told.ttft_ms, "tpot_ms": told.tpot_ms}.get(measure)
        if value is not None:
            yield Point(many, value, value, value)


def svg(plot: Plot) -> ET.Element:
    """One plot by itself, which grows and shrinks with its room; its colours are the page's."""
    drawn = plotted(plot)
    page = _page(WIDE, drawn.height)
    page.append(drawn.element)
    return page


def document(records: Sequence[Record]) -> str:
    """All plots beside each other, as a file that needs nothing outside itself."""
    drawn = [plotted(each) for each in plots(records)]
    wide = max(2, len(drawn)) * (WIDE + _GAP) - _GAP
    heads = [stacked(_heading(record, wide), 2) for record in records]
    row = element("g")
    for nth, each in enumerate(drawn):
        row.append(at(each.element, nth * (WIDE + _GAP), 0))
    whole = stacked([*heads, Block(row, max((each.height for each in drawn), default=0))], 18)
    page = _page(wide + 2 * _MARGIN, whole.height + 2 * _MARGIN)
    page.set("xmlns", "http://www.w3.org/2000/svg")
    page.set("width", f"{wide + 2 * _MARGIN:.0f}")
    page.set("height", f"{whole.height + 2 * _MARGIN:.0f}")
    style, title = element("style"), element("title")
    style.text, title.text = CSS, printable(" and ".join(record.id for record in records))
    paper = element("rect", width="100%", height="100%")
    paper.set("class", "paper")
    page.extend([title, style, paper, at(whole.element, _MARGIN, _MARGIN)])
    return ET.tostring(page, encoding="unicode") + "\n"


def _page(wide: float, high: float) -> ET.Element:
    return element("svg", viewBox=f"0 0 {wide:.0f} {high:.0f}", font_family=FONT)


def _heading(record: Record, room: float) -> Iterator[Block]:
    first, *others = heading(record)
    yield paragraph(first, room, _HEAD)
    for line in others:
        yield paragraph(line, room, _PLAIN)
