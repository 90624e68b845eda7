"""Show a benchmark, or two, as one HTML page with plots, or as one picture."""

import json
import math
import textwrap
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from medley.measurement.bench.compare import Comparison, compare, differing, same_load
from medley.measurement.bench.record import Mode, Record
from medley.measurement.bench.report import RANGE, about, bounds, figures, heading, number
from medley.planner.report import printable

WIDE = 360
"""As wide as a phone, where text of this size is read as it is."""
HIGH = 170
_LEFT, _RIGHT, _TOP, _FOOT, _LEGEND = 46, 14, 30, 46, 19
_STEPS = (1, 2, 2.5, 5, 10)
_TICKS = 5
_APART = 26
"""Labels that would lie closer are left out."""
_GAP, _MARGIN, _LINE = 28, 20, 20
_LETTER = 8.5
"""No less than an average letter of the heading takes."""
_FONT = "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', Verdana, sans-serif"
_PLOTS_CSS, _PAGE_CSS = (Path(__file__).with_name(name).read_text() for name in ("plots.css", "page.css"))
# A browser asks for an icon of its own accord, and the policy has it ask for nothing at all.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(record: Record) -> str:
    first, *others = heading(record)
    rows = record.rows
    body = (row for row in figures(record, rows) if row[0] != RANGE)
    main = _element(
        "main",
        *(_element("h1", first), *(_element("p", line) for line in others), _plots([record])),
        *(_element("h2", "Figures"), _table(["concurrent", *map(_row, rows)], body)),
        *(_element("p", line, look="muted") for line in bounds(record)),
        *_conditions(record),
    )
    return _html(first, main, [record])


def comparison(one: Record, two: Record) -> str:
    differences = differing(one, two) or ("nothing that is known",)
    if not same_load(one, two):
        differences += ("Their loads differ, so their figures measure different things.",)
    main = _element(
        "main",
        _element("h1", f"{two.id}, compared with {one.id}"),
        *(_element("p", f"{nth}: {'; '.join(heading(of))}") for nth, of in (("first", one), ("second", two))),
        *(_element("h2", "What differs besides"), *(_element("p", line) for line in differences)),
        *(_plots([one, two]), _element("h2", "Ratios, second by first"), *_ratios(compare(one, two))),
        *(*_conditions(one), *_conditions(two)),
    )
    return _html(f"{one.id} and {two.id}", main, [one, two])


def document(records: Sequence[Record]) -> str:
    """All plots beside each other, as an SVG file that needs nothing outside itself."""
    drawn = [svg(plot) for plot in plots(records)]
    wide = max(2, len(drawn)) * (WIDE + _GAP) - _GAP
    root = _element("svg", xmlns="http://www.w3.org/2000/svg", font_family=_FONT)
    root.append(_element("title", printable(" and ".join(record.id for record in records))))
    root.append(_element("style", _PLOTS_CSS))
    root.append(_element("rect", look="paper", width="100%", height="100%"))
    down = _MARGIN
    for record in records:
        for nth, line in enumerate(heading(record)):
            for part in textwrap.wrap(printable(line), int(wide / _LETTER)):
                down += _LINE
                look = "" if nth else "head"
                root.append(_element("text", part, look=look, x=float(_MARGIN), y=down - 6.0))
        down += _LINE
    for nth, plot in enumerate(drawn):
        high = plot.get("viewBox", "").split()[-1]
        place = {"x": _MARGIN + nth * (WIDE + _GAP), "y": down, "width": WIDE, "height": high}
        plot.attrib |= {name: str(value) for name, value in place.items()}
        root.append(plot)
    down += max((int(plot.get("height", 0)) for plot in drawn), default=0) + _MARGIN
    size = {"viewBox": f"0 0 {wide + 2 * _MARGIN} {down}", "width": wide + 2 * _MARGIN, "height": down}
    root.attrib |= {name: str(value) for name, value in size.items()}
    return ET.tostring(root, encoding="unicode") + "\n"


def _html(title: str, main: ET.Element, records: Sequence[Record]) -> str:
    head = _element(
        "head",
        _element("meta", charset="utf-8"),
        _element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        _element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        _element("link", rel="icon", href="data:,"),
        *(_element("title", f"medley bench: {title}"), _element("style", f"{_PLOTS_CSS}\n{_PAGE_CSS}")),
    )
    # Nothing in this JSON ends the element around it.
    table = json.dumps([record.table for record in records]).replace("<", "\\u003c")
    data = _element("script", table, type="application/json", id="data")
    html = _element("html", head, _element("body", main, data), lang="en")
    return f"<!doctype html>\n{ET.tostring(html, encoding='unicode', method='html')}\n"


