"""A plot is lines over the number of streams, with the spread of each point and a legend, as SVG."""

import math
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from medley.bench.printed import number
from medley.picture import Block, Style, at, element, printable, stacked, titled, width

WIDE = 360
"""As wide as a phone, where text of this size is read as it is."""
_LEFT, _RIGHT, _HIGH = 46, 14, 170
_TITLE, _SMALL = Style(14, bold=True), Style(11.5)
_STEPS = (1, 2, 2.5, 5, 10)
_TICKS = 5
_APART = 26
"""Labels that would lie closer are left out."""

Look = Literal["one", "two", "told"]

CSS = """
:root { color-scheme: light dark; --paper: #ffffff; --box: #f6f8fb; --ink: #1d2330; --muted: #596273;
  --rule: #d8dde5; --one: #2f6db3; --two: #b4500a; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171d; --box: #1c2129; --ink: #e8ebf0;
  --muted: #a3acba; --rule: #39414e; --one: #74aef0; --two: #f19a57; } }
.paper { fill: var(--paper); }
svg text { fill: var(--ink); }
svg text.muted { fill: var(--muted); }
.rule { stroke: var(--rule); fill: none; }
.one { stroke: var(--one); } .two { stroke: var(--two); } .told { stroke: var(--muted); }
.line { fill: none; stroke-width: 2; } .bar { fill: none; stroke-width: 1.5; }
.dashed { stroke-dasharray: 5 4; stroke-width: 1.5; } .thin { stroke-width: 1; opacity: 0.75; }
.dot { stroke-width: 0; } .dot.one, .band.one { fill: var(--one); } .dot.two, .band.two { fill: var(--two); }
.dot.told, .band.told { fill: var(--muted); }
.band { stroke: none; opacity: 0.13; }
"""


@dataclass(frozen=True)
class Point:
    streams: int
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Line:
    name: str
    look: Look
    points: tuple[Point, ...]
    sort: Literal["measured", "p99", "predicted"] = "measured"


@dataclass(frozen=True)
class Plot:
    title: str
    unit: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class _Scale:
    """From streams and values to places in the plot: the logarithm of the one, and from 0 of the other."""

    streams: tuple[int, ...]
    top: float

    def x(self, streams: int) -> float:
        first, last = self.streams[0], self.streams[-1]
        room = WIDE - _LEFT - _RIGHT - 20
        share = math.log(streams / first) / math.log(last / first) if last > first else 0.5
        return _LEFT + 10 + share * room

    def y(self, value: float) -> float:
        return _HIGH * (1 - min(value, self.top) / self.top)


def plotted(plot: Plot) -> Block:
    """Of WIDE pixels."""
    drawn = [line for line in plot.lines if line.points]
    outer = element("g", role="img")
    within = stacked([_text(f"{plot.title}, {plot.unit}", _TITLE), Block(_area(plot, drawn), _HIGH + 40)], 10)
    outer.append(within.element)
    said = titled(outer, f"{plot.title}: " + "; ".join(map(_told, drawn)))
    return stacked([Block(said, within.height), _legend(drawn)], 2)


def _area(plot: Plot, drawn: Sequence[Line]) -> ET.Element:
    streams = tuple(sorted({point.streams for line in drawn for point in line.points})) or (1,)
    ticks = _ticks(max((point.high for line in drawn for point in line.points), default=1))
    scale = _Scale(streams, ticks[-1])
    area = element("g")
    area.extend(_axes(scale, ticks))
    for line in drawn:  # bands first, below every line
        if line.sort == "predicted":
            area.append(_band(line, scale))
    for line in drawn:
        area.extend(_line(line, scale, plot.unit))
    return area


