"""Format a benchmark as text."""

from collections.abc import Iterator, Sequence

from medley.measurement.bench.context import ExpectedFigures
from medley.measurement.bench.figures import FIGURE_KINDS, Spread
from medley.measurement.bench.record import Mode, Record

_COLUMNS = 4
"""The columns that fit a terminal of 80 characters."""
_MIN_WHOLE_NUMBER = 100
"""The value from which numbers have no decimals."""
RANGE_TITLE = "  four of five"


def format_record(record: Record) -> Iterator[str]:
    """Yield the lines of the report: heading, figures in columns, and what bounds the prediction."""
    yield from format_heading(record)
    for first in range(0, len(record.rows), _COLUMNS):
        rows = record.rows[first : first + _COLUMNS]
        cells = [("", *map(_format_row, rows)), *format_figures(record, rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        yield ""
        for title, *values in cells:
            padded = (value.rjust(width) for value, width in zip(values, widths[1:], strict=True))
            yield "  ".join((title.ljust(widths[0]), *padded)).rstrip()
    yield ""
    yield from format_bounds(record)


def _format_row(row: tuple[Mode, int]) -> str:
    mode, concurrency = row
    return f"{concurrency} concurrent" if mode == "served" else f"{mode}, {concurrency}"


def _format_spread(spread: Spread | None) -> str:
    return f"{format_number(spread.median)} ±{spread.relative_half_range:.0%}" if spread else ""


def format_heading(record: Record) -> Iterator[str]:
    load, plan = record.load, record.about["plan"]
    yield f"{record.id}: {record.model}, {_format_engine(record)}"
    if plan and plan["layout"]:
        yield plan["layout"]
    yield (
        f"{load.input_tokens} tokens in, {load.output_tokens} out; median of {load.repeats} "
        f"{'run' if load.repeats == 1 else 'runs'}, ± the farthest of them"
    )
    if not record.whole:
        yield f"not whole: it was stopped after {len(record.counted)} of its runs"
    failed = sum(result.figures.failed for result in record.counted)
    if failed:
        yield f"{failed} requests failed"


def format_figures(record: Record, rows: Sequence[tuple[Mode, int]]) -> Iterator[tuple[str, ...]]:
    """Yield a title, and a cell for each of `rows`: first the measured figures, then the prediction."""
    row_spreads = [record.compute_spreads(*row) for row in rows]
    for figure_kind in FIGURE_KINDS:
        spreads = [by_figure.get(figure_kind.name) for by_figure in row_spreads]
        if any(spreads):
            yield (figure_kind.title, *map(_format_spread, spreads))
    predictions = [record.find_prediction(*row) for row in rows]
    if any(predictions):
        yield from _format_predictions(predictions)


def _format_predictions(
    predictions: Sequence[tuple[ExpectedFigures, float] | None],
) -> Iterator[tuple[str, ...]]:
    """Yield the predicted rates, their ranges and the ratios; a row without a prediction has empty cells."""
    cells = [_format_prediction(prediction) for prediction in predictions]
    titles = ("predicted, tokens/s", RANGE_TITLE, "measured/predicted")
    yield from ((title, *row) for title, row in zip(titles, zip(*cells, strict=True), strict=True))


def _format_prediction(prediction: tuple[ExpectedFigures, float] | None) -> tuple[str, str, str]:
    if prediction is None:
        return "", "", ""
    expected, ratio = prediction
    range_ = f"{format_number(expected.low)}-{format_number(expected.high)}"
    return format_number(expected.output_tokens_per_s), range_, f"{ratio:.2f}"


def format_bounds(record: Record) -> Iterator[str]:
    """Yield what limits the predicted speed, with the concurrencies where it does."""
    concurrencies: dict[str, list[str]] = {}
    for mode, concurrency in record.rows:
        if prediction := record.find_prediction(mode, concurrency):
            concurrencies.setdefault(prediction[0].bound, []).append(str(concurrency))
    for bound, numbers in concurrencies.items():
        yield f"predicted bound at {', '.join(numbers)}: {bound}"


def format_number(value: float) -> str:
    """Return the value with three digits, or without decimals from 100 on."""
    return f"{value:.0f}" if value >= _MIN_WHOLE_NUMBER else f"{value:.3g}"


def list_conditions(record: Record) -> Iterator[tuple[str, str]]:
    """Yield the conditions of a benchmark, each with its title."""
    engine, plan, load = record.about["engine"], record.about["plan"], record.load
    yield "when", f"{record.when}, by medley {record.about['medley']['version']}"
    versions = ", ".join(f"{name} {version}" for name, version in engine["versions"].items())
    environment = " ".join(filter(None, (engine["environment"], engine["digest"]))) or "not of this host"
    yield "engine", f"{environment}: {versions}"
    if plan:
        yield "serves", " ".join(plan["argv"])
    for host in record.about["hosts"]:
        yield "host", f"{host['name']}, {len(host['facts'].splitlines())} lines of facts"
    yield "load", f"{load.requests or '4 a stream, at least 8'} requests a run, seeds from {load.seed}"


def build_history(records: Sequence[Record]) -> tuple[tuple[str, ...], ...]:
    """Return the headers, and a row for each record."""
    rows = (tuple(summarize_record(record).values()) for record in records)
    return (("id", "when", "model", "engine", "layout", "concurrent", "tokens/s", "of predicted"), *rows)


def summarize_record(record: Record) -> dict[str, str]:
    """Return one row: the best rate of all concurrencies, and the ratio to the prediction there."""

    def compute_rate(row: tuple[Mode, int]) -> float:
        spread = record.compute_spreads(*row).get("output_tokens_per_s")
        return spread.median if spread else 0.0

    best_row = max(record.rows, key=compute_rate, default=None)
    prediction = record.find_prediction(*best_row) if best_row else None
    plan = record.about["plan"]
    return {
        "id": record.id,
        "when": record.when[:16].replace("T", " "),
        "model": record.model,
        "engine": _format_engine(record),
        "layout": (plan and plan["layout"]) or "",
        "concurrency": str(best_row[1]) if best_row else "",
        "tokens_per_s": format_number(compute_rate(best_row)) if best_row else "",
        "of_predicted": f"{prediction[1]:.2f}" if prediction else "",
    }


def _format_engine(record: Record) -> str:
    engine = record.about["engine"]
    versions, name = engine["versions"], engine["name"]
    return f"{name} {versions.get(name) or versions.get(f'{name}-cpu') or ''}".rstrip()
