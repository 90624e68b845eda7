"""Choose the best layout for a goal, and say why the other candidates were not chosen."""

import math
from collections.abc import Callable, Iterator, Sequence

from medley.network.fabric.cabling import Cabling
from medley.planner import (
    Device,
    Goal,
    Layout,
    Load,
    count_parallel_sizes,
    describe_layout,
    describe_link,
    is_fast_link,
    list_devices,
    list_hosts,
    list_pipelines,
)
from medley.planner.candidates import (
    NO_FORCED_SIZES,
    CandidateRow,
    Evaluation,
    Rejection,
    Request,
    list_candidates,
)
from medley.planner.fit import Fit, compute_fit, format_gib
from medley.planner.kinds import is_unified
from medley.planner.memory import MIN_SPARE_BYTES
from medley.planner.partition import Workload
from medley.planner.prediction import Prediction
from medley.planner.remedies import build_impossible_sizes_problem, build_too_large_problem
from medley.planner.site_network import SiteNetwork
from medley.schema import Shape
from medley.values import Value

NO_CPU_PREDICTION = "no speed is predicted on a CPU: predictions are fitted to measurements of GPUs only"
_EQUAL_SCORE_SHARE = 0.95
"""The share of the best score from which a score counts as equal, because predictions err by more."""


class Choice(Value):
    """The layout that was chosen for a workload, with its reasons and the candidates that lost."""

    workload: Workload
    """The workload that the layout was chosen for."""
    layout: Layout
    fit: Fit
    prediction: Prediction
    why: tuple[str, ...]
    rejected: tuple[Rejection, ...]
    warnings: tuple[str, ...] = ()
    """Disadvantages of the forced sizes, and their price in speed."""
    is_overcommitted: bool = False
    """Whether the layout takes more shared memory than is safe, or fits only if an estimate is too high."""
    network: SiteNetwork | None = None
    """The network of the hosts that the layout was chosen from."""

    @property
    def cabling(self) -> Cabling:
        """The cables between the hosts of this layout."""
        return self.network.find_cabling(list_hosts(self.layout)) if self.network else Cabling()


def choose_layout(request: Request, predict: Callable[[Shape, Layout, Load], Prediction]) -> Choice:
    """Return the best layout for this request; raise a Problem with the numbers if none fits.

    `predict` must use the model of speed in `workload.stage_timer_factory`; otherwise layers are not cut for
    the best score.
    """
    workload, candidates = request.workload, list_candidates(request)
    unforced_candidates = (
        candidates
        if request.sizes == NO_FORCED_SIZES
        else list_candidates(request.replace(sizes=NO_FORCED_SIZES))
    )
    layouts = dict.fromkeys((*candidates.layouts, *unforced_candidates.layouts))
    refusals = {layout: request.find_refusal(layout) for layout in layouts}
    unforced_layouts = frozenset(unforced_candidates.layouts)
    rows = []
    for layout, refusal in refusals.items():
        if refusal is None:
            layout_fit = compute_fit(workload, layout)
            prediction = predict(workload.shape, layout, workload.load)
            score = compute_score(workload.goal, prediction)
            rows.append(CandidateRow(layout, layout_fit, prediction, score, layout in unforced_layouts))
    rejections = [
        Rejection(describe_layout(layout), refusal)
        for layout in candidates.layouts
        if (refusal := refusals[layout])
    ]
    evaluation = Evaluation(request, tuple(rows), (*candidates.ruled_out, *rejections))
    if request.sizes != NO_FORCED_SIZES and not candidates.layouts:
        raise build_impossible_sizes_problem(evaluation)
    return _choose_row(evaluation)


def compute_score(goal: Goal, prediction: Prediction) -> float:
    """Return the predicted tokens per second: of all streams for throughput, else of one stream."""
    return prediction.tokens_per_s if goal == "throughput" else prediction.per_stream


