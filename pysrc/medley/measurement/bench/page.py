"""Draw one or two benchmarks as an HTML page with plots, or as one SVG image."""

import json
import math
import textwrap
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from medley.measurement.bench.compare import Comparison, compare_records, has_same_load, list_differences
from medley.measurement.bench.record import Mode, Record
from medley.measurement.bench.report import (
    RANGE_TITLE,
    format_bounds,
    format_figures,
    format_heading,
    format_number,
    list_conditions,
)
from medley.planner.report import make_printable
from medley.values import Value

PLOT_WIDTH = 360
"""The width of a phone, where text of this size is readable without zoom."""
PLOT_HEIGHT = 170
_LEFT_MARGIN, _RIGHT_MARGIN, _TOP_MARGIN, _AXIS_HEIGHT, _LEGEND_HEIGHT = 46, 14, 30, 46, 19
_TICK_STEPS = (1, 2, 2.5, 5, 10)
_MAX_TICKS = 5
_MIN_LABEL_DISTANCE = 26
"""Labels that would be closer are left out."""
_GAP, _MARGIN, _LINE_HEIGHT = 28, 20, 20
_CHAR_WIDTH = 8.5
"""An upper bound of the average character's width in the heading."""
_FONT = "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', Verdana, sans-serif"
_PLOTS_CSS, _PAGE_CSS = (Path(__file__).with_name(name).read_text() for name in ("plots.css", "page.css"))
# A browser requests an icon by default; the policy allows no request at all.
_CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def build_page(record: Record) -> str:
    """Return the HTML page of one benchmark."""
    title, *subtitles = format_heading(record)
    rows = record.rows
    body = (row for row in format_figures(record, rows) if row[0] != RANGE_TITLE)
    main = _element(
        "main",
        *(
            _element("h1", title),
            *(_element("p", line) for line in subtitles),
            _build_plots([record]),
        ),
        *(_element("h2", "Figures"), _build_table(["concurrent", *map(_format_row, rows)], body)),
        *(_element("p", line, css_class="muted") for line in format_bounds(record)),
        *_build_conditions(record),
    )
    return _build_html(title, main, [record])


def build_comparison_page(first: Record, second: Record) -> str:
    """Return the HTML page of two benchmarks, or raise a Problem if they have nothing in common."""
    differences = list_differences(first, second) or ("nothing that is known",)
    if not has_same_load(first, second):
        differences += ("Their loads differ, so their figures measure different things.",)
    headings = {"first": format_heading(first), "second": format_heading(second)}
    ratios = _build_ratios(compare_records(first, second))
    main = _element(
        "main",
        _element("h1", f"{second.id}, compared with {first.id}"),
        *(_element("p", f"{name}: {'; '.join(lines)}") for name, lines in headings.items()),
        *(_element("h2", "What differs besides"), *(_element("p", line) for line in differences)),
        *(_build_plots([first, second]), _element("h2", "Ratios, second by first"), *ratios),
        *(*_build_conditions(first), *_build_conditions(second)),
    )
    return _build_html(f"{first.id} and {second.id}", main, [first, second])


def build_image(records: Sequence[Record]) -> str:
    """Return all plots in a row as an SVG file that refers to no other file."""
    drawings = [draw_plot(plot) for plot in list_plots(records)]
    width = max(2, len(drawings)) * (PLOT_WIDTH + _GAP) - _GAP
    root = _element("svg", xmlns="http://www.w3.org/2000/svg", font_family=_FONT)
    root.append(_element("title", make_printable(" and ".join(record.id for record in records))))
    root.append(_element("style", _PLOTS_CSS))
    root.append(_element("rect", css_class="paper", width="100%", height="100%"))
    y = _MARGIN
    for record in records:
        for index, line in enumerate(format_heading(record)):
            for part in textwrap.wrap(make_printable(line), int(width / _CHAR_WIDTH)):
                y += _LINE_HEIGHT
                css_class = "" if index else "head"
                root.append(_element("text", part, css_class=css_class, x=float(_MARGIN), y=y - 6.0))
        y += _LINE_HEIGHT
    for index, drawing in enumerate(drawings):
        height = drawing.get("viewBox", "").split()[-1]
        x = _MARGIN + index * (PLOT_WIDTH + _GAP)
        place = {"x": x, "y": y, "width": PLOT_WIDTH, "height": height}
        drawing.attrib |= {name: str(value) for name, value in place.items()}
        root.append(drawing)
    y += max((int(drawing.get("height", 0)) for drawing in drawings), default=0) + _MARGIN
    size = {"viewBox": f"0 0 {width + 2 * _MARGIN} {y}", "width": width + 2 * _MARGIN, "height": y}
    root.attrib |= {name: str(value) for name, value in size.items()}
    return ET.tostring(root, encoding="unicode") + "\n"


