"""A load is what a benchmark asks of a server: how much at once, how long, and how often anew."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from medley.problem import Problem

_LEAST_REQUESTS = 8
_WAVES = 4
"""Requests for each stream, where nobody says: fewer, and the first and last waves are most of it."""
_MOST_AT_ONCE = 4096


@dataclass(frozen=True)
class Run:
    """One start of the engine's benchmark."""

    concurrency: int
    requests: int
    input_tokens: int
    output_tokens: int
    seed: int
    repeat: int
    """From 1; 0 is the one that warms up, and is not counted."""

    def __str__(self) -> str:
        what = "warm-up" if self.repeat == 0 else f"repeat {self.repeat}"
        return f"{what}, {self.concurrency} at once, {self.requests} requests"


@dataclass(frozen=True)
class Load:
    concurrencies: tuple[int, ...] = (1, 4, 16)
    repeats: int = 3
    input_tokens: int = 512
    output_tokens: int = 128
    seed: int = 0
    """Of the first run; each has its own, for a prompt that a server has read before it need not read."""
    requests: int | None = None
    """In each run; None: a few for each stream."""

    @property
    def tokens(self) -> int:
        """Of one request in all."""
        return self.input_tokens + self.output_tokens

    def runs(self) -> Iterator[Run]:
        """All concurrencies, then all again, so that what drifts meanwhile meets each of them alike."""
        seeds = count(self.seed)
        yield self._run(max(self.concurrencies), max(self.concurrencies), next(seeds), 0)
        for repeat in range(1, self.repeats + 1):
            for concurrency in self.concurrencies:
                yield self._run(concurrency, self._requests(concurrency), next(seeds), repeat)

    def batches(self) -> Iterator[Run]:
        """Without a server: each batch as often as there are repeats, in one start of the engine."""
        for concurrency in self.concurrencies:
            yield self._run(concurrency, self.repeats, self.seed, 1)

    def heaps(self) -> Iterator[Run]:
        """Without a server: all requests at once; each time the engine starts anew."""
        many = max(self.concurrencies)
        for repeat in range(1, self.repeats + 1):
            yield self._run(many, self._requests(many), self.seed + repeat, repeat)

    def _run(self, concurrency: int, requests: int, seed: int, repeat: int) -> Run:
        return Run(concurrency, requests, self.input_tokens, self.output_tokens, seed, repeat)

    def _requests(self, concurrency: int) -> int:
        return self.requests or max(_LEAST_REQUESTS, _WAVES * concurrency)


def concurrencies(words: str) -> tuple[int, ...]:
    """`1,4,16` as numbers, the fewest first; a Problem where one is none."""
    try:
        found = tuple(sorted({int(word) for word in words.split(",")}))
    except ValueError:
        found = ()
    if not found or found[0] < 1 or found[-1] > _MOST_AT_ONCE:
        raise Problem(
            f"--concurrency {words} cannot be",
            cause=f"it is a list of numbers from 1 to {_MOST_AT_ONCE}, of streams at once",
            fix="--concurrency 1,4,16",
        )
    return found