def _choose_row(evaluation: Evaluation) -> Choice:
    workload, sizes = evaluation.request.workload, evaluation.request.sizes
    goal = workload.goal
    fitting = evaluation.list_fitting_rows(sizes)
    unfitting = [
        row for row in evaluation.rows if not row.fit.fits and sizes.allows(*count_parallel_sizes(row.layout))
    ]
    if not fitting:
        raise build_too_large_problem(evaluation, unfitting)
    best = _find_best_row(fitting, goal)
    slower_rows = sorted((row for row in fitting if row is not best), key=lambda row: -row.score)
    rejected = (
        *(_build_slower_rejection(row, best, goal) for row in slower_rows),
        *(
            Rejection(describe_layout(row.layout), f"does not fit: {row.fit.worst}")
            for row in sorted(unfitting, key=lambda row: row.fit.short_bytes)
        ),
        *evaluation.ruled_out,
    )
    runner_up = rejected[:1] if slower_rows else ()
    why = (
        f"{describe_layout(best.layout)}: {_summarize(evaluation, best, len(fitting), len(unfitting))}",
        *(f"next: {rejection.candidate}: {rejection.reason}" for rejection in runner_up),
        *describe_figures(workload, best.fit, best.prediction),
    )
    warnings = () if sizes == NO_FORCED_SIZES else tuple(_list_warnings(evaluation, best))
    return Choice(workload, best.layout, best.fit, best.prediction, why, rejected, warnings)


def _summarize(evaluation: Evaluation, best: CandidateRow, fitting: int, unfitting: int) -> str:
    """Count the candidates that fit, that do not fit, and that were ruled out."""
    parts = [f"best for {evaluation.request.workload.goal} of {fitting} layouts that fit"]
    if fitting == 1:
        parts = [_explain_single_fit(best, evaluation)]
    if unfitting:
        parts.append(f"{unfitting} {'does' if unfitting == 1 else 'do'} not fit")
    if ruled_out := len(evaluation.ruled_out):
        parts.append(f"{ruled_out} {'is' if ruled_out == 1 else 'are'} ruled out")
    return "; ".join(parts)


def _explain_single_fit(best: CandidateRow, evaluation: Evaluation) -> str:
    """Return why there is nothing to choose: one device, forced sizes, or memory."""
    if len(evaluation.request.devices) == 1:
        (rank,) = best.fit.ranks
        return f"it fits: {format_gib(rank.total_bytes)} of {format_gib(rank.device.memory_bytes)} GiB"
    sizes = evaluation.request.sizes
    return (
        "the only layout that fits" if sizes == NO_FORCED_SIZES else f"the only layout that fits with {sizes}"
    )


def _find_best_row(rows: Sequence[CandidateRow], goal: Goal) -> CandidateRow:
    """Return the plainest row whose score is about equal to the best.

    A row that leaves shared memory free comes first, then the fewest hosts, ranks, and ranks of an engine.
    Of several cuts of the layers, the one with room for the most streams wins, because 5 % of speed is worth
    less than room for more streams.
    """
    if goal == "context":
        longest = max(row.fit.context for row in rows)
        rows = [row for row in rows if row.fit.context == longest]
    min_score = _EQUAL_SCORE_SHARE * max(row.score for row in rows)
    good_rows = [row for row in rows if row.score >= min_score]
    plainest = min(good_rows, key=lambda row: (_has_thin_margin(row), _compute_complexity(row)))
    arrangement = _compute_arrangement(plainest.layout)
    cuts = [row for row in good_rows if _compute_arrangement(row.layout) == arrangement]
    return min(cuts, key=lambda row: (_has_thin_margin(row), -row.fit.concurrency, _compute_complexity(row)))


def _compute_complexity(
    row: CandidateRow,
) -> tuple[int, int, int, bool, float, tuple[tuple[str, int], ...], str]:
    """Return a key that sorts plain layouts first: hosts, ranks, ranks of an engine, and so on."""
    ranks = list_devices(row.layout)
    return (
        len(list_hosts(row.layout)),
        len(ranks),
        len(ranks) // len(list_pipelines(row.layout)),
        row.layout.expert_parallel,
        -row.score,
        tuple((device.host, device.index) for device in ranks),
        describe_layout(row.layout),
    )


def _has_thin_margin(row: CandidateRow) -> bool:
    """Return whether a rank on unified memory leaves less free than an estimate may err by."""
    return _compute_spare_bytes(row) < MIN_SPARE_BYTES


def _compute_spare_bytes(row: CandidateRow) -> float:
    """Return the fewest bytes that a rank leaves free of unified memory; infinity without such memory."""
    return min((rank.free_bytes for rank in row.fit.ranks if is_unified(rank.device.kind)), default=math.inf)


def _compute_arrangement(layout: Layout) -> tuple[frozenset[Device], tuple[int, int, int], bool]:
    """Return the parts of a layout that do not depend on the layers of each stage."""
    return frozenset(list_devices(layout)), count_parallel_sizes(layout), layout.expert_parallel


