"""A choice is the layout that serves a goal best among those that fit, and why not the others."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal, Protocol, TypeVar

from medley.layout.candidates import Asked, Candidates, Ruled, Sizes, candidates
from medley.layout.engine_memory import SNUG_BYTES, is_unified
from medley.layout.fit import Fit, Rank, fit, gib
from medley.layout.forced import forced, warnings, words
from medley.layout.shapes import Device, Layout
from medley.layout.split import Timed
from medley.layout.too_large import too_large
from medley.layout.wires import LinkOf
from medley.layout.words import devices as ranks_of
from medley.layout.words import hosts, named
from medley.layout.words import sizes as sizes_of
from medley.problem import Problem
from medley.tables import Shape

Goal = Literal["latency", "throughput", "context"]
CONTEXT = 8192
"""Tokens that must fit where nobody says how many."""
_AS_GOOD = 0.95
"""Predictions that are nearer than this are equal: their own error is larger."""


class Load(Protocol):
    @property
    def concurrency(self) -> int: ...


class Prediction(Protocol):
    @property
    def tokens_per_s(self) -> float: ...
    @property
    def per_stream(self) -> float: ...
    @property
    def ttft_s(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    @property
    def bound(self) -> str: ...
    @property
    def fitted(self) -> bool: ...


L = TypeVar("L", bound=Load)
P = TypeVar("P", bound=Prediction)


UNFITTED = "no speed is predicted: none of the measurements that predictions are fitted to is of a CPU"


def predicted(told: Prediction) -> tuple[str, ...]:
    """A plan's speed in words: how fast, and what bounds it."""
    if not told.fitted:
        return (UNFITTED,)
    rate = f"predicted: {told.tokens_per_s:.1f} tokens/s ({told.low:.1f} to {told.high:.1f})"
    return (
        f"{rate}, {told.per_stream:.1f} for each stream, first token after {told.ttft_s:.2f} s",
        f"bound by: {told.bound}",
    )


@dataclass(frozen=True)
class Rejected:
    what: str
    because: str
    """With the arithmetic."""
    layout: Layout | None = None
    """None where it could not even be cut so."""


@dataclass(frozen=True)
class Choice(Generic[P]):
    layout: Layout
    fit: Fit
    prediction: P
    why: tuple[str, ...]
    rejected: tuple[Rejected, ...]
    warnings: tuple[str, ...] = ()
    """Of what was forced: what is unwise about it, and its price."""


@dataclass(frozen=True)
class _Tried(Generic[P]):
    layout: Layout
    fit: Fit
    prediction: P
    score: float
    """Tokens per second, as the goal counts them."""


def choose(
    shape: Shape,
    devices: Iterable[Device],
    link_of: LinkOf,
    *,
    goal: Goal,
    load: L,
    predict: Callable[[Shape, Layout, L], P],
    timed: Timed,
    context: int | None = None,
    sizes: Sizes | None = None,
    head: str | None = None,
    only: Callable[[Layout], str | None] = lambda _: None,
) -> Choice[P]:
    """The layout for this goal and load; a Problem with the numbers where none fits.

    `head`: the host where the engine starts. `timed`: what layers are cut by; `predict` should agree with it.
    `only` says why a layout is not what was asked for.
    """
    wanted = context or min(shape.context, CONTEXT)
    by: Literal["speed", "memory"] = "memory" if goal == "context" else "speed"
    asked = Asked(wanted, load.concurrency, by, head, sizes or Sizes(), timed)
    every = sorted(devices, key=lambda device: (device.host, device.index))

    def best(asked: Asked) -> Choice[P]:
        found = (candidates if asked.sizes == Sizes() else forced)(shape, every, link_of, asked)
        return _best(shape, _meant(found, only), asked, goal, lambda each: predict(shape, each, load))

    chosen = best(asked)
    if asked.sizes == Sizes():
        return chosen
    try:
        free = best(replace(asked, sizes=Sizes()))
    except Problem:
        return replace(chosen, warnings=warnings(chosen.layout))
    return _priced(chosen, free, goal, asked.sizes)


def _meant(found: Candidates, only: Callable[[Layout], str | None]) -> Candidates:
    refused = [(each, only(each)) for each in found.layouts]
    return Candidates(
        tuple(each for each, because in refused if because is None),
        (*found.ruled, *(Ruled(named(each), because) for each, because in refused if because)),
    )


def _best(
    shape: Shape, found: Candidates, asked: Asked, goal: Goal, predict: Callable[[Layout], P]
) -> Choice[P]:
    tried = [(each, fit(shape, each, asked.context, asked.concurrency)) for each in found.layouts]
    tight = [(each, fitted) for each, fitted in tried if not fitted.fits]
    able = [
        _Tried(each, fitted, told := predict(each), score(goal, told))
        for each, fitted in tried
        if fitted.fits
    ]
    if not able:
        raise too_large(shape, tight, found.ruled, asked)
    first = _first(able, goal)
    others = sorted((each for each in able if each is not first), key=lambda each: -each.score)
    rejected = (
        *(Rejected(named(one.layout), _worse(one, first, goal), one.layout) for one in others),
        *(
            Rejected(named(each), f"does not fit: {fitted.worst}", each)
            for each, fitted in sorted(tight, key=lambda one: one[1].short_bytes)
        ),
        *(Rejected(ruled.what, ruled.because) for ruled in found.ruled),
    )
    counts = (len(able), len(tight), len(found.ruled))
    why = tuple(_why(first, others, goal, asked, counts))
    return Choice(first.layout, first.fit, first.prediction, why, rejected)