def _build_html(title: str, main: ET.Element, records: Sequence[Record]) -> str:
    head = _element(
        "head",
        _element("meta", charset="utf-8"),
        _element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        _element("meta", http_equiv="Content-Security-Policy", content=_CONTENT_SECURITY_POLICY),
        _element("link", rel="icon", href="data:,"),
        *(
            _element("title", f"medley bench: {title}"),
            _element("style", f"{_PLOTS_CSS}\n{_PAGE_CSS}"),
        ),
    )
    # Without "<" the JSON cannot end the script element around it.
    table = json.dumps([record.table for record in records]).replace("<", "\\u003c")
    data = _element("script", table, type="application/json", id="data")
    html = _element("html", head, _element("body", main, data), lang="en")
    return f"<!doctype html>\n{ET.tostring(html, encoding='unicode', method='html')}\n"


def _build_plots(records: Sequence[Record]) -> ET.Element:
    return _element(
        "div", *(_element("div", draw_plot(plot)) for plot in list_plots(records)), css_class="plots"
    )


def _build_ratios(comparisons: Sequence[Comparison]) -> Iterator[ET.Element]:
    """Yield a table for each row."""
    for row in dict.fromkeys(comparison.row for comparison in comparisons):
        body = (_format_comparison(comparison) for comparison in comparisons if comparison.row == row)
        yield _build_table([f"{_format_row(row)} concurrent", "first", "second", "ratio", "", ""], body)


def _format_comparison(comparison: Comparison) -> tuple[str, ...]:
    medians = (comparison.first.median, comparison.second.median)
    ratio, range_ = f"{comparison.ratio:.2f}", f"{comparison.low:.2f} to {comparison.high:.2f}"
    return (comparison.figure_kind.title, *map(format_number, medians), ratio, range_, comparison.verdict)


def _build_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> ET.Element:
    head = _element("thead", _element("tr", *(_element("th", title) for title in titles)))
    body = _element("tbody", *(_element("tr", *(_element("td", cell) for cell in row)) for row in rows))
    return _element("div", _element("table", head, body), css_class="wide")


def _build_conditions(record: Record) -> Iterator[ET.Element]:
    yield _element("h2", f"Conditions of {record.id}")
    entries: list[ET.Element] = []
    for name, text in list_conditions(record):
        entries += _element("dt", name), _element("dd", make_printable(text))
    yield _element("dl", *entries)
    for host in record.about["hosts"]:
        facts = _element("pre", host["facts"])
        yield _element("details", _element("summary", f"facts of {host['name']}"), facts)


def _format_row(row: tuple[Mode, int]) -> str:
    mode, concurrency = row
    return str(concurrency) if mode == "served" else f"{concurrency}, {mode}"


class Point(Value):
    """A value at a number of concurrent streams, with its range."""

    streams: int
    value: float
    low: float
    high: float

    def __str__(self) -> str:
        range_ = f"{format_number(self.low)} to {format_number(self.high)}"
        return f"{self.streams} concurrent: {format_number(self.value)} ({range_})"


class Line(Value):
    """The points of one line; `look` is its class in plots.css."""

    name: str
    css_class: Literal["one", "two", "told"]
    points: tuple[Point, ...]
    kind: Literal["measured", "p99", "predicted"] = "measured"


