"""Define the load of a benchmark: its runs, with their requests and concurrent streams."""

from collections.abc import Iterator
from itertools import count

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
