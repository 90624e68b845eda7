"""Define the load of a benchmark, its figures and their spread."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from statistics import median
from typing import Any

from medley import json_shape
from medley.errors import Problem
from medley.values import Value

_MIN_REQUESTS = 8
_REQUESTS_PER_STREAM = 4
"""The default number; with fewer the first and the last requests of all streams outweigh the rest."""
_MAX_STREAMS = 4096


class BenchRun(Value):
    """One run of an engine's benchmark: its streams, requests and tokens per request."""

    concurrency: int
    requests: int
    input_tokens: int
    output_tokens: int
    seed: int
    repeat: int
    """The number of the repeat from 1; 0 is the warm-up, which does not count."""

    def __str__(self) -> str:
        title = "warm-up" if self.repeat == 0 else f"repeat {self.repeat}"
        return f"{title}, {self.concurrency} concurrent streams, {self.requests} requests"


class BenchLoad(Value):
    """The load of a whole benchmark: runs with each number of concurrent streams, repeated."""

    concurrencies: tuple[int, ...] = (1, 4, 16)
    repeats: int = 3
    input_tokens: int = 512
    output_tokens: int = 128
    seed: int = 0
    """The seed of the first run; each run has another one, so that no prompt is in a prefix cache."""
    requests: int | None = None
    """The number in each run; None: 4 for each stream, at least 8."""

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def list_runs(self) -> Iterator[BenchRun]:
        """Yield a warm-up, then each repeat of all concurrencies, so that drift affects all alike."""
        seeds = count(self.seed)
        yield self._build_run(max(self.concurrencies), max(self.concurrencies), next(seeds), 0)
        for repeat in range(1, self.repeats + 1):
            for concurrency in self.concurrencies:
                yield self._build_run(concurrency, self._count_requests(concurrency), next(seeds), repeat)

    def list_latency_runs(self) -> Iterator[BenchRun]:
        """Yield a run for each batch size; one start of the engine repeats the batch."""
        for concurrency in self.concurrencies:
            yield self._build_run(concurrency, self.repeats, self.seed, 1)

    def list_throughput_runs(self) -> Iterator[BenchRun]:
        """Yield a run of all requests together for each repeat; each starts the engine again."""
        concurrency = max(self.concurrencies)
        for repeat in range(1, self.repeats + 1):
            requests = self._count_requests(concurrency)
            yield self._build_run(concurrency, requests, self.seed + repeat, repeat)

    def _build_run(self, concurrency: int, requests: int, seed: int, repeat: int) -> BenchRun:
        return BenchRun(concurrency, requests, self.input_tokens, self.output_tokens, seed, repeat)

    def _count_requests(self, concurrency: int) -> int:
        return self.requests or max(_MIN_REQUESTS, _REQUESTS_PER_STREAM * concurrency)


def parse_concurrencies(text: str) -> tuple[int, ...]:
    """Return the numbers of `1,4,16`, ascending; raise a Problem if one is not from 1 to 4096."""
    try:
        numbers = tuple(sorted({int(number) for number in text.split(",")}))
    except ValueError:
        numbers = ()
    if not numbers or numbers[0] < 1 or numbers[-1] > _MAX_STREAMS:
        raise Problem(
            f"--concurrency {text} cannot be",
            cause=f"it is a list of numbers of concurrent streams, each from 1 to {_MAX_STREAMS}",
            fix="--concurrency 1,4,16",
        )
    return numbers


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


@dataclass(frozen=True)
class FigureKind:
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


@dataclass(frozen=True)
class Spread:
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
