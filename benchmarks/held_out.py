"""The constants fitted without each source, and where its rows lie of what they predict.

.venv/bin/python -m benchmarks.held_out --fit > benchmarks/results/held_out.csv     # minutes
.venv/bin/python -m benchmarks.held_out         # the ranges that device_specs.py ships, and what they hold
"""

import argparse
import csv
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import msgspec

from benchmarks import published
from benchmarks.fitting import figure, fit
from benchmarks.published import DECODE, PREFILL, Case
from medley.planner.device_specs import SHIPPED_EFFICIENCY, Efficiency, HeldOutRange

DATA = Path(__file__).parent / "published.csv"
FITS = Path(__file__).parent / "results" / "held_out.csv"
METRICS = ("one stream", "many streams", "prompts")
_SHARE = 0.8
_DIGITS = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--fit", action="store_true", help="print the constants fitted without each source")
    cases = [each for each in published.read(DATA) if isinstance(each, Case)]
    if parser.parse_args().fit:
        _print_fits(without(cases))
        return
    found = ratios(cases, read())
    for metric in METRICS:
        of_metric = [ratio for each, _, ratio in found if each == metric]
        held, unseen = held_out(of_metric), _unseen(found, metric)
        print(
            f"{metric:<13} {held.low:g} to {held.high:g} holds {held.inside} of {held.rows}; "
            f"set without the row's own source, a range holds {unseen}"
        )


def without(cases: Sequence[Case], loose: float = 1.0) -> dict[str, Efficiency]:
    """For each source the constants fitted to all others."""
    sites = sorted({case.site for case in cases if case.scored})
    with ProcessPoolExecutor() as pool:
        return dict(zip(sites, pool.map(partial(_without, cases, loose), sites), strict=True))


def _without(cases: Sequence[Case], loose: float, site: str) -> Efficiency:
    return fit([case for case in cases if case.site != site], SHIPPED_EFFICIENCY, loose=loose)


def read(path: Path = FITS) -> dict[str, Efficiency]:
    with path.open(newline="") as file:
        return {
            row.pop("source"): Efficiency(**{name: float(value) for name, value in row.items()})
            for row in csv.DictReader(file)
        }


def _print_fits(found: Mapping[str, Efficiency]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["source", *(field.name for field in msgspec.structs.fields(Efficiency))])
    for site, each in found.items():
        writer.writerow([site, *(f"{value:.{_DIGITS}g}" for value in each.to_table().values())])


def metric(case: Case) -> str | None:
    """Of METRICS, the one whose range a scored row belongs to."""
    if case.scored and case.what == PREFILL:
        return "prompts"
    if not case.scored or case.what != DECODE:
        return None
    return "one stream" if case.load.concurrency == 1 else "many streams"


def ratios(cases: Iterable[Case], fits: Mapping[str, Efficiency]) -> list[tuple[str, str, float]]:
    """(metric, source, measured speed as a share of the one predicted without its source) of scored rows."""
    found = []
    for case in cases:
        if (of := metric(case)) is not None:
            ratio = case.value / figure(case, fits[case.site])
            found.append((of, case.site, ratio if case.row["unit"] == "tok/s" else 1 / ratio))
    return found


def held_out(found: Sequence[float]) -> HeldOutRange:
    """The range between the tenth and the ninetieth percentile, in hundredths outward, and what it holds."""
    known = sorted(found)
    cut = int(len(known) * (1 - _SHARE) / 2)
    low = int(known[cut] * 100) / 100
    high = -int(-known[-1 - cut] * 100 // 1) / 100
    return HeldOutRange(low, high, len(known), sum(low <= ratio <= high for ratio in known))


def _unseen(found: Sequence[tuple[str, str, float]], metric: str) -> str:
    """How many rows lie in the range that the other sources' rows set."""
    of_metric = [(site, ratio) for each, site, ratio in found if each == metric]
    inside = 0
    for own in {site for site, _ in of_metric}:
        held = held_out([ratio for site, ratio in of_metric if site != own])
        inside += sum(held.low <= ratio <= held.high for site, ratio in of_metric if site == own)
    return f"{inside} of {len(of_metric)}"


if __name__ == "__main__":
    main()