class Plot(Value):
    """A plot of one figure over the number of concurrent streams."""

    title: str
    unit: str
    lines: tuple[Line, ...]


def list_plots(records: Sequence[Record]) -> tuple[Plot, ...]:
    """Return the plots that have points."""
    plots = (
        Plot("Output", "tokens/s", tuple(_list_lines(records, "output_tokens_per_s"))),
        Plot("First token", "ms", tuple(_list_lines(records, "ttft_ms", "ttft_p99_ms"))),
        Plot("Each token after it", "ms", tuple(_list_lines(records, "tpot_ms", "tpot_p99_ms"))),
        Plot("Whole batch, offline", "ms", tuple(_list_lines(records, "latency_ms"))),
    )
    return tuple(plot for plot in plots if any(line.points for line in plot.lines))


def _list_lines(records: Sequence[Record], figure_name: str, p99: str | None = None) -> Iterator[Line]:
    """Yield the lines of a plot; two records have only medians, because six lines are hard to distinguish."""
    has_same_prediction = all(record.expected == records[0].expected for record in records)
    classes: tuple[Literal["one", "two"], ...] = ("one", "two")
    for record, css_class, ordinal in zip(records, classes, ("first", "second"), strict=False):
        name = ordinal if len(records) > 1 else "measured"
        for mode in dict.fromkeys(mode for mode, _ in record.rows):
            suffix = "" if mode == "served" else f", {mode}"
            yield Line(f"{name}{suffix}", css_class, _list_points(record, mode, figure_name))
            if p99 and len(records) == 1:
                yield Line(f"p99{suffix}", css_class, _list_points(record, mode, p99), "p99")
        if not has_same_prediction:
            yield Line(
                f"{name}, predicted",
                css_class,
                tuple(_list_predicted_points(record, figure_name)),
                "predicted",
            )
    if has_same_prediction:
        yield Line("predicted", "told", tuple(_list_predicted_points(records[0], figure_name)), "predicted")


def _list_points(record: Record, mode: Mode, figure_name: str) -> tuple[Point, ...]:
    points = []
    for row_mode, streams in record.rows:
        spread = record.compute_spreads(row_mode, streams).get(figure_name)
        if row_mode == mode and spread:
            points.append(Point(streams, spread.median, spread.low, spread.high))
    return tuple(points)


def _list_predicted_points(record: Record, figure_name: str) -> Iterator[Point]:
    for mode, streams in record.rows:
        expected = record.expected.get(streams)
        if mode == "served" and expected and (value := getattr(expected, figure_name, None)) is not None:
            range_ = (expected.low, expected.high) if figure_name == "output_tokens_per_s" else (value, value)
            yield Point(streams, value, *range_)


