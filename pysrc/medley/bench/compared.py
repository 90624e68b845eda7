"""Two benches compared: how many times as fast the second is, and whether that is more than their spread."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from medley.bench.differing import differing, same_load
from medley.bench.figures import MEASURES, Measure, Spread
from medley.bench.record import Mode, Record
from medley.problem import Problem

Verdict = Literal["better", "worse", "within the spread", "spread unknown"]
_LEAST_RUNS = 2


@dataclass(frozen=True)
class Compared:
    """One figure at one concurrency."""

    mode: Mode
    concurrency: int
    measure: Measure
    one: Spread
    two: Spread
    verdict: Verdict

    @property
    def ratio(self) -> float:
        """Second by first, of their medians."""
        return self.two.median / self.one.median

    @property
    def low(self) -> float:
        return self.two.low / self.one.high

    @property
    def high(self) -> float:
        return self.two.high / self.one.low

    @property
    def table(self) -> dict[str, Any]:
        own = {"mode": self.mode, "concurrency": self.concurrency, "measure": self.measure.name}
        ratio = {"ratio": self.ratio, "low": self.low, "high": self.high, "verdict": self.verdict}
        return {**own, **ratio, "one": asdict(self.one), "two": asdict(self.two)}


def compared(one: Record, two: Record) -> tuple[Compared, ...]:
    """What both measured; a Problem where that is nothing."""
    found = tuple(_compared(one, two))
    if found:
        return found
    raise Problem(
        "these two benches have nothing in common",
        cause=f"{one.id} measured {_rows(one)}; {two.id} measured {_rows(two)}",
        fix=f"medley bench --concurrency {','.join(map(str, one.load.concurrencies))}",
    )


def _compared(one: Record, two: Record) -> Iterator[Compared]:
    for mode, many in one.rows:
        if (mode, many) not in two.rows:
            continue
        before, after = one.spreads(mode, many), two.spreads(mode, many)
        runs = min(len(each.runs(mode, many)) for each in (one, two))
        for measure in MEASURES:
            if measure.name in before and measure.name in after and before[measure.name].low > 0:
                pair = before[measure.name], after[measure.name]
                yield Compared(mode, many, measure, *pair, _verdict(measure, *pair, runs))


def _verdict(measure: Measure, one: Spread, two: Spread, runs: int) -> Verdict:
    """A difference is one where every run of the one lies beyond every run of the other."""
    if runs < _LEAST_RUNS:
        return "spread unknown"
    if two.low > one.high:
        return "better" if measure.more_is_better else "worse"
    if two.high < one.low:
        return "worse" if measure.more_is_better else "better"
    return "within the spread"


def lines(one: Record, two: Record, found: Sequence[Compared]) -> Iterator[str]:
    yield f"first:   {one.id} ({one.when[:16].replace('T', ' ')})"
    yield f"second:  {two.id} ({two.when[:16].replace('T', ' ')})"
    apart = differing(one, two)
    yield ""
    yield from (f"differs: {each}" for each in apart)
    if not apart:
        yield "differs: nothing that is known"
    if not same_load(one, two):
        yield "their loads differ, so their figures measure different things"
    for row in dict.fromkeys((each.mode, each.concurrency) for each in found):
        yield ""
        mode, many = row
        yield f"{many} at once" if mode == "served" else f"{mode}, {many}"
        for each in found:
            if (each.mode, each.concurrency) == row:
                yield f"  {_line(each)}"


def _line(each: Compared) -> str:
    title = f"{each.measure.title}, {each.measure.unit}"
    values = f"{each.one.median:.4g} → {each.two.median:.4g}"
    return f"{title:<22} {values:>17}  {each.ratio:.2f} ({each.low:.2f}-{each.high:.2f})  {each.verdict}"


def _rows(record: Record) -> str:
    return ", ".join(f"{mode} at {many}" for mode, many in record.rows) or "nothing"
