"""Figures are what one run of an engine's benchmark measured; a spread is what several runs say together."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from statistics import median
from typing import Any

from medley import shaped
from medley.bench.load import Run


@dataclass(frozen=True)
class Figures:
    """None is what this engine's benchmark does not say in this mode."""

    duration_s: float
    completed: int
    failed: int
    output_tokens_per_s: float | None = None
    total_tokens_per_s: float | None = None
    """With those of the prompts."""
    ttft_ms: float | None = None
    """To the first token: the median of the requests, as below."""
    ttft_p99_ms: float | None = None
    tpot_ms: float | None = None
    """For each token after the first."""
    tpot_p99_ms: float | None = None
    latency_ms: float | None = None
    """Of a whole answer, or of a whole batch offline."""


@dataclass(frozen=True)
class Measure:
    """One of them, as people read it."""

    name: str
    title: str
    unit: str
    more_is_better: bool


MEASURES = (
    Measure("output_tokens_per_s", "output", "tokens/s", more_is_better=True),
    Measure("total_tokens_per_s", "total", "tokens/s", more_is_better=True),
    Measure("ttft_ms", "first token", "ms", more_is_better=False),
    Measure("ttft_p99_ms", "first token, p99", "ms", more_is_better=False),
    Measure("tpot_ms", "each token", "ms", more_is_better=False),
    Measure("tpot_p99_ms", "each token, p99", "ms", more_is_better=False),
    Measure("latency_ms", "latency", "ms", more_is_better=False),
)


@dataclass(frozen=True)
class Spread:
    """The median of some runs, and the lowest and the highest."""

    median: float
    low: float
    high: float

    @property
    def half(self) -> float:
        """How far a run lies from the median at most, as a part of it."""
        return max(self.high - self.median, self.median - self.low) / self.median if self.median else 0.0


def spread(values: Iterable[float | None]) -> Spread | None:
    """None where nothing was measured."""
    found = [value for value in values if value is not None]
    return Spread(median(found), min(found), max(found)) if found else None


def spreads(runs: Iterable[Figures]) -> dict[str, Spread]:
    """Of each measure that was measured, by its name."""
    known = tuple(runs)
    found = {each.name: spread(getattr(run, each.name) for run in known) for each in MEASURES}
    return {name: each for name, each in found.items() if each}


def of_batch(requests: int, seconds: float, run: Run) -> Figures:
    """Of requests that were answered together, each in full."""
    rate = requests * run.output_tokens / seconds
    return Figures(
        duration_s=seconds,
        completed=requests,
        failed=0,
        output_tokens_per_s=rate,
        total_tokens_per_s=rate * (run.input_tokens + run.output_tokens) / run.output_tokens,
        latency_ms=seconds * 1000,
    )


def of_table(table: Mapping[str, Any]) -> Figures:
    """As a record has them."""
    known: dict[str, Any] = {each.name: table.get(each.name) for each in fields(Figures)}
    return Figures(**known)


def raw(text: str) -> dict[str, Any]:
    """An engine's result file less its lists and tables: one of SGLang's is its configuration, with its key.

    SGLang adds a line to the file, so the last counts. Infinity, which both write, is no JSON.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    table = _parsed(text) or _parsed(lines[-1] if lines else "") or {}
    return {name: value for name, value in table.items() if _plain(value)}


def _parsed(text: str) -> dict[str, Any] | None:
    return shaped.table(text)


def _plain(value: object) -> bool:
    return isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
