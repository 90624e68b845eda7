"""Define the figures of a benchmark's run, and compute the spread of several runs."""

import math
from collections.abc import Iterable
from statistics import median
from typing import Any

from medley import json_shape
from medley.measurement.bench.load import BenchRun
from medley.values import Value


class Figures(Value):
    """The figures of one run; None for what this engine's benchmark does not report in this mode."""

    duration_s: float
    completed: int
    failed: int
    output_tokens_per_s: float | None = None
    total_tokens_per_s: float | None = None
    """The rate with the tokens of the prompts."""
    ttft_ms: float | None = None
    """The time to the first token: the median of the requests, as for the times below."""
    ttft_p99_ms: float | None = None
    tpot_ms: float | None = None
    """The time of each token after the first."""
    tpot_p99_ms: float | None = None
    latency_ms: float | None = None
    """The time of a whole answer, or offline of a whole batch."""


class FigureKind(Value):
    """A figure that reports show and compare."""

    name: str
    title: str
    """Its title with the unit."""
    is_higher_better: bool = False


FIGURE_KINDS = (
    FigureKind("output_tokens_per_s", "output, tokens/s", is_higher_better=True),
    FigureKind("total_tokens_per_s", "total, tokens/s", is_higher_better=True),
    FigureKind("ttft_ms", "first token, ms"),
    FigureKind("ttft_p99_ms", "first token, p99, ms"),
    FigureKind("tpot_ms", "each token, ms"),
    FigureKind("tpot_p99_ms", "each token, p99, ms"),
    FigureKind("latency_ms", "latency, ms"),
)


class Spread(Value):
    """The median of several runs, with the lowest and the highest value."""

    median: float
    low: float
    high: float

    @property
    def relative_half_range(self) -> float:
        """The largest distance from the median, relative to it."""
        return max(self.high - self.median, self.median - self.low) / self.median if self.median else 0.0


def compute_spreads(runs: Iterable[Figures]) -> dict[str, Spread]:
    """Return the spread of each figure, by the name of its FigureKind; absent if no run has the figure."""
    figures = tuple(runs)
    spreads = {}
    for kind in FIGURE_KINDS:
        values = [value for run in figures if (value := getattr(run, kind.name)) is not None]
        if values:
            spreads[kind.name] = Spread(median(values), min(values), max(values))
    return spreads


def compute_batch_figures(requests: int, seconds: float, run: BenchRun) -> Figures:
    """Compute the figures of requests that the engine answered as one batch."""
    rate = requests * run.output_tokens / seconds
    return Figures(
        duration_s=seconds,
        completed=requests,
        failed=0,
        output_tokens_per_s=rate,
        total_tokens_per_s=rate * (run.input_tokens + run.output_tokens) / run.output_tokens,
        latency_ms=seconds * 1000,
    )


def read_result(text: str) -> dict[str, Any]:
    """Read an engine's result, the last line of a file; drop lists and tables, which may hold its key."""
    lines = [line for line in text.splitlines() if line.strip()]
    table = json_shape.parse_object(text) or json_shape.parse_object(lines[-1] if lines else "") or {}
    # Both engines write Infinity, which is not JSON.
    return {
        name: value
        for name, value in table.items()
        if isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
    }
