"""How far the prediction is from published measurements: error = |predicted - published| / published.

    .venv/bin/python -m benchmarks.predictor                # every row; and fitted without its own source
    .venv/bin/python -m benchmarks.predictor --data FILE    # another file of the same columns, as shipped
    .venv/bin/python -m benchmarks.predictor --loose 4      # refitted with hardly a first guess to hold on to
    .venv/bin/python -m benchmarks.predictor --fit          # the constants that device_specs.py ships

`--json` prints either as JSON; `median` and `p90` are fractions, over rows about decoding. One is scored
unless it does not say what is read (quantisation, parameters), on what, or for how many streams: else it is
predicted with an assumption, and marked. Speculative rows and rows about a wire are left out.
"""

import argparse
import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import held_out, published
from benchmarks.fitting import GUESSES, figure, fit
from benchmarks.published import DECODE, PREFILL, Case, Left
from medley.planner.device_specs import SHIPPED_EFFICIENCY, Efficiency

DATA = held_out.DATA
_CROWD = 16


@dataclass(frozen=True)
class Scored:
    """A row, predicted with the shipped constants and with those fitted without its source."""

    case: Case
    predicted: float
    unseen: float | None

    @property
    def plain(self) -> float:
        return abs(self.predicted - self.case.value) / self.case.value

    @property
    def left_out(self) -> float | None:
        return None if self.unseen is None else abs(self.unseen - self.case.value) / self.case.value


def main() -> None:
    options = _options()
    read = published.read(options.data or DATA)
    cases = [each for each in read if isinstance(each, Case)]
    if options.fit:
        _print_fit(fit(cases), sum(case.scored for case in cases))
        return
    unseen = {} if options.data else held_out.read()
    scored = _scored(cases, without=unseen if options.loose == 1 else held_out.without(cases, options.loose))
    left = [each for each in read if isinstance(each, Left)]
    if options.json:
        print(json.dumps(_summary(scored, left), indent=1))
    else:
        _print_rows(scored, left)
        _print_errors(scored)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, help="another file with the columns of published.csv")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--fit", action="store_true", help="print the constants that fit best")
    parser.add_argument("--loose", type=float, default=1.0, help="doubt the first guesses so many times more")
    return parser.parse_args()


def _scored(cases: Iterable[Case], *, without: dict[str, Efficiency]) -> list[Scored]:
    return [
        Scored(case, figure(case, SHIPPED_EFFICIENCY), figure(case, own) if own else None)
        for case in cases
        for own in [without.get(case.site)]
    ]


def quantiles(errors: Iterable[float | None]) -> dict[str, float | int | None]:
    """Median and 90th percentile (the smallest error that nine of ten rows do not exceed)."""
    known = sorted(error for error in errors if error is not None)
    if not known:
        return {"rows": 0, "median": None, "p90": None}
    at = -(-9 * len(known) // 10) - 1
    return {"rows": len(known), "median": round(statistics.median(known), 4), "p90": round(known[at], 4)}


def _summary(scored: Sequence[Scored], left: Sequence[Left]) -> dict[str, object]:
    decode = [each for each in scored if each.case.scored and each.case.what == DECODE]
    plain = quantiles(each.plain for each in decode)
    unseen = quantiles(each.left_out for each in decode)
    main_ = unseen if unseen["rows"] else plain
    everything = [each for each in scored if each.case.what == DECODE]
    return {
        "median": main_["median"],
        "p90": main_["p90"],
        "of": "leave one source out" if unseen["rows"] else "shipped constants",
        "decode": {"shipped": plain, "leave_one_source_out": unseen},
        "decode_with_assumptions": {"shipped": quantiles(each.plain for each in everything)},
        "prompts": _groups([e for e in scored if e.case.scored and e.case.what == PREFILL], _streams),
        "by_streams": _groups(decode, _streams),
        "by_kind": _groups(decode, lambda each: each.case.kind),
        "by_layout": _groups(decode, _layout),
        "rows": [_row(each) for each in scored],
        "left_out": [{**each.row, "because": each.because} for each in left],
    }


def _groups(scored: Sequence[Scored], key: Callable[[Scored], str]) -> dict[str, object]:
    names = sorted({key(each) for each in scored})
    return {
        name: {
            "shipped": quantiles(each.plain for each in scored if key(each) == name),
            "leave_one_source_out": quantiles(each.left_out for each in scored if key(each) == name),
        }
        for name in names
    }


def _layout(each: Scored) -> str:
    row, streams = each.case.row, each.case.load.concurrency
    return f"tp{row['tp']} pp{row['pp']} {'one stream' if streams == 1 else 'many streams'}"


def _streams(each: Scored) -> str:
    streams = each.case.load.concurrency
    return "one stream" if streams == 1 else "2 to 15 streams" if streams < _CROWD else "16 streams or more"


def _row(each: Scored) -> dict[str, object]:
    return {
        "row": each.case.name,
        "kind": each.case.kind,
        "what": each.case.what,
        "published": each.case.value,
        "predicted": round(each.predicted, 2),
        "without_its_source": None if each.unseen is None else round(each.unseen, 2),
        "error": round(each.plain, 4),
        "unknown": list(each.case.unknown),
        "source": each.case.row["source"],
    }


def _print_rows(scored: Sequence[Scored], left: Sequence[Left]) -> None:
    print(f"{'kind':<11}{'published':>10}{'predicted':>10}{'error':>7}{'unseen':>7}  row")
    for each in sorted(scored, key=lambda each: (each.case.what, each.case.kind)):
        unseen = "" if each.left_out is None else f"{each.left_out:.0%}"
        mark = f"  (not scored, assumed: {', '.join(each.case.unknown)})" if each.case.unknown else ""
        print(
            f"{each.case.kind:<11}{each.case.value:>10.1f}{each.predicted:>10.1f}{each.plain:>7.0%}{unseen:>7}"
            f"  {each.case.name}{mark}"
        )
    for row in left:
        print(
            f"left out   {row.row['value']:>10}  {row.row['model'][:26]} {row.row['metric']}: {row.because}"
        )


def _print_errors(scored: Sequence[Scored]) -> None:
    summary = [each for each in scored if each.case.scored]
    groups = [
        ("decode, all", [each for each in summary if each.case.what == DECODE]),
        ("decode, assumed too", [each for each in scored if each.case.what == DECODE]),
        ("prompts", [each for each in summary if each.case.what == PREFILL]),
    ]
    decode = groups[0][1]
    for key in (_streams, lambda each: each.case.kind, _layout):
        groups += [(name, [e for e in decode if key(e) == name]) for name in sorted({key(e) for e in decode})]
    print(f"\n{'':<26}{'rows':>5}{'median':>8}{'p90':>7}   without its source: {'median':>7}{'p90':>7}")
    for name, rows in groups:
        plain, unseen = quantiles(e.plain for e in rows), quantiles(e.left_out for e in rows)
        print(
            f"{name:<26}{plain['rows']:>5}{_percent(plain['median']):>8}{_percent(plain['p90']):>7}"
            f"{'':<23}{_percent(unseen['median']):>7}{_percent(unseen['p90']):>7}"
        )


def _percent(fraction: float | None) -> str:
    return "-" if fraction is None else f"{fraction:.1%}"


def _print_fit(best: Efficiency, rows: int) -> None:
    print(f"{len(GUESSES)} constants on {rows} rows, one for {rows / len(GUESSES):.0f}")
    for name, value in best.to_table().items():
        guess, sure, origin = GUESSES[name]
        print(f"{name:<9}{value:>10.4g}   first guess {guess:g} (within e^{sure:g}): {origin}")


if __name__ == "__main__":
    main()