def score(goal: Goal, told: Prediction) -> float:
    """Tokens a second, as the goal counts them."""
    return told.tokens_per_s if goal == "throughput" else told.per_stream


def _first(able: Sequence[_Tried[P]], goal: Goal) -> _Tried[P]:
    """The best; of those about as good one that leaves shared memory free, and of these the plainest: the
    fewest hosts, then ranks, then ranks of an engine.

    Of several cuts of that one the roomiest: one that fills a stage to gain a hundredth is not worth it.
    """
    if goal == "context":
        longest = max(each.fit.context for each in able)
        able = [each for each in able if each.fit.context == longest]
    enough = _AS_GOOD * max(each.score for each in able)
    good = [each for each in able if each.score >= enough]
    plainest = min(good, key=lambda each: (_snug(each), _plainest(each)))
    cuts = [each for each in good if _uncut(each.layout) == _uncut(plainest.layout)]
    return min(cuts, key=lambda each: (_snug(each), -each.fit.concurrency, _plainest(each)))


def _snug(one: _Tried[P]) -> bool:
    """Whether a rank in memory that the system shares has less left than an estimate may err by."""
    return any(rank.free_bytes < SNUG_BYTES for rank in _shared(one))


def _shared(one: _Tried[P]) -> list[Rank]:
    """Its ranks in memory that the system shares."""
    return [rank for rank in one.fit.ranks if is_unified(rank.device.kind)]


def _uncut(layout: Layout) -> tuple[frozenset[Device], tuple[int, int, int], bool]:
    """All of it but which stage has which layers."""
    return frozenset(ranks_of(layout)), sizes_of(layout), layout.expert_parallel


def _plainest(one: _Tried[P]) -> tuple[int, int, int, bool, float, tuple[tuple[str, int], ...], str]:
    ranks = ranks_of(one.layout)
    places = tuple((device.host, device.index) for device in ranks)
    return (
        len(hosts(one.layout)),
        len(ranks),
        len(ranks) // (1 + len(one.layout.replicas)),
        one.layout.expert_parallel,
        -one.score,
        places,
        named(one.layout),
    )


def _why(
    first: _Tried[P], others: Sequence[_Tried[P]], goal: Goal, asked: Asked, counts: tuple[int, int, int]
) -> Iterator[str]:
    able, tight, ruled = counts
    best = "the only layout that fits" if able == 1 else f"best for {goal} of {able} layouts that fit"
    rest = (*([f"{tight} do not fit"] if tight else []), *([f"{ruled} are ruled out"] if ruled else []))
    yield f"{named(first.layout)}: {'; '.join((best, *rest))}"
    if others:
        yield f"next: {named(others[0].layout)}: {_worse(others[0], first, goal)}"
    yield from figures(first.fit, first.prediction, asked.context, asked.concurrency)


def figures(fitted: Fit, told: Prediction, context: int, concurrency: int) -> tuple[str, ...]:
    """What a plan's reasons say of speed and memory."""
    rate = f"{told.tokens_per_s:.1f} tokens/s ({told.low:.1f} to {told.high:.1f}) at {concurrency} at once"
    longest = f"up to {fitted.context} tokens at {concurrency} at once"
    return (
        f"predicted {rate}, {told.per_stream:.1f} for each; bound by {told.bound}"
        if told.fitted
        else UNFITTED,
        f"tightest: {fitted.worst}",
        f"{longest}, up to {fitted.concurrency} at once of {context} tokens",
    )


def _worse(one: _Tried[P], first: _Tried[P], goal: Goal) -> str:
    if goal == "context" and one.fit.context < first.fit.context:
        return f"holds {one.fit.context} tokens, the chosen {first.fit.context}"
    what = "tokens/s" if goal == "throughput" else "tokens/s for one stream"
    numbers = (
        f"{one.score:.1f} {what}, the chosen {first.score:.1f}"
        if first.prediction.fitted
        else "estimated from memory bandwidth"
    )
    if one.score < _AS_GOOD * first.score:
        return f"{numbers} ({one.score / first.score - 1:+.0%})"
    used, chosen = (
        f"{_counted(len(hosts(each.layout)), 'host')} and {_counted(len(ranks_of(each.layout)), 'rank')}"
        for each in (one, first)
    )
    room, roomier = one.fit.concurrency, first.fit.concurrency
    if room < roomier and _uncut(one.layout) == _uncut(first.layout):
        return f"{numbers}: about as fast, holds {room} at once, the chosen {roomier}"
    if _snug(one) and not _snug(first):
        left = min(rank.free_bytes for rank in _shared(one))
        return f"{numbers}: about as fast, and leaves {gib(left)} GiB of the memory that a system shares"
    plainer = "the simpler one is taken" if used == chosen else f"with {used} instead of {chosen}"
    return f"{numbers}: about as fast, {plainer}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _priced(chosen: Choice[P], free: Choice[P], goal: Goal, sizes: Sizes) -> Choice[P]:
    told = warnings(chosen.layout)
    if chosen.layout != free.layout:
        mine, theirs = score(goal, chosen.prediction), score(goal, free.prediction)
        price = f"{mine:.1f} tokens/s predicted, {theirs:.1f} without it ({mine / theirs - 1:+.0%})"
        told = (*told, f"{words(sizes)}, as asked: {price}: {named(free.layout)}")
    return replace(chosen, warnings=told)
