"""Best layout for a goal; why not the others."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from medley.network.fabric.cabling import Cabling
from medley.planner import Device, Goal, Layout, Load, fast, hosts_of, named, pipelines, speed_and_transport
from medley.planner import devices_of as ranks_of
from medley.planner import sizes as sizes_of
from medley.planner.candidates import FREE, Evaluated, Evaluation, Rejected, Request, candidates
from medley.planner.fit import Fit, fit, gib
from medley.planner.kinds import is_unified
from medley.planner.memory import SNUG_BYTES
from medley.planner.partition import Workload
from medley.planner.prediction import Prediction
from medley.planner.remedies import impossible, too_large
from medley.schema import Shape

CONTEXT = 8192
"""Tokens that must fit where nobody says how many."""
UNFITTED = "no speed is predicted on a CPU: predictions are fitted to measurements of GPUs only"
_AS_GOOD = 0.95
"""Predictions that are nearer than this are equal: their own error is larger."""


@dataclass(frozen=True)
class Choice:
    work: Workload
    """For which it was made."""
    layout: Layout
    fit: Fit
    prediction: Prediction
    why: tuple[str, ...]
    rejected: tuple[Rejected, ...]
    warnings: tuple[str, ...] = ()
    """What is unwise about the sizes that were forced, and their price."""
    tight: bool = False
    """Whether it takes more of shared memory than is safe, or needs an estimate to be too high."""
    cabling: Cabling = field(default_factory=Cabling)
    """Of the hosts of this layout."""


def choose(request: Request, predict: Callable[[Shape, Layout, Load], Prediction]) -> Choice:
    """Return the layout for this work; raise a Problem with the numbers where none fits.

    `predict` should agree with what layers are cut by.
    """
    work, found = request.work, candidates(request)
    free = found if request.sizes == FREE else candidates(replace(request, sizes=FREE))
    refused = {each: request.refusal(each) for each in dict.fromkeys((*found.layouts, *free.layouts))}
    usual = frozenset(free.layouts)
    rows = []
    for layout, because in refused.items():
        if because is None:
            told = predict(work.shape, layout, work.load)
            rows.append(Evaluated(layout, fit(work, layout), told, score(work.goal, told), layout in usual))
    refusals = (Rejected(named(each), because) for each in found.layouts if (because := refused[each]))
    table = Evaluation(request, tuple(rows), (*found.ruled, *refusals))
    if request.sizes != FREE and not found.layouts:
        raise impossible(table)
    return _chosen(table)


def score(goal: Goal, told: Prediction) -> float:
    """Tokens a second, as the goal counts them."""
    return told.tokens_per_s if goal == "throughput" else told.per_stream


def _chosen(table: Evaluation) -> Choice:
    work, sizes, goal = table.request.work, table.request.sizes, table.request.work.goal
    able = table.fitting(sizes)
    tight = [row for row in table.rows if not row.fit.fits and sizes.allow(*sizes_of(row.layout))]
    if not able:
        raise too_large(table, tight)
    first = _first(able, goal)
    others = sorted((row for row in able if row is not first), key=lambda row: -row.score)
    rejected = (
        *(_slower(row, first, goal) for row in others),
        *(
            Rejected(named(row.layout), f"does not fit: {row.fit.worst}")
            for row in sorted(tight, key=lambda row: row.fit.short_bytes)
        ),
        *table.ruled,
    )
    summary = [
        _only(first, table) if len(able) == 1 else f"best for {goal} of {len(able)} layouts that fit",
        *([f"{len(tight)} {'does' if len(tight) == 1 else 'do'} not fit"] if tight else []),
        *(
            [f"{len(table.ruled)} {'is' if len(table.ruled) == 1 else 'are'} ruled out"]
            if table.ruled
            else []
        ),
    ]
    why = (
        f"{named(first.layout)}: {'; '.join(summary)}",
        *(f"next: {each.what}: {each.because}" for each in rejected[: min(1, len(others))]),
        *figures(work, first.fit, first.prediction),
    )
    warnings = () if sizes == FREE else tuple(_warnings(table, first))
    return Choice(work, first.layout, first.fit, first.prediction, why, rejected, warnings)


def _only(first: Evaluated, table: Evaluation) -> str:
    """Say why there is nothing to choose: one device, sizes that the user asked for, or memory."""
    if len(table.request.devices) == 1:
        (rank,) = first.fit.ranks
        return f"it fits: {gib(rank.total_bytes)} of {gib(rank.device.memory_bytes)} GiB"
    sizes = table.request.sizes
    return "the only layout that fits" if sizes == FREE else f"the only layout that fits with {sizes}"


def _first(able: Sequence[Evaluated], goal: Goal) -> Evaluated:
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
    cuts = [each for each in good if _arrangement(each.layout) == _arrangement(plainest.layout)]
    return min(cuts, key=lambda each: (_snug(each), -each.fit.concurrency, _plainest(each)))


def _plainest(one: Evaluated) -> tuple[int, int, int, bool, float, tuple[tuple[str, int], ...], str]:
    ranks = ranks_of(one.layout)
    return (
        len(hosts_of(one.layout)),
        len(ranks),
        len(ranks) // (1 + len(one.layout.replicas)),
        one.layout.expert_parallel,
        -one.score,
        tuple((device.host, device.index) for device in ranks),
        named(one.layout),
    )


def _snug(one: Evaluated) -> bool:
    """Whether a rank in memory that the system shares has less left than an estimate may err by."""
    return _spare_bytes(one) < SNUG_BYTES


def _spare_bytes(one: Evaluated) -> float:
    """The least that its ranks leave of memory that the system shares."""
    return min((rank.free_bytes for rank in one.fit.ranks if is_unified(rank.device.kind)), default=math.inf)


def _arrangement(layout: Layout) -> tuple[frozenset[Device], tuple[int, int, int], bool]:
    """All of it but which stage has which layers."""
    return frozenset(ranks_of(layout)), sizes_of(layout), layout.expert_parallel


def _slower(one: Evaluated, first: Evaluated, goal: Goal) -> Rejected:
    """A layout that fits and is not taken, with its speed."""
    what = "tok/s" if goal == "throughput" else "tok/s per stream"
    numbers = (
        f"{one.score:.1f} {what}, the chosen layout {first.score:.1f}"
        if first.prediction.fitted
        else "estimated from memory bandwidth"
    )
    note = _worse(one, first, goal)
    return Rejected(named(one.layout), f"{numbers}: {note}", one.layout, one.score, note)


def _worse(one: Evaluated, first: Evaluated, goal: Goal) -> str:
    if goal == "context" and one.fit.context < first.fit.context:
        return f"context up to {one.fit.context:,} tokens instead of {first.fit.context:,}"
    if one.score < _AS_GOOD * first.score:
        change = f"{one.score / first.score - 1:+.0%}"
        return change if first.prediction.fitted else "slower by memory bandwidth alone"
    room, roomier = one.fit.concurrency, first.fit.concurrency
    if room < roomier and _arrangement(one.layout) == _arrangement(first.layout):
        return f"about as fast, fits {counted(room, 'concurrent stream')} instead of {roomier}"
    if _snug(one) and not _snug(first):
        return f"about as fast, leaves only {gib(_spare_bytes(one))} GiB of shared memory free"
    used, chosen = (
        f"{counted(len(hosts_of(each.layout)), 'host')} and {counted(len(ranks_of(each.layout)), 'rank')}"
        for each in (one, first)
    )
    if used != chosen:
        return f"about as fast, {used} instead of {chosen}"
    is_more = one.layout.expert_parallel and not first.layout.expert_parallel
    return f"about as fast{', more complex' if is_more else ''}"


def counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def figures(work: Workload, fitted: Fit, told: Prediction) -> tuple[str, ...]:
    """Speed and memory, for a plan's reasons."""
    concurrency = work.load.concurrency
    streams = counted(concurrency, "stream")
    rate = f"{told.tokens_per_s:.1f} tok/s ({told.low:.1f} to {told.high:.1f}) for {streams}"
    longest = f"context up to {fitted.context:,} tokens with {streams}"
    return (
        f"predicted {rate}, {told.per_stream:.1f} for each; bottleneck: {told.bound}"
        if told.fitted
        else UNFITTED,
        f"tightest: {fitted.worst}",
        f"{longest}, up to {counted(fitted.concurrency, 'concurrent stream')} of {work.context:,} tokens",
    )


def _warnings(table: Evaluation, chosen: Evaluated) -> Iterator[str]:
    """What is unwise about the sizes that were forced, and what they cost."""
    across = False
    for stage in (stage for stages in pipelines(chosen.layout) for stage in stages):
        kinds = sorted({device.name or device.kind for device in stage.devices})
        across = across or len({device.host for device in stage.devices}) > 1
        if len(kinds) > 1:
            yield (
                f"tensor parallel between {' and '.join(kinds)}: "
                "each does an equal part, so all wait for the slowest"
            )
    link = chosen.layout.link
    if across and link and not fast(link):
        yield f"tensor parallel over {speed_and_transport(link)}: each layer waits for the network twice"
    usual = [row for row in table.fitting(FREE) if row.usual]
    if usual and (free := _first(usual, table.request.work.goal)) is not chosen:
        if not chosen.prediction.fitted:
            yield f"{table.request.sizes}, as asked: without it the plan takes {named(free.layout)}"
            return
        price = f"{chosen.score:.1f} tok/s predicted, {free.score:.1f} without it"
        more = f"{chosen.score / free.score - 1:+.0%}"
        yield f"{table.request.sizes}, as asked: {price} ({more}): {named(free.layout)}"
