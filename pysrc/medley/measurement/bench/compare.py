"""Decide whether two benchmarks differ, by the ratios of their medians; list what differs between them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, Literal

from medley import transcript
from medley.errors import Problem
from medley.host import facts
from medley.host.facts import GIB
from medley.measurement.bench.figures import FIGURE_KINDS, FigureKind, Spread
from medley.measurement.bench.record import Mode, Record
from medley.values import Value

Verdict = Literal["better", "worse", "within the spread", "spread unknown"]
Difference = tuple[str, Any, Any]
"""A name, with the first and the second value; they may be equal."""
_MIN_RUNS = 2
_CLOCK_PATTERN = re.compile(r"^(\d+), (\d+) MHz,")
_MIN_DIFFERENCE = 0.05
"""The relative difference from which clocks and measured speeds count as different."""
_LOAD_TITLES = {"input_tokens": "tokens in", "output_tokens": "tokens out", "requests": "requests"}
_ADDRESS_FLAGS = ("--host", "--port")
"""Flags without influence on speed."""


class Comparison(Value):
    """One figure of two benchmarks in one row; its ratios are the second divided by the first."""

    row: tuple[Mode, int]
    figure_kind: FigureKind
    first: Spread
    second: Spread
    verdict: Verdict

    @property
    def ratio(self) -> float:
        return self.second.median / self.first.median

    @property
    def low(self) -> float:
        return self.second.low / self.first.high

    @property
    def high(self) -> float:
        return self.second.high / self.first.low

    @property
    def table(self) -> dict[str, Any]:
        """The comparison for JSON."""
        row = {"mode": self.row[0], "concurrency": self.row[1], "measure": self.figure_kind.name}
        ratio = {"ratio": self.ratio, "low": self.low, "high": self.high, "verdict": self.verdict}
        return {**row, **ratio, "one": self.first.to_table(), "two": self.second.to_table()}


def compare_records(first: Record, second: Record) -> tuple[Comparison, ...]:
    """Compare the figures that both have; raise a Problem if there are none."""
    comparisons = []
    for row in (row for row in first.rows if row in second.rows):
        first_spreads, second_spreads = first.compute_spreads(*row), second.compute_spreads(*row)
        runs = min(len(record.find_results(*row)) for record in (first, second))
        for figure_kind in FIGURE_KINDS:
            name = figure_kind.name
            if name in first_spreads and name in second_spreads and first_spreads[name].low > 0:
                pair = first_spreads[name], second_spreads[name]
                comparisons.append(
                    Comparison(row, figure_kind, *pair, _compute_verdict(figure_kind, *pair, runs))
                )
    if comparisons:
        return tuple(comparisons)
    raise Problem(
        "these two benches have nothing in common",
        cause=f"{first.id} measured {_list_rows(first)}; {second.id} measured {_list_rows(second)}",
        fix=f"medley bench --concurrency {','.join(map(str, first.load.concurrencies))}",
    )


def _list_rows(record: Record) -> str:
    return ", ".join(f"{mode} at {concurrency}" for mode, concurrency in record.rows) or "nothing"


def _compute_verdict(figure_kind: FigureKind, first: Spread, second: Spread, runs: int) -> Verdict:
    """Return `better` or `worse` only if the ranges of all runs do not overlap."""
    if runs < _MIN_RUNS:
        return "spread unknown"
    if second.low <= first.high and second.high >= first.low:
        return "within the spread"
    return "better" if (second.low > first.high) == figure_kind.is_higher_better else "worse"


def format_comparison(first: Record, second: Record, comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Yield the lines of the report: both records, what differs, and the ratios of each row."""
    yield f"first:   {first.id} ({first.when[:16].replace('T', ' ')})"
    yield f"second:  {second.id} ({second.when[:16].replace('T', ' ')})"
    yield ""
    for difference in list_differences(first, second) or ("nothing that is known",):
        yield f"differs: {difference}"
    if not has_same_load(first, second):
        yield "their loads differ, so their figures measure different things"
    for row in dict.fromkeys(comparison.row for comparison in comparisons):
        mode, concurrency = row
        yield ""
        yield f"{concurrency} concurrent" if mode == "served" else f"{mode}, {concurrency}"
        yield from (_format_line(comparison) for comparison in comparisons if comparison.row == row)


def _format_line(comparison: Comparison) -> str:
    values = f"{comparison.first.median:.4g} → {comparison.second.median:.4g}"
    ratio = f"{comparison.ratio:.2f} ({comparison.low:.2f}-{comparison.high:.2f})"
    return f"  {comparison.figure_kind.title:<22} {values:>17}  {ratio}  {comparison.verdict}"


def has_same_load(first: Record, second: Record) -> bool:
    """Return whether prompts and answers have the same lengths."""
    return all(
        getattr(first.load, name) == getattr(second.load, name) for name in ("input_tokens", "output_tokens")
    )


def list_differences(first: Record, second: Record) -> tuple[str, ...]:
    """Return what differs between two benchmarks as texts, most important first."""
    return tuple(
        f"{name}: {_format_value(first_value)} → {_format_value(second_value)}"
        for name, first_value, second_value in _compare_conditions(first, second)
        if first_value != second_value
    )