def draw_plot(plot: Plot) -> ET.Element:
    """Return the plot as an SVG element that scales with the page and has the page's colors."""
    lines = [line for line in plot.lines if line.points]
    all_streams = sorted({point.streams for line in lines for point in line.points}) or [1]
    ticks = _compute_ticks(max((point.high for line in lines for point in line.points), default=1))
    lowest, highest, axis_width = (
        all_streams[0],
        all_streams[-1],
        PLOT_WIDTH - _LEFT_MARGIN - _RIGHT_MARGIN - 20,
    )
    bottom, middle = _TOP_MARGIN + PLOT_HEIGHT, (PLOT_WIDTH + _LEFT_MARGIN - _RIGHT_MARGIN) / 2

    def x(streams: int) -> float:
        share = math.log(streams / lowest) / math.log(highest / lowest) if highest > lowest else 0.5
        return _LEFT_MARGIN + 10 + axis_width * share

    def y(value: float) -> float:
        return _TOP_MARGIN + PLOT_HEIGHT * (1 - min(value, ticks[-1]) / ticks[-1])

    height = bottom + _AXIS_HEIGHT + _LEGEND_HEIGHT * len(lines)
    root = _element("svg", viewBox=f"0 0 {PLOT_WIDTH} {height}", role="img")
    texts = "; ".join(f"{line.name}: {', '.join(map(str, line.points))}" for line in lines)
    root.append(_element("title", f"{plot.title}: {texts}"))
    root.append(_element("text", f"{plot.title}, {plot.unit}", css_class="head", y=14.0))
    for tick in ticks:
        root.append(
            _element(
                "path", css_class="rule", d=f"M{_LEFT_MARGIN} {y(tick):.1f}H{PLOT_WIDTH - _RIGHT_MARGIN}"
            )
        )
        label = format_number(tick) if tick else "0"
        root.append(
            _element("text", label, css_class="muted", x=_LEFT_MARGIN - 6.0, y=y(tick) + 4, text_anchor="end")
        )
    last_x = -float(_MIN_LABEL_DISTANCE)
    for streams in all_streams:
        if x(streams) - last_x >= _MIN_LABEL_DISTANCE:
            last_x = x(streams)
            root.append(_build_label(str(streams), last_x, bottom + 16))
    root.append(_build_label("concurrent streams", middle, bottom + 33))
    for line in sorted(lines, key=lambda line: line.kind != "predicted"):  # bands come below all lines
        root.extend(_draw_line(line, plot.unit, x, y))
    for index, line in enumerate(lines):
        top = bottom + _AXIS_HEIGHT + _LEGEND_HEIGHT * index
        root.append(_element("path", css_class=f"line {line.css_class} {line.kind}", d=f"M0 {top + 4}h24"))
        root.append(_element("text", line.name, x=30.0, y=top + 8.0))
    return root


def _draw_line(
    line: Line, unit: str, x: Callable[[int], float], y: Callable[[float], float]
) -> Iterator[ET.Element]:
    """Yield the elements of a line; each point's title has its numbers, which a browser shows on hover."""

    def build_path(values: Iterable[tuple[int, float]]) -> str:
        return "M" + "L".join(f"{x(streams):.1f} {y(value):.1f}" for streams, value in values)

    if line.kind == "predicted":
        upper = [(point.streams, point.high) for point in line.points]
        lower = [(point.streams, point.low) for point in reversed(line.points)]
        yield _element("path", css_class=f"band {line.css_class}", d=f"{build_path(upper + lower)}Z")
    css_classes = f"{line.css_class} {line.kind}"
    path = build_path((point.streams, point.value) for point in line.points)
    yield _element("path", css_class=f"line {css_classes}", d=path)
    for point in line.points:
        center_x = x(point.streams)
        if line.kind != "predicted" and point.high > point.low:
            bar = f"M{center_x:.1f} {y(point.low):.1f}V{y(point.high):.1f}"
            yield _element("path", css_class=f"bar {css_classes}", d=bar)
        title = _element("title", f"{line.name}, {point} {unit}")
        radius = 4.0 if line.kind == "measured" else 2.5
        yield _element(
            "circle", title, css_class=f"dot {line.css_class}", cx=center_x, cy=y(point.value), r=radius
        )


def _compute_ticks(largest: float) -> tuple[float, ...]:
    """Return ticks in round steps from 0 to at least the largest value."""
    min_step = max(largest, 1e-9) / _MAX_TICKS
    power = 10 ** math.floor(math.log10(min_step))
    step = next(factor * power for factor in _TICK_STEPS if factor * power >= min_step * (1 - 1e-9))
    count = math.ceil(largest / step - 1e-9) or 1
    return tuple(index * step for index in range(count + 1))


def _build_label(text: str, x: float, y: float) -> ET.Element:
    return _element("text", text, css_class="muted", x=x, y=y, text_anchor="middle")


def _element(
    tag: str, *content: str | ET.Element, css_class: str = "", **attributes: float | str
) -> ET.Element:
    """Return an element with text or children.

    `css_class` is its class; `text_anchor` becomes text-anchor, and numbers have one decimal.
    """
    element = ET.Element(tag, {"class": css_class} if css_class else {})
    for name, value in attributes.items():
        element.set(name.replace("_", "-"), value if isinstance(value, str) else f"{value:.1f}")
    for item in content:
        if isinstance(item, str):
            element.text = item
        else:
            element.append(item)
    return element