def _build_slower_rejection(row: CandidateRow, best: CandidateRow, goal: Goal) -> Rejection:
    """Return the rejection of a layout that fits, with its speed."""
    unit = "tok/s" if goal == "throughput" else "tok/s per stream"
    numbers = "estimated from memory bandwidth"
    if best.prediction.is_calibrated:
        numbers = f"{row.score:.1f} {unit}, the chosen layout {best.score:.1f}"
    note = _describe_disadvantage(row, best, goal)
    return Rejection(describe_layout(row.layout), f"{numbers}: {note}", row.layout, row.score, note)


def _describe_disadvantage(row: CandidateRow, best: CandidateRow, goal: Goal) -> str:
    if goal == "context" and row.fit.context < best.fit.context:
        return f"context up to {row.fit.context:,} tokens instead of {best.fit.context:,}"
    if row.score < _EQUAL_SCORE_SHARE * best.score:
        change = f"{row.score / best.score - 1:+.0%}"
        return change if best.prediction.is_calibrated else "slower by memory bandwidth alone"
    streams, best_streams = row.fit.concurrency, best.fit.concurrency
    if streams < best_streams and _compute_arrangement(row.layout) == _compute_arrangement(best.layout):
        return f"about as fast, fits {format_count(streams, 'concurrent stream')} instead of {best_streams}"
    if _has_thin_margin(row) and not _has_thin_margin(best):
        return f"about as fast, leaves only {format_gib(_compute_spare_bytes(row))} GiB of shared memory free"
    parts, best_parts = _count_hosts_and_ranks(row.layout), _count_hosts_and_ranks(best.layout)
    if parts != best_parts:
        return f"about as fast, {parts} instead of {best_parts}"
    is_more_complex = row.layout.expert_parallel and not best.layout.expert_parallel
    return f"about as fast{', more complex' if is_more_complex else ''}"


def _count_hosts_and_ranks(layout: Layout) -> str:
    hosts, ranks = len(list_hosts(layout)), len(list_devices(layout))
    return f"{format_count(hosts, 'host')} and {format_count(ranks, 'rank')}"


def format_count(count: int, noun: str) -> str:
    """Return the number with its noun, in the plural where it is not 1."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def describe_figures(workload: Workload, layout_fit: Fit, prediction: Prediction) -> tuple[str, ...]:
    """Describe speed and memory for a plan's reasons."""
    concurrency = workload.load.concurrency
    streams = format_count(concurrency, "stream")
    speed = NO_CPU_PREDICTION
    if prediction.is_calibrated:
        speed_range = f"({prediction.low:.1f} to {prediction.high:.1f})"
        rate = f"{prediction.tokens_per_s:.1f} tok/s {speed_range} for {streams}"
        speed = f"predicted {rate}, {prediction.per_stream:.1f} for each; bottleneck: {prediction.bottleneck}"
    longest = f"context up to {layout_fit.context:,} tokens with {streams}"
    most_streams = format_count(layout_fit.concurrency, "concurrent stream")
    return (
        speed,
        f"tightest: {layout_fit.worst}",
        f"{longest}, up to {most_streams} of {workload.context:,} tokens",
    )


def _list_warnings(evaluation: Evaluation, best: CandidateRow) -> Iterator[str]:
    """Yield the disadvantages of the forced sizes, and what they cost in speed."""
    spans_hosts = False
    for stage in (stage for stages in list_pipelines(best.layout) for stage in stages):
        kinds = sorted({device.name or device.kind for device in stage.devices})
        spans_hosts = spans_hosts or len({device.host for device in stage.devices}) > 1
        if len(kinds) > 1:
            yield (
                f"tensor parallel between {' and '.join(kinds)}: "
                "each does an equal part, so all wait for the slowest"
            )
    link = best.layout.link
    if spans_hosts and link and not is_fast_link(link):
        yield f"tensor parallel over {describe_link(link)}: each layer waits for the network twice"
    yield from _compare_with_unforced(evaluation, best)


def _compare_with_unforced(evaluation: Evaluation, best: CandidateRow) -> Iterator[str]:
    """Yield what the plan takes without the forced sizes, and how fast that is."""
    request = evaluation.request
    unforced_rows = [row for row in evaluation.list_fitting_rows(NO_FORCED_SIZES) if row.is_unforced]
    if not unforced_rows or (best_unforced := _find_best_row(unforced_rows, request.workload.goal)) is best:
        return
    layout = describe_layout(best_unforced.layout)
    if not best.prediction.is_calibrated:
        yield f"{request.sizes}, as asked: without it the plan takes {layout}"
        return
    price = f"{best.score:.1f} tok/s predicted, {best_unforced.score:.1f} without it"
    change = f"{best.score / best_unforced.score - 1:+.0%}"
    yield f"{request.sizes}, as asked: {price} ({change}): {layout}"