def _format_value(value: object) -> str:
    """Return the value of a flag or variable; a flag without a value is `on`."""
    if value is None:
        return "not set"
    return str(value) or "on"


def _compare_conditions(first: Record, second: Record) -> Iterator[Difference]:
    for name, title in _LOAD_TITLES.items():
        yield title, getattr(first.load, name), getattr(second.load, name)
    yield "model", first.model, second.model
    yield from _compare_engines(first.about["engine"], second.about["engine"])
    first_plan, second_plan = first.about["plan"] or {}, second.about["plan"] or {}
    yield "layout", first_plan.get("layout"), second_plan.get("layout")
    yield from _compare_tables(*(_parse_flags(plan.get("argv", ())) for plan in (first_plan, second_plan)))
    yield from _compare_tables(first_plan.get("env", {}), second_plan.get("env", {}))
    yield from _compare_hosts(first.about["hosts"], second.about["hosts"])
    yield from _compare_figures("clock of GPU", _read_clocks(first), _read_clocks(second), " MHz")
    yield from _compare_figures("measured", _read_measured_speeds(first), _read_measured_speeds(second))
    yield "medley", _format_medley(first), _format_medley(second)


def _format_medley(record: Record) -> str:
    return f"{record.about['medley']['version']} ({record.about['medley']['source']})"


def _compare_tables(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[Difference]:
    for name in sorted({*first, *second}):
        yield name, first.get(name), second.get(name)


def _compare_engines(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[Difference]:
    yield "engine", first["name"], second["name"]
    yield from _compare_tables(first["versions"], second["versions"])
    yield "environment", first["environment"], second["environment"]
    for name in ("lock", "digest", "python"):
        if first.get(name) != second.get(name):  # one is enough: a lock changes the digest, too
            yield name, _shorten_digest(first.get(name)), _shorten_digest(second.get(name))
            return


def _shorten_digest(value: object) -> object:
    return value[:12] if isinstance(value, str) and re.fullmatch("[0-9a-f]{13,}", value) else value


def _parse_flags(argv: Sequence[str]) -> dict[str, str]:
    """Return each flag with its values; the paths of program and weights do not count."""
    flags: dict[str, str] = {}
    name = None
    for argument in argv:
        if argument.startswith("-") and not argument[1:2].isdecimal():
            name, _, value = argument.partition("=")
            flags[name] = value
        elif name:
            flags[name] = f"{flags[name]} {argument}".strip()
    return {name: value for name, value in flags.items() if name not in _ADDRESS_FLAGS}


def _compare_hosts(
    first: Sequence[Mapping[str, str]], second: Sequence[Mapping[str, str]]
) -> Iterator[Difference]:
    yield "hosts", len(first), len(second)
    for number, (first_host, second_host) in enumerate(zip(first, second, strict=False), 1):
        name = f"host {number}" if len(first) > 1 else "host"
        # `same` is a digest of the host's name.
        if first_host["same"] != second_host["same"]:
            yield f"{name} is another one", "the first's", "the second's"
        first_traits, second_traits = _read_traits(first_host["facts"]), _read_traits(second_host["facts"])
        for trait in first_traits | second_traits:
            yield f"{name}, {trait}", first_traits.get(trait), second_traits.get(trait)


def _read_traits(text: str) -> dict[str, str | None]:
    """Return a host's constant facts on which speed may depend, by their titles."""
    try:
        host = facts.read_facts(transcript.parse_transcript(text))
    except Problem:
        return {}
    return {
        "CPU": f"{host.cpu.model or host.system}, {host.cpu.threads} threads",
        "memory": f"{host.memory.total_bytes / GIB:.0f} GiB",
        "GPUs": ", ".join(gpu.name for gpu in host.gpus) or None,
        "driver": host.driver.version,
        "system": host.software.os_name,
        "kernel": host.software.kernel,
    }


def _read_clocks(record: Record) -> dict[str, float]:
    """Return each GPU's median clock during the runs, in MHz."""
    clocks_mhz: dict[str, list[int]] = {}
    for line in (line for result in record.counted for line in result.clocks):
        if match := _CLOCK_PATTERN.match(line):
            clocks_mhz.setdefault(match[1], []).append(int(match[2]))
    return {gpu: median(values) for gpu, values in clocks_mhz.items()}


def _read_measured_speeds(record: Record) -> dict[str, float]:
    """Return the measured speeds of devices and links, by their names with units."""
    measured = record.about["measured"]
    devices = {f"{row['host']} {row['index']}, GB/s": row["gb_s"] for row in measured["speeds"]}
    links = {f"{row['one']} - {row['two']}, Mbit/s": row["mbit"] for row in measured["wires"]}
    return devices | links


def _compare_figures(
    title: str, first: Mapping[str, float], second: Mapping[str, float], unit: str = ""
) -> Iterator[Difference]:
    for name, first_value, second_value in _compare_tables(first, second):
        if first_value and second_value and abs(second_value / first_value - 1) < _MIN_DIFFERENCE:
            continue
        texts = [None if value is None else f"{value:.4g}{unit}" for value in (first_value, second_value)]
        yield f"{title} {name}", texts[0], texts[1]