def _plots(records: Sequence[Record]) -> ET.Element:
    return _element("div", *(_element("div", svg(plot)) for plot in plots(records)), look="plots")


def _ratios(found: Sequence[Comparison]) -> Iterator[ET.Element]:
    for row in dict.fromkeys(each.row for each in found):
        body = (
            (
                *(each.measure.title, number(each.one.median), number(each.two.median)),
                *(f"{each.ratio:.2f}", f"{each.low:.2f} to {each.high:.2f}", each.verdict),
            )
            for each in found
            if each.row == row
        )
        yield _table([f"{_row(row)} concurrent", "first", "second", "ratio", "", ""], body)


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> ET.Element:
    head = _element("thead", _element("tr", *(_element("th", each) for each in titles)))
    body = _element("tbody", *(_element("tr", *(_element("td", each) for each in row)) for row in rows))
    return _element("div", _element("table", head, body), look="wide")


def _conditions(record: Record) -> Iterator[ET.Element]:
    yield _element("h2", f"Conditions of {record.id}")
    short = ((_element("dt", name), _element("dd", printable(text))) for name, text in about(record))
    yield _element("dl", *(each for pair in short for each in pair))
    for host in record.about["hosts"]:
        facts = _element("pre", host["facts"])
        yield _element("details", _element("summary", f"facts of {host['name']}"), facts)


def _row(row: tuple[Mode, int]) -> str:
    mode, many = row
    return str(many) if mode == "served" else f"{many}, {mode}"


@dataclass(frozen=True)
class Point:
    streams: int
    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.streams} concurrent: {number(self.value)} ({number(self.low)} to {number(self.high)})"


@dataclass(frozen=True)
class Line:
    name: str
    look: Literal["one", "two", "told"]
    points: tuple[Point, ...]
    sort: Literal["measured", "p99", "predicted"] = "measured"


@dataclass(frozen=True)
class Plot:
    title: str
    unit: str
    lines: tuple[Line, ...]


def plots(records: Sequence[Record]) -> tuple[Plot, ...]:
    found = (
        Plot("Output", "tokens/s", tuple(_lines(records, "output_tokens_per_s"))),
        Plot("First token", "ms", tuple(_lines(records, "ttft_ms", "ttft_p99_ms"))),
        Plot("Each token after it", "ms", tuple(_lines(records, "tpot_ms", "tpot_p99_ms"))),
        Plot("Whole batch, offline", "ms", tuple(_lines(records, "latency_ms"))),
    )
    return tuple(each for each in found if any(line.points for line in each.lines))


def _lines(records: Sequence[Record], measure: str, p99: str | None = None) -> Iterator[Line]:
    """Of two records only the medians, because six lines are too many to tell apart."""
    alike = all(record.expected == records[0].expected for record in records)
    looks: tuple[Literal["one", "two"], ...] = ("one", "two")
    for record, look, which in zip(records, looks, ("first", "second"), strict=False):
        name = which if len(records) > 1 else "measured"
        for mode in dict.fromkeys(mode for mode, _ in record.rows):
            suffix = "" if mode == "served" else f", {mode}"
            yield Line(f"{name}{suffix}", look, _points(record, mode, measure))
            if p99 and len(records) == 1:
                yield Line(f"p99{suffix}", look, _points(record, mode, p99), "p99")
        if not alike:
            yield Line(f"{name}, predicted", look, tuple(_predicted(record, measure)), "predicted")
    if alike:
        yield Line("predicted", "told", tuple(_predicted(records[0], measure)), "predicted")


def _points(record: Record, mode: Mode, measure: str) -> tuple[Point, ...]:
    found = ((many, record.spreads(mode, many).get(measure)) for each, many in record.rows if each == mode)
    return tuple(Point(many, each.median, each.low, each.high) for many, each in found if each)


def _predicted(record: Record, measure: str) -> Iterator[Point]:
    for mode, many in record.rows:
        expected = record.expected.get(many)
        if mode == "served" and expected and (value := getattr(expected, measure, None)) is not None:
            range_ = (expected.low, expected.high) if measure == "output_tokens_per_s" else (value, value)
            yield Point(many, value, *range_)


