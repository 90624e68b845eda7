"""Load of a benchmark, its figures and their spread."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from statistics import median
from typing import Any

from medley import json_shape
from medley.errors import Problem

_LEAST_REQUESTS = 8
_WAVES = 4
"""Requests for each stream, where nobody says: fewer, and the first and last waves are most of it."""
_MOST_STREAMS = 4096


@dataclass(frozen=True)
class BenchRun:
    concurrency: int
    requests: int
    input_tokens: int
    output_tokens: int
    seed: int
    repeat: int
    """From 1; 0 is the warm-up, which is not counted."""

    def __str__(self) -> str:
        what = "warm-up" if self.repeat == 0 else f"repeat {self.repeat}"
        return f"{what}, {self.concurrency} concurrent streams, {self.requests} requests"


@dataclass(frozen=True)
class BenchLoad:
    concurrencies: tuple[int, ...] = (1, 4, 16)
    repeats: int = 3
    input_tokens: int = 512
    output_tokens: int = 128
    seed: int = 0
    """Of the first run; each run has another, so that no prompt is in a server's prefix cache."""
    requests: int | None = None
    """In each run; None: a few for each stream."""

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def runs(self) -> Iterator[BenchRun]:
        """Repeat all concurrencies in turn, so that drift affects each alike."""
        seeds = count(self.seed)
        yield self._run(max(self.concurrencies), max(self.concurrencies), next(seeds), 0)
        for repeat in range(1, self.repeats + 1):
            for concurrency in self.concurrencies:
                yield self._run(concurrency, self._requests(concurrency), next(seeds), repeat)

    def offline_latency_runs(self) -> Iterator[BenchRun]:
        """Each batch as often as there are repeats, in one start of the engine."""
        for concurrency in self.concurrencies:
            yield self._run(concurrency, self.repeats, self.seed, 1)

    def offline_throughput_runs(self) -> Iterator[BenchRun]:
        """All requests at once; the engine starts again for each repeat."""
        many = max(self.concurrencies)
        for repeat in range(1, self.repeats + 1):
            yield self._run(many, self._requests(many), self.seed + repeat, repeat)

    def _run(self, concurrency: int, requests: int, seed: int, repeat: int) -> BenchRun:
        return BenchRun(concurrency, requests, self.input_tokens, self.output_tokens, seed, repeat)

    def _requests(self, concurrency: int) -> int:
        return self.requests or max(_LEAST_REQUESTS, _WAVES * concurrency)


def concurrencies(words: str) -> tuple[int, ...]:
    """`1,4,16` as numbers, the fewest first; a Problem where one is none."""
    try:
        found = tuple(sorted({int(word) for word in words.split(",")}))
    except ValueError:
        found = ()
    if not found or found[0] < 1 or found[-1] > _MOST_STREAMS:
        raise Problem(
            f"--concurrency {words} cannot be",
            cause=f"it is a list of numbers of concurrent streams, each from 1 to {_MOST_STREAMS}",
            fix="--concurrency 1,4,16",
        )
    return found


@dataclass(frozen=True)
class Figures:
    """None is what this engine's benchmark does not report in this mode."""

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
    name: str
    title: str
    """With its unit."""
    more_is_better: bool = False


MEASURES = (
    Measure("output_tokens_per_s", "output, tokens/s", more_is_better=True),
    Measure("total_tokens_per_s", "total, tokens/s", more_is_better=True),
    Measure("ttft_ms", "first token, ms"),
    Measure("ttft_p99_ms", "first token, p99, ms"),
    Measure("tpot_ms", "each token, ms"),
    Measure("tpot_p99_ms", "each token, p99, ms"),
    Measure("latency_ms", "latency, ms"),
)


@dataclass(frozen=True)
class Spread:
    median: float
    low: float
    high: float

    @property
    def half(self) -> float:
        """Largest distance from the median, relative to it."""
        return max(self.high - self.median, self.median - self.low) / self.median if self.median else 0.0


def spreads(runs: Iterable[Figures]) -> dict[str, Spread]:
    known = tuple(runs)
    values = {
        each.name: [value for run in known if (value := getattr(run, each.name)) is not None]
        for each in MEASURES
    }
    return {name: Spread(median(each), min(each), max(each)) for name, each in values.items() if each}


def batch_figures(requests: int, seconds: float, run: BenchRun) -> Figures:
    """Compute the figures of requests that were answered together."""
    rate = requests * run.output_tokens / seconds
    return Figures(
        duration_s=seconds,
        completed=requests,
        failed=0,
        output_tokens_per_s=rate,
        total_tokens_per_s=rate * (run.input_tokens + run.output_tokens) / run.output_tokens,
        latency_ms=seconds * 1000,
    )


def result_table(text: str) -> dict[str, Any]:
    """Read an engine's result, the last line of a file; drop lists and tables, which may hold its key."""
    lines = [line for line in text.splitlines() if line.strip()]
    table = json_shape.table(text) or json_shape.table(lines[-1] if lines else "") or {}
    # Both engines write Infinity, which is not JSON.
    return {
        name: value
        for name, value in table.items()
        if isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
    }