def _axes(scale: _Scale, ticks: Sequence[float]) -> Iterator[ET.Element]:
    for tick in ticks:
        y = scale.y(tick)
        yield _shape("path", "rule", d=f"M{_LEFT} {y:.1f}H{WIDE - _RIGHT}")
        yield _word(number(tick) if tick else "0", _LEFT - 6, y + 4, "end")
    before = -float(_APART)
    for streams in scale.streams:
        x = scale.x(streams)
        if x - before >= _APART:
            yield _word(str(streams), x, _HIGH + 16, "middle")
            before = x
    yield _word("streams at once", (WIDE + _LEFT - _RIGHT) / 2, _HIGH + 33, "middle")


def _band(line: Line, scale: _Scale) -> ET.Element:
    """Where a prediction says that it will lie."""
    there = [f"{scale.x(each.streams):.1f} {scale.y(each.high):.1f}" for each in line.points]
    back = [f"{scale.x(each.streams):.1f} {scale.y(each.low):.1f}" for each in reversed(line.points)]
    return _shape("path", f"band {line.look}", d=f"M{'L'.join((*there, *back))}Z")


def _line(line: Line, scale: _Scale, unit: str) -> Iterator[ET.Element]:
    """Its points are its own, so that each tells its numbers to who points at it."""
    extra = {"measured": "", "p99": " thin", "predicted": " dashed"}[line.sort]
    places = [f"{scale.x(each.streams):.1f} {scale.y(each.value):.1f}" for each in line.points]
    yield _shape("path", f"line {line.look}{extra}", d=f"M{'L'.join(places)}")
    for point in line.points:
        x, y = scale.x(point.streams), scale.y(point.value)
        if line.sort != "predicted" and point.high > point.low:
            bar = f"M{x:.1f} {scale.y(point.low):.1f}V{scale.y(point.high):.1f}"
            yield _shape("path", f"bar {line.look}{extra}", d=bar)
        dot = _shape("circle", f"dot {line.look}", cx=f"{x:.1f}", cy=f"{y:.1f}", r=_radius(line))
        yield titled(dot, f"{line.name}, {_said(point)} {unit}")


def _radius(line: Line) -> float:
    return 4 if line.sort == "measured" else 2.5


def _legend(drawn: Sequence[Line]) -> Block:
    """Each line's name beside a piece of it, as many in a row as there is room for."""
    outer, x, y = element("g"), 0.0, 0.0
    for line in drawn:
        extra = {"measured": "", "p99": " thin", "predicted": " dashed"}[line.sort]
        takes = 30 + width(line.name, _SMALL) + 14
        if x and x + takes > WIDE:
            x, y = 0.0, y + _SMALL.line + 3
        outer.append(_shape("path", f"line {line.look}{extra}", d=f"M{x:.1f} {y + 8:.1f}h24"))
        outer.append(at(_text(line.name, _SMALL).element, x + 30, y))
        x += takes
    return Block(outer, y + _SMALL.line)


def _told(line: Line) -> str:
    return f"{line.name}: " + ", ".join(map(_said, line.points))


def _said(point: Point) -> str:
    return f"{point.streams} at once: {number(point.value)} ({number(point.low)} to {number(point.high)})"


def _ticks(largest: float) -> tuple[float, ...]:
    """From 0 to no less than the largest, in round steps."""
    least = max(largest, 1e-9) / _TICKS
    power = 10 ** math.floor(math.log10(least))
    step = next(each * power for each in _STEPS if each * power >= least * (1 - 1e-9))
    count = math.ceil(largest / step - 1e-9) or 1
    return tuple(nth * step for nth in range(count + 1))


def _text(words: str, style: Style) -> Block:
    found = element("text", x=0, y=style.size, font_size=style.size)
    if style.bold:
        found.set("font-weight", "bold")
    found.text = printable(words)
    return Block(found, style.line)


def _word(words: str, x: float, y: float, anchor: str) -> ET.Element:
    found = _shape("text", "muted", x=f"{x:.1f}", y=f"{y:.1f}", font_size=11.5, text_anchor=anchor)
    found.text = words
    return found


def _shape(tag: str, look: str, **attributes: float | str) -> ET.Element:
    found = element(tag, **attributes)
    found.set("class", look)
    return found