def svg(plot: Plot) -> ET.Element:
    """One plot, which grows and shrinks with its room; its colors are the page's."""
    drawn = [line for line in plot.lines if line.points]
    streams = sorted({point.streams for line in drawn for point in line.points}) or [1]
    ticks = _ticks(max((point.high for line in drawn for point in line.points), default=1))
    first, last, room = streams[0], streams[-1], WIDE - _LEFT - _RIGHT - 20
    foot, middle = _TOP + HIGH, (WIDE + _LEFT - _RIGHT) / 2

    def x(many: int) -> float:
        return _LEFT + 10 + room * (math.log(many / first) / math.log(last / first) if last > first else 0.5)

    def y(value: float) -> float:
        return _TOP + HIGH * (1 - min(value, ticks[-1]) / ticks[-1])

    root = _element("svg", viewBox=f"0 0 {WIDE} {foot + _FOOT + _LEGEND * len(drawn)}", role="img")
    texts = "; ".join(f"{line.name}: {', '.join(map(str, line.points))}" for line in drawn)
    root.append(_element("title", f"{plot.title}: {texts}"))
    root.append(_element("text", f"{plot.title}, {plot.unit}", look="head", y=14.0))
    for tick in ticks:
        root.append(_element("path", look="rule", d=f"M{_LEFT} {y(tick):.1f}H{WIDE - _RIGHT}"))
        label = number(tick) if tick else "0"
        root.append(_element("text", label, look="muted", x=_LEFT - 6.0, y=y(tick) + 4, text_anchor="end"))
    before = -float(_APART)
    for many in streams:
        if x(many) - before >= _APART:
            before = x(many)
            root.append(_label(str(many), before, foot + 16))
    root.append(_label("concurrent streams", middle, foot + 33))
    for line in sorted(drawn, key=lambda line: line.sort != "predicted"):  # a band lies below every line
        root.extend(_line(line, plot.unit, x, y))
    for nth, line in enumerate(drawn):
        at = foot + _FOOT + _LEGEND * nth
        root.append(_element("path", look=f"line {line.look} {line.sort}", d=f"M0 {at + 4}h24"))
        root.append(_element("text", line.name, x=30.0, y=at + 8.0))
    return root


def _line(
    line: Line, unit: str, x: Callable[[int], float], y: Callable[[float], float]
) -> Iterator[ET.Element]:
    """Each point has its numbers as a title, which a browser shows to a pointer."""

    def path(values: Iterable[tuple[int, float]]) -> str:
        return "M" + "L".join(f"{x(many):.1f} {y(value):.1f}" for many, value in values)

    if line.sort == "predicted":
        above = [(point.streams, point.high) for point in line.points]
        below = [(point.streams, point.low) for point in reversed(line.points)]
        yield _element("path", look=f"band {line.look}", d=f"{path(above + below)}Z")
    look = f"{line.look} {line.sort}"
    yield _element("path", look=f"line {look}", d=path((each.streams, each.value) for each in line.points))
    for point in line.points:
        across = x(point.streams)
        if line.sort != "predicted" and point.high > point.low:
            bar = f"M{across:.1f} {y(point.low):.1f}V{y(point.high):.1f}"
            yield _element("path", look=f"bar {look}", d=bar)
        title = _element("title", f"{line.name}, {point} {unit}")
        radius = 4.0 if line.sort == "measured" else 2.5
        yield _element("circle", title, look=f"dot {line.look}", cx=across, cy=y(point.value), r=radius)


def _ticks(largest: float) -> tuple[float, ...]:
    """From 0 to no less than the largest, in round steps."""
    least = max(largest, 1e-9) / _TICKS
    power = 10 ** math.floor(math.log10(least))
    step = next(each * power for each in _STEPS if each * power >= least * (1 - 1e-9))
    count = math.ceil(largest / step - 1e-9) or 1
    return tuple(nth * step for nth in range(count + 1))


def _label(text: str, x: float, y: float) -> ET.Element:
    return _element("text", text, look="muted", x=x, y=y, text_anchor="middle")


def _element(tag: str, *inside: str | ET.Element, look: str = "", **attributes: float | str) -> ET.Element:
    """An element with its text or children; `text_anchor` is written text-anchor, numbers to a tenth."""
    found = ET.Element(tag, {"class": look} if look else {})
    for name, value in attributes.items():
        found.set(name.replace("_", "-"), value if isinstance(value, str) else f"{value:.1f}")
    for each in inside:
        if isinstance(each, str):
            found.text = each
        else:
            found.append(each)
    return found
