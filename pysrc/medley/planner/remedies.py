"""What would make a model fit, or the sizes the user forced possible."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from medley.errors import Problem
from medley.model.shape import BYTES
from medley.planner import Layout, Stage, devices_of, named
from medley.planner.candidates import FREE, Evaluated, Evaluation, expert_ways
from medley.planner.fit import fit, gib, largest
from medley.planner.partition import Workload, recut, refusals, too_many_stages
from medley.schema import Shape, Weights

_MOST_HOSTS = 64
# What models are published in, where their makers offer less than 16 bits.
_VARIANTS: tuple[Weights, ...] = ("fp8", "nvfp4")


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


class NoLayout(Problem):
    def __init__(
        self,
        what: str,
        *,
        cause: str,
        fix: str,
        remedies: Remedies | None = None,
        rows: Evaluation | None = None,
    ) -> None:
        """`remedies`: None where nothing could be cut as asked; `rows`: None where nothing was evaluated."""
        super().__init__(what, cause=cause, fix=fix)
        self.remedies, self.rows = remedies, rows


def too_large(table: Evaluation, tight: Sequence[Evaluated]) -> NoLayout:
    """By how much the nearest of these rows is too large, and what would fit instead."""
    work, sizes = table.request.work, table.request.sizes
    reasons = [f"{each.what}: {each.because}" for each in table.ruled]
    if not tight:
        cause = "\n".join(reasons) or "there is no device"
        return NoLayout("no layout matches the options", cause=cause, fix="ask for less", rows=table)
    least = min(tight, key=lambda row: (row.fit.short_bytes, named(row.layout)))
    found = replace(
        remedies(work, least.layout),
        context=max(row.fit.context for row in tight),
        concurrency=max(row.fit.concurrency for row in tight),
    )
    layouts = f"{len(tight)} layout{'' if len(tight) == 1 else 's'}"
    forced_by = "" if sizes == FREE else f"; as {sizes} says"
    nearest = f"{gib(least.fit.short_bytes)} GiB short in the nearest of {layouts}{forced_by}"
    streams = f"{many} concurrent streams" if (many := work.load.concurrency) > 1 else "1 stream"
    return NoLayout(
        f"the model does not fit with {streams} of {work.context:,} tokens",
        cause="\n".join((nearest, f"{named(least.layout)}: {least.fit.worst}", *reasons)),
        fix="medley models  # choose a smaller one",
        remedies=found,
        rows=table,
    )


def remedies(work: Workload, layout: Layout) -> Remedies:
    shape, found = work.shape, fit(work, layout)
    device = max(devices_of(layout), key=lambda device: (device.memory_bytes, device.host))

    def fits(shape: Shape, layout: Layout) -> bool:
        # By memory alone.
        other = replace(work, shape=shape, timed=None)
        return fit(other, recut(other, layout)).fits

    def variants() -> Iterator[Variant]:
        for weights in _VARIANTS:
            if smaller := quantized(shape, weights):
                yield Variant(weights, smaller.weights_bytes, fits(smaller, layout))

    def in_pipeline(count: int) -> bool:
        stages = tuple(Stage((replace(device, host=f"{nth}"),), 1) for nth in range(count))
        return fits(shape, Layout(stages))

    most = min(_MOST_HOSTS, shape.layers)
    fewest = largest(most, lambda count: not in_pipeline(count)) + 1
    hosts = fewest if fewest <= most else None
    return Remedies(found.context, found.concurrency, tuple(variants()), hosts, device.host)


def quantized(shape: Shape, weights: Weights) -> Shape | None:
    """The model in fewer bits, its embedding and head as they are; None where it has as few."""
    ratio = BYTES[weights] / BYTES[shape.weights]
    names = ("layer_bytes", "active_layer_bytes", "expert_bytes")
    scaled = {name: round(getattr(shape, name) * ratio) for name in names}
    return shape.model_copy(update=scaled | {"weights": weights, "block": None}) if ratio < 1 else None


def impossible(table: Evaluation) -> NoLayout:
    """Why there is no layout of the sizes asked for."""
    shape, sizes, devices = table.request.work.shape, table.request.sizes, table.request.devices
    tensor, stages = sizes.tensor or 1, sizes.stages or 1
    ranks = tensor * stages * (sizes.replicas or 1)
    if ranks > len(devices):
        what = f"{sizes} needs {ranks} devices, and there are {len(devices)}"
        cause = "each rank takes one GPU, or one host without any"
        fix = "ask for less, or join more hosts: medley ray-worker HEAD"
    elif not expert_ways(shape, tensor):
        what = f"--tp {tensor} cannot split this model"
        because = (
            reason
            for whole in ((False, True) if shape.experts else (False,))
            for reason in refusals(shape, tensor, expert_parallel=whole)
        )
        cause = "\n".join(dict.fromkeys(because))
        able = [str(size) for size in range(1, len(devices) + 1) if expert_ways(shape, size)]
        fix = f"--tp with one of {', '.join(able)}, or --pp {tensor}"
    elif many := too_many_stages(shape, stages):
        what, cause = f"--pp {sizes.stages} cannot split this model", many
        fix = f"use --pp {shape.layers} or less"
    else:
        what = f"no layout has {sizes}"
        cause = "\n".join(f"{each.what}: {each.because}" for each in table.ruled) or (
            f"{len(devices)} devices cannot form one: a CPU and a GPU never share a model"
        )
        fix = "remove --tp, --pp and --dp"
    return NoLayout(what, cause=cause, fix=fix, rows=table)
