"""Print a benchmark as text."""

from collections.abc import Iterator, Sequence

from medley.measurement.bench import MEASURES
from medley.measurement.bench.record import Mode, Record

_COLUMNS = 4
"""Those that fit a terminal of 80."""
_EXACT = 100
"""From here on no digit after the point is of use."""
RANGE = "  four of five"


def lines(record: Record) -> Iterator[str]:
    yield from heading(record)
    for first in range(0, len(record.rows), _COLUMNS):
        rows = record.rows[first : first + _COLUMNS]
        titles = (f"{many} concurrent" if mode == "served" else f"{mode}, {many}" for mode, many in rows)
        cells = [("", *titles), *figures(record, rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        yield ""
        for title, *others in cells:
            padded = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
            yield "  ".join((title.ljust(widths[0]), *padded)).rstrip()
    yield ""
    yield from bounds(record)


def heading(record: Record) -> Iterator[str]:
    load, plan = record.load, record.about["plan"]
    yield f"{record.id}: {record.model}, {_version(record)}"
    if plan and plan["layout"]:
        yield plan["layout"]
    yield (
        f"{load.input_tokens} tokens in, {load.output_tokens} out; median of {load.repeats} "
        f"{'run' if load.repeats == 1 else 'runs'}, ± the farthest of them"
    )
    if not record.whole:
        yield f"not whole: it was stopped after {len(record.counted)} of its runs"
    failed = sum(each.figures.failed for each in record.counted)
    if failed:
        yield f"{failed} requests failed"


def figures(record: Record, rows: Sequence[tuple[Mode, int]]) -> Iterator[tuple[str, ...]]:
    """A title and a cell for each of the rows: first what was measured, then the prediction."""
    found = [record.spreads(*row) for row in rows]
    for measure in MEASURES:
        spreads = [each.get(measure.name) for each in found]
        if any(spreads):
            yield (
                measure.title,
                *(f"{number(each.median)} ±{each.half:.0%}" if each else "" for each in spreads),
            )
    predicted = [record.predicted(*row) for row in rows]
    if any(predicted):
        told = [each and each[0] for each in predicted]
        yield ("predicted, tokens/s", *(number(each.output_tokens_per_s) if each else "" for each in told))
        yield (RANGE, *(f"{number(each.low)}-{number(each.high)}" if each else "" for each in told))
        yield ("measured/predicted", *(f"{each[1]:.2f}" if each else "" for each in predicted))


def bounds(record: Record) -> Iterator[str]:
    found: dict[str, list[str]] = {}
    for mode, many in record.rows:
        if predicted := record.predicted(mode, many):
            found.setdefault(predicted[0].bound, []).append(str(many))
    for bound, which in found.items():
        yield f"predicted bound at {', '.join(which)}: {bound}"


def number(value: float) -> str:
    return f"{value:.0f}" if value >= _EXACT else f"{value:.3g}"


def about(record: Record) -> Iterator[tuple[str, str]]:
    engine, plan, load = record.about["engine"], record.about["plan"], record.load
    yield "when", f"{record.when}, by medley {record.about['medley']['version']}"
    versions = ", ".join(f"{name} {each}" for name, each in engine["versions"].items())
    made = " ".join(filter(None, (engine["environment"], engine["digest"]))) or "not of this host"
    yield "engine", f"{made}: {versions}"
    if plan:
        yield "serves", " ".join(plan["argv"])
    for host in record.about["hosts"]:
        yield "host", f"{host['name']}, {len(host['facts'].splitlines())} lines of facts"
    yield "load", f"{load.requests or '4 a stream, at least 8'} requests a run, seeds from {load.seed}"


def history(known: Sequence[Record]) -> tuple[tuple[str, ...], ...]:
    rows = (tuple(summary(record).values()) for record in known)
    return (("id", "when", "model", "engine", "layout", "concurrent", "tokens/s", "of predicted"), *rows)


def summary(record: Record) -> dict[str, str]:
    """In one row: the best rate of all concurrencies, and the ratio to the prediction there."""

    def rate(row: tuple[Mode, int]) -> float:
        found = record.spreads(*row).get("output_tokens_per_s")
        return found.median if found else 0.0

    best = max(record.rows, key=rate, default=None)
    predicted = record.predicted(*best) if best else None
    plan = record.about["plan"]
    return {
        "id": record.id,
        "when": record.when[:16].replace("T", " "),
        "model": record.model,
        "engine": _version(record),
        "layout": (plan and plan["layout"]) or "",
        "concurrency": str(best[1]) if best else "",
        "tokens_per_s": number(rate(best)) if best else "",
        "of_predicted": f"{predicted[1]:.2f}" if predicted else "",
    }


def _version(record: Record) -> str:
    engine = record.about["engine"]
    versions, name = engine["versions"], engine["name"]
    return f"{name} {versions.get(name) or versions.get(f'{name}-cpu') or ''}".rstrip()
