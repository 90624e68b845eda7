"""Remedies are what would have to change for a layout that does not fit."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from medley.layout.fit import fit, gib, largest
from medley.layout.shapes import Layout, Stage
from medley.layout.split import recut
from medley.layout.width import BYTES
from medley.problem import Problem
from medley.tables import Shape

_MOST_HOSTS = 64
# What models are published in, where their makers offer less than 16 bits.
_VARIANTS = ("fp8", "nvfp4")


@dataclass(frozen=True)
class Variant:
    weights: str
    size_bytes: int
    fits: bool


@dataclass(frozen=True)
class Remedies:
    context: int
    """The largest that fits at the concurrency asked for; 0 where none does."""
    concurrency: int
    """The same of sequences at the context asked for."""
    variants: tuple[Variant, ...]
    """The model in fewer bits, its embedding and head as they are."""
    hosts: int | None
    """So many like the largest would hold it, in a pipeline; None where that many are not to be had."""
    host: str

    def __iter__(self) -> Iterator[str]:
        """In words."""
        if self.context:
            yield f"a context of {self.context} tokens fits"
        if self.concurrency:
            yield f"{self.concurrency} sequences at once fit"
        for each in self.variants:
            does = "fits" if each.fits else "does not fit either"
            yield f"in {each.weights} it would have about {gib(each.size_bytes)} GiB, which {does}"
        if self.hosts:
            yield f"{self.hosts} hosts like {self.host} would hold it, as a pipeline"


class NoLayout(Problem):
    """With what would have to change; None where nothing could even be cut as asked."""

    def __init__(self, what: str, *, cause: str, fix: str, remedies: Remedies | None = None) -> None:
        super().__init__(what, cause=cause, fix=fix)
        self.remedies = remedies


def remedies(shape: Shape, layout: Layout, context: int, concurrency: int) -> Remedies:
    found = fit(shape, layout, context, concurrency)
    largest_device = max(found.ranks, key=lambda rank: (rank.device.memory_bytes, rank.device.host)).device
    return Remedies(
        context=found.context,
        concurrency=found.concurrency,
        variants=tuple(_variants(shape, layout, context, concurrency)),
        hosts=_hosts(shape, layout, context, concurrency),
        host=largest_device.host,
    )


def _variants(shape: Shape, layout: Layout, context: int, concurrency: int) -> Iterator[Variant]:
    for weights in _VARIANTS:
        ratio = BYTES[weights] / BYTES[shape.weights]
        if ratio >= 1:
            continue
        scaled = {
            name: round(getattr(shape, name) * ratio)
            for name in ("layer_bytes", "active_layer_bytes", "expert_bytes")
        }
        smaller = shape.model_copy(update=scaled | {"weights": weights})
        again = recut(smaller, layout, context=context, concurrency=concurrency)
        yield Variant(weights, total_bytes(smaller), fit(smaller, again, context, concurrency).fits)


def _hosts(shape: Shape, layout: Layout, context: int, concurrency: int) -> int | None:
    """The fewest hosts like the largest that hold it, one stage each."""
    ranks = fit(shape, layout, context, concurrency).ranks
    device = max(ranks, key=lambda rank: (rank.device.memory_bytes, rank.device.host)).device

    def holds(count: int) -> bool:
        devices = [(replace(device, host=f"{nth}"),) for nth in range(count)]
        stages = tuple(Stage(each, 1) for each in devices)
        cloned = recut(shape, Layout(stages), context=context, concurrency=concurrency)
        return fit(shape, cloned, context, concurrency).fits

    most = min(_MOST_HOSTS, shape.layers)
    fewest = largest(most, lambda count: not holds(count)) + 1
    return fewest if fewest <= most else None


def total_bytes(shape: Shape) -> int:
    """Of all weights, once."""
    return shape.layers * shape.layer_bytes + shape.embedding_bytes + shape.head_bytes
