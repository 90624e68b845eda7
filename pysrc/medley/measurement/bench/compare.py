"""Compare two benchmarks: the ratios of their medians, and what differs between them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from statistics import median
from typing import Any, Literal

from medley import transcript
from medley.errors import Problem
from medley.host import facts
from medley.host.facts import GIB
from medley.measurement.bench import MEASURES, Measure, Spread
from medley.measurement.bench.record import Mode, Record

Verdict = Literal["better", "worse", "within the spread", "spread unknown"]
Difference = tuple[str, Any, Any]
"""Name, first and second value, which may be equal."""
_LEAST_RUNS = 2
_CLOCK = re.compile(r"^(\d+), (\d+) MHz,")
_APART = 0.05
"""Clocks and measured speeds that differ by less are the same."""
_LOAD = {"input_tokens": "tokens in", "output_tokens": "tokens out", "requests": "requests"}
_ADDRESS = ("--host", "--port")
"""Of no matter to speed."""


@dataclass(frozen=True)
class Comparison:
    row: tuple[Mode, int]
    measure: Measure
    one: Spread
    two: Spread
    verdict: Verdict

    @property
    def ratio(self) -> float:
        return self.two.median / self.one.median

    @property
    def low(self) -> float:
        return self.two.low / self.one.high

    @property
    def high(self) -> float:
        return self.two.high / self.one.low

    @property
    def table(self) -> dict[str, Any]:
        own = {"mode": self.row[0], "concurrency": self.row[1], "measure": self.measure.name}
        ratio = {"ratio": self.ratio, "low": self.low, "high": self.high, "verdict": self.verdict}
        return {**own, **ratio, "one": asdict(self.one), "two": asdict(self.two)}


def compare(one: Record, two: Record) -> tuple[Comparison, ...]:
    """Compare what both measured; a Problem if that is nothing."""
    found = []
    for row in (row for row in one.rows if row in two.rows):
        before, after = one.spreads(*row), two.spreads(*row)
        runs = min(len(each.runs(*row)) for each in (one, two))
        for measure in MEASURES:
            if measure.name in before and measure.name in after and before[measure.name].low > 0:
                pair = before[measure.name], after[measure.name]
                found.append(Comparison(row, measure, *pair, _verdict(measure, *pair, runs)))
    if found:
        return tuple(found)
    raise Problem(
        "these two benches have nothing in common",
        cause=f"{one.id} measured {_rows(one)}; {two.id} measured {_rows(two)}",
        fix=f"medley bench --concurrency {','.join(map(str, one.load.concurrencies))}",
    )


def _rows(record: Record) -> str:
    return ", ".join(f"{mode} at {many}" for mode, many in record.rows) or "nothing"


def _verdict(measure: Measure, one: Spread, two: Spread, runs: int) -> Verdict:
    """A difference is one where every run of the one lies beyond every run of the other."""
    if runs < _LEAST_RUNS:
        return "spread unknown"
    if two.low <= one.high and two.high >= one.low:
        return "within the spread"
    return "better" if (two.low > one.high) == measure.more_is_better else "worse"


def lines(one: Record, two: Record, found: Sequence[Comparison]) -> Iterator[str]:
    yield f"first:   {one.id} ({one.when[:16].replace('T', ' ')})"
    yield f"second:  {two.id} ({two.when[:16].replace('T', ' ')})"
    yield ""
    yield from (f"differs: {each}" for each in differing(one, two) or ("nothing that is known",))
    if not same_load(one, two):
        yield "their loads differ, so their figures measure different things"
    for row in dict.fromkeys(each.row for each in found):
        mode, many = row
        yield ""
        yield f"{many} concurrent" if mode == "served" else f"{mode}, {many}"
        for each in (each for each in found if each.row == row):
            values = f"{each.one.median:.4g} → {each.two.median:.4g}"
            ratio = f"{each.ratio:.2f} ({each.low:.2f}-{each.high:.2f})"
            yield f"  {each.measure.title:<22} {values:>17}  {ratio}  {each.verdict}"


def same_load(one: Record, two: Record) -> bool:
    return all(
        getattr(one.load, name) == getattr(two.load, name) for name in ("input_tokens", "output_tokens")
    )


def differing(one: Record, two: Record) -> tuple[str, ...]:
    """List the differences, most important first."""
    return tuple(
        f"{what}: {_text(before)} → {_text(after)}"
        for what, before, after in _differences(one, two)
        if before != after
    )


def _text(value: object) -> str:
    return "not set" if value is None else "on" if value == "" else str(value)


def _differences(one: Record, two: Record) -> Iterator[Difference]:
    for name, title in _LOAD.items():
        yield title, getattr(one.load, name), getattr(two.load, name)
    yield "model", one.model, two.model
    yield from _of_engine(one.about["engine"], two.about["engine"])
    before, after = one.about["plan"] or {}, two.about["plan"] or {}
    yield "layout", before.get("layout"), after.get("layout")
    yield from _each(*(_flags(each.get("argv", ())) for each in (before, after)))
    yield from _each(before.get("env", {}), after.get("env", {}))
    yield from _of_hosts(one.about["hosts"], two.about["hosts"])
    yield from _apart("clock of GPU", _clocks(one), _clocks(two), " MHz")
    yield from _apart("measured", _measured(one), _measured(two))
    yield "medley", _medley(one), _medley(two)


def _medley(record: Record) -> str:
    return f"{record.about['medley']['version']} ({record.about['medley']['source']})"


def _each(one: Mapping[str, Any], two: Mapping[str, Any]) -> Iterator[Difference]:
    for name in sorted({*one, *two}):
        yield name, one.get(name), two.get(name)


def _of_engine(one: Mapping[str, Any], two: Mapping[str, Any]) -> Iterator[Difference]:
    yield "engine", one["name"], two["name"]
    yield from _each(one["versions"], two["versions"])
    yield "environment", one["environment"], two["environment"]
    for name in ("lock", "digest", "python"):
        if one.get(name) != two.get(name):  # the first says the most: a lock changes the digest, too
            yield name, _short(one.get(name)), _short(two.get(name))
            return


def _short(value: object) -> object:
    return value[:12] if isinstance(value, str) and re.fullmatch("[0-9a-f]{13,}", value) else value


def _flags(argv: Sequence[str]) -> dict[str, str]:
    """Each flag and what follows it; where the program and the weights lie is no matter."""
    found: dict[str, str] = {}
    name = None
    for word in argv:
        if word.startswith("-") and not word[1:2].isdecimal():
            name, _, value = word.partition("=")
            found[name] = value
        elif name:
            found[name] = f"{found[name]} {word}".strip()
    return {name: value for name, value in found.items() if name not in _ADDRESS}


def _of_hosts(one: Sequence[Mapping[str, str]], two: Sequence[Mapping[str, str]]) -> Iterator[Difference]:
    yield "hosts", len(one), len(two)
    for nth, (before, after) in enumerate(zip_longest(one, two), 1):
        if not (before and after):
            return
        name = f"host {nth}" if len(one) > 1 else "host"
        if before["same"] != after["same"]:
            yield f"{name} is another one", "the first's", "the second's"
        known, now = _traits(before["facts"]), _traits(after["facts"])
        for trait in known | now:
            yield f"{name}, {trait}", known.get(trait), now.get(trait)


def _traits(text: str) -> dict[str, str | None]:
    """List a host's constant facts on which speed may depend."""
    try:
        found = facts.facts(transcript.parse(text))
    except Problem:
        return {}
    return {
        "CPU": f"{found.cpu.model or found.system}, {found.cpu.threads} threads",
        "memory": f"{found.memory.total_bytes / GIB:.0f} GiB",
        "GPUs": ", ".join(gpu.name for gpu in found.gpus) or None,
        "driver": found.driver.version,
        "system": found.software.os_name,
        "kernel": found.software.kernel,
    }


def _clocks(record: Record) -> dict[str, float]:
    """Return each GPU's median clock during the runs."""
    seen: dict[str, list[int]] = {}
    for line in (line for each in record.counted for line in each.clocks):
        if match := _CLOCK.match(line):
            seen.setdefault(match[1], []).append(int(match[2]))
    return {gpu: median(found) for gpu, found in seen.items()}


def _measured(record: Record) -> dict[str, float]:
    known = record.about["measured"]
    speeds = {f"{each['host']} {each['index']}, GB/s": each["gb_s"] for each in known["speeds"]}
    return speeds | {f"{each['one']} - {each['two']}, Mbit/s": each["mbit"] for each in known["wires"]}


def _apart(
    what: str, one: Mapping[str, float], two: Mapping[str, float], unit: str = ""
) -> Iterator[Difference]:
    for name, before, after in _each(one, two):
        if not (before and after and abs(after / before - 1) < _APART):
            shown = [None if each is None else f"{each:.4g}{unit}" for each in (before, after)]
            yield f"{what} {name}", shown[0], shown[1]
