"""Find what would make a model fit, or make the sizes possible that the user forced."""

from collections.abc import Iterator, Sequence

from medley.errors import Problem
from medley.model.shape import BYTES_PER_WEIGHT
from medley.planner import Layout, Stage, describe_layout, list_devices
from medley.planner.candidates import NO_FORCED_SIZES, CandidateRow, Evaluation, list_expert_modes
from medley.planner.fit import compute_fit, find_largest, format_gib
from medley.planner.partition import Workload, find_stage_refusal, list_refusals, recut_layers
from medley.schema import Shape, WeightFormat
from medley.values import Value

_MAX_HOSTS = 64
# The formats with less than 16 bits in which makers publish models.
_VARIANT_FORMATS: tuple[WeightFormat, ...] = ("fp8", "nvfp4")


class Variant(Value):
    """The model with narrower weights, and whether that fits."""

    weights: str
    size_bytes: int
    fits: bool


class Remedies(Value):
    """Contexts, streams, formats and hosts with which a model would fit."""

    context: int
    """The longest context in tokens that fits at the requested concurrency; 0 if none fits."""
    concurrency: int
    """The most sequences that fit at the requested context; 0 if none fits."""
    variants: tuple[Variant, ...]
    """The model in fewer bits; embedding and head stay as they are."""
    hosts: int | None
    """The number of hosts like `largest_host` that hold it as a pipeline; None if no number up to 64 does."""
    largest_host: str


class NoLayout(Problem):
    """The problem that no layout fits or matches the options, with its remedies."""

    def __init__(
        self,
        what: str,
        *,
        cause: str,
        fix: str,
        remedies: Remedies | None = None,
        evaluation: Evaluation | None = None,
    ) -> None:
        """Keep the remedies, None if no candidate was cut, and the evaluation, None if there was none."""
        super().__init__(what, cause=cause, fix=fix)
        self.remedies, self.evaluation = remedies, evaluation


def build_too_large_problem(evaluation: Evaluation, unfitting: Sequence[CandidateRow]) -> NoLayout:
    """Return the Problem with the bytes that the nearest of these rows lacks, and with what fits instead."""
    workload, sizes = evaluation.request.workload, evaluation.request.sizes
    reasons = [f"{rejection.candidate}: {rejection.reason}" for rejection in evaluation.ruled_out]
    if not unfitting:
        cause = "\n".join(reasons) or "there is no device"
        return NoLayout(
            "no layout matches the options", cause=cause, fix="ask for less", evaluation=evaluation
        )
    nearest = min(unfitting, key=lambda row: (row.fit.short_bytes, describe_layout(row.layout)))
    remedies = find_remedies(workload, nearest.layout).replace(
        context=max(row.fit.context for row in unfitting),
        concurrency=max(row.fit.concurrency for row in unfitting),
    )
    layouts = f"{len(unfitting)} layout{'' if len(unfitting) == 1 else 's'}"
    forced_by = "" if sizes == NO_FORCED_SIZES else f"; as {sizes} says"
    shortage = f"{format_gib(nearest.fit.short_bytes)} GiB short in the nearest of {layouts}{forced_by}"
    concurrency = workload.load.concurrency
    streams = f"{concurrency} concurrent streams" if concurrency > 1 else "1 stream"
    return NoLayout(
        f"the model does not fit with {streams} of {workload.context:,} tokens",
        cause="\n".join((shortage, f"{describe_layout(nearest.layout)}: {nearest.fit.worst}", *reasons)),
        fix="medley models  # choose a smaller one",
        remedies=remedies,
        evaluation=evaluation,
    )


def find_remedies(workload: Workload, layout: Layout) -> Remedies:
    """Return what fits instead of this layout: less context, fewer streams, fewer bits or more hosts."""
    shape, current_fit = workload.shape, compute_fit(workload, layout)
    device = max(list_devices(layout), key=lambda device: (device.memory_bytes, device.host))

    def fits(shape: Shape, layout: Layout) -> bool:
        # Without a step timer the layers are cut by memory only.
        memory_workload = workload.replace(shape=shape, stage_timer_factory=None)
        return compute_fit(memory_workload, recut_layers(memory_workload, layout)).fits

    def list_variants() -> Iterator[Variant]:
        for weights in _VARIANT_FORMATS:
            if smaller := quantize_shape(shape, weights):
                yield Variant(weights, smaller.weights_bytes, fits(smaller, layout))

    def fits_pipeline(count: int) -> bool:
        stages = tuple(Stage((device.replace(host=f"{nth}"),), 1) for nth in range(count))
        return fits(shape, Layout(stages))

    max_hosts = min(_MAX_HOSTS, shape.layers)
    min_hosts = find_largest(max_hosts, lambda count: not fits_pipeline(count)) + 1
    hosts = min_hosts if min_hosts <= max_hosts else None
    return Remedies(current_fit.context, current_fit.concurrency, tuple(list_variants()), hosts, device.host)


def quantize_shape(shape: Shape, weights: WeightFormat) -> Shape | None:
    """Return the model in fewer bits, with its embedding and head as they are; None if it has as few."""
    ratio = BYTES_PER_WEIGHT[weights] / BYTES_PER_WEIGHT[shape.weights]
    names = ("layer_bytes", "active_layer_bytes", "expert_bytes")
    scaled = {name: round(getattr(shape, name) * ratio) for name in names}
    return shape.replace(**(scaled | {"weights": weights, "block": None})) if ratio < 1 else None


def build_impossible_sizes_problem(evaluation: Evaluation) -> NoLayout:
    """Return the Problem that no layout has the forced sizes, and why."""
    request = evaluation.request
    shape, sizes, devices = request.workload.shape, request.sizes, request.devices
    tensor_parallel, stages = sizes.tensor_parallel or 1, sizes.stages or 1
    ranks = tensor_parallel * stages * (sizes.replicas or 1)
    if ranks > len(devices):
        summary = f"{sizes} needs {ranks} devices, and there are {len(devices)}"
        cause = "each rank takes one GPU, or one host without any"
        fix = "ask for less, or join more hosts: medley ray-worker HEAD"
    elif not list_expert_modes(shape, tensor_parallel):
        summary = f"--tp {tensor_parallel} cannot split this model"
        reasons = (
            reason
            for is_whole in ((False, True) if shape.experts else (False,))
            for reason in list_refusals(shape, tensor_parallel, expert_parallel=is_whole)
        )
        cause = "\n".join(dict.fromkeys(reasons))
        usable_sizes = [str(size) for size in range(1, len(devices) + 1) if list_expert_modes(shape, size)]
        fix = f"--tp with one of {', '.join(usable_sizes)}, or --pp {tensor_parallel}"
    elif stage_refusal := find_stage_refusal(shape, stages):
        summary, cause = f"--pp {sizes.stages} cannot split this model", stage_refusal
        fix = f"use --pp {shape.layers} or less"
    else:
        summary = f"no layout has {sizes}"
        rejections = [f"{rejection.candidate}: {rejection.reason}" for rejection in evaluation.ruled_out]
        cause = "\n".join(rejections) or (
            f"{len(devices)} devices cannot form one: a CPU and a GPU never share a model"
        )
        fix = "remove --tp, --pp and --dp"
    return NoLayout(summary, cause=cause, fix=fix, evaluation=evaluation)
