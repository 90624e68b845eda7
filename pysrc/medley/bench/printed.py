"""A bench in print: a column for each concurrency, a line for each figure with its spread."""

from collections.abc import Iterator, Sequence

from medley.bench.figures import MEASURES, Measure, Spread
from medley.bench.record import Mode, Record

_ACROSS = 4
"""Columns that fit a terminal of 80."""
_EXACT = 100
"""From here on no digit after the point is of use."""


def lines(record: Record) -> Iterator[str]:
    yield from heading(record)
    rows = record.rows
    for first in range(0, len(rows), _ACROSS):
        yield ""
        yield from _table(record, rows[first : first + _ACROSS])
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


def _table(record: Record, rows: Sequence[tuple[Mode, int]]) -> Iterator[str]:
    found = [record.spreads(*row) for row in rows]
    cells = [("", *(_column(mode, many) for mode, many in rows))]
    for measure in MEASURES:
        said = [each.get(measure.name) for each in found]
        if any(said):
            cells.append((_title(measure), *(shown(each) for each in said)))
    told = [record.of_expected(*row) for row in rows]
    if any(told):
        cells.append(
            ("predicted, tokens/s", *(number(each[0].output_tokens_per_s) if each else "" for each in told))
        )
        cells.append(
            (
                "  nine times in ten",
                *(f"{number(each[0].low)}-{number(each[0].high)}" if each else "" for each in told),
            )
        )
        cells.append(("measured/predicted", *(f"{each[1]:.2f}" if each else "" for each in told)))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for first, *others in cells:
        padded = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        yield "  ".join((first.ljust(widths[0]), *padded)).rstrip()


def bounds(record: Record) -> Iterator[str]:
    """What the prediction says bounds it, once for concurrencies of which it says the same."""
    said: dict[str, list[int]] = {}
    for mode, many in record.rows:
        told = record.of_expected(mode, many)
        if told:
            said.setdefault(told[0].bound, []).append(many)
    for bound, which in said.items():
        yield f"predicted bound at {', '.join(map(str, which))}: {bound}"


def _column(mode: Mode, concurrency: int) -> str:
    return f"{concurrency} at once" if mode == "served" else f"{mode}, {concurrency}"


def _title(measure: Measure) -> str:
    return f"{measure.title}, {measure.unit}"


def shown(found: Spread | None) -> str:
    return f"{number(found.median)} ±{found.half:.0%}" if found else ""


def number(value: float) -> str:
    return f"{value:.0f}" if value >= _EXACT else f"{value:.3g}"


def about(record: Record) -> Iterator[tuple[str, str]]:
    """What it hangs on, in short; the JSON has all of it."""
    engine, plan, load = record.about["engine"], record.about["plan"], record.load
    yield "when", f"{record.when}, by medley {record.about['medley']['version']}"
    versions = ", ".join(f"{name} {each}" for name, each in engine["versions"].items())
    made = " ".join(filter(None, (engine["environment"], engine["digest"]))) or "not of this host"
    yield "engine", f"{made}: {versions}"
    if plan:
        yield "serves", " ".join(plan["argv"])
    for host in record.about["hosts"]:
        yield "host", f"{host['name']}, {len(host['facts'].splitlines())} lines of facts"
    requests = load.requests or "4 a stream, at least 8"
    yield "load", f"{requests} requests a run, seeds from {load.seed}"


def history(known: Sequence[Record]) -> tuple[tuple[str, ...], ...]:
    """Its rows, the first their titles."""
    rows = (tuple(str(each) for each in summary(record).values()) for record in known)
    return (("id", "when", "model", "engine", "layout", "at once", "tokens/s", "of predicted"), *rows)


def summary(record: Record) -> dict[str, str]:
    """In one row: the best rate of all concurrencies, and the ratio to the prediction there."""
    best = max(record.rows, key=lambda row: _rate(record, row), default=None)
    told = record.of_expected(*best) if best else None
    plan = record.about["plan"]
    return {
        "id": record.id,
        "when": record.when[:16].replace("T", " "),
        "model": record.model,
        "engine": _version(record),
        "layout": (plan and plan["layout"]) or "",
        "concurrency": str(best[1]) if best else "",
        "tokens_per_s": number(_rate(record, best)) if best else "",
        "of_predicted": f"{told[1]:.2f}" if told else "",
    }


def _rate(record: Record, row: tuple[Mode, int]) -> float:
    found = record.spreads(*row).get("output_tokens_per_s")
    return found.median if found else 0.0


def _version(record: Record) -> str:
    engine = record.about["engine"]
    versions, name = engine["versions"], engine["name"]
    return f"{name} {versions.get(name) or versions.get(f'{name}-cpu') or ''}".rstrip()
