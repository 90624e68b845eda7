"""Cut the layers of a model into pipeline stages, and check into how many parts it divides."""

import heapq
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Protocol

from msgspec import field

from medley.model.shape import BLOCK_WEIGHTS
from medley.planner import (
    Device,
    Goal,
    HostLink,
    Layout,
    Load,
    Stage,
    build_pipeline,
    join_names,
    list_pipelines,
)
from medley.planner.memory import MemoryNeed, PipelinePosition, compute_memory_need, is_latent, pad_vocabulary
from medley.schema import TITLES, Shape
from medley.values import Value


class StageTimer(Protocol):
    """A function that returns the time of a step on a stage."""

    def __call__(self, stage: Stage, /, *, is_last_stage: bool) -> float:
        """Return seconds, which grow with the layers; the last stage has the output head too."""


class StageTimerFactory(Protocol):
    """A function that builds the timer of stages under a load."""

    def __call__(self, sequences: int, link: HostLink | None, /) -> StageTimer:
        """Return the timer for so many sequences in a batch over this link between the hosts."""


class Workload(Value):
    """A model, and the load for which its layers are cut and its memory is counted."""

    shape: Shape
    context: int = 1
    """The tokens that each sequence may have."""
    load: Load = field(default_factory=Load)
    goal: Goal = "latency"
    stage_timer_factory: StageTimerFactory | None = None
    """Builds the stage timer by which layers are cut; None: layers are cut by memory only."""
    is_beyond_config: bool = False
    """Whether the context is longer than config.json gives; `shape` then has the longer one."""


def recut_layers(workload: Workload, layout: Layout) -> Layout:
    """Cut the layers of the same stages again, for each replica."""
    pipelines = []
    for stages in list_pipelines(layout):
        units = [stage.devices for stage in stages]
        layers = split_layers(
            workload,
            units,
            layout.link,
            replicas=len(list_pipelines(layout)),
            expert_parallel=layout.expert_parallel,
        )
        pipelines.append(build_pipeline(units, layers))
    return layout.replace(stages=pipelines[0], other_pipelines=tuple(pipelines[1:]))


def split_layers(
    workload: Workload,
    stages: Sequence[tuple[Device, ...]],
    link: HostLink | None = None,
    *,
    replicas: int = 1,
    expert_parallel: bool = False,
    minimizes_sum: bool = False,
) -> tuple[int, ...]:
    """Return the layers of each stage that make the slowest stage fastest and fit into memory.

    With `minimizes_sum`, for one stream that visits the stages in turn, the cut minimizes the sum of their
    times and not the largest. For the goal context, the KV cache of the tightest stage is largest. If the
    model does not fit, the tightest stage lacks the least. The model must have a layer for each stage.
    """
    shape, last = workload.shape, len(stages) - 1
    streams = -(-workload.load.concurrency // replicas)
    uncut_stages = [
        _UncutStage(
            shape,
            frozenset((device.kind, device.memory_bytes) for device in devices),
            PipelinePosition(
                layers=1,
                tensor_parallel=len(devices),
                is_first=nth == 0,
                is_last=nth == last,
                expert_parallel=expert_parallel,
            ),
            workload.context,
            streams,
        )
        for nth, devices in enumerate(stages)
    ]
    max_layers = [_count_max_layers(stage) for stage in uncut_stages]
    if any(count < 1 for count in max_layers) or sum(max_layers) < shape.layers:
        missing = [partial(_compute_missing_bytes, stage) for stage in uncut_stages]
        return cut_layers(shape.layers, missing, [shape.layers] * len(uncut_stages))
    if workload.goal == "context" or workload.stage_timer_factory is None:
        return cut_layers(
            shape.layers, [partial(_compute_cache_share, stage) for stage in uncut_stages], max_layers
        )
    time_stage = workload.stage_timer_factory(-(-streams // len(stages)), link)

    def compute_cost_s(nth: int, layers: int) -> float:
        """Return the time of a step on this stage; for the sum, what its last layer adds."""
        devices = stages[nth]
        previous_s = (
            time_stage(Stage(devices, layers - 1), is_last_stage=nth == last) if minimizes_sum else 0.0
        )
        return time_stage(Stage(devices, layers), is_last_stage=nth == last) - previous_s

    return cut_layers(shape.layers, [partial(compute_cost_s, nth) for nth in range(len(stages))], max_layers)


def cut_layers(
    layers: int, costs: Sequence[Callable[[int], float]], max_parts: Sequence[int]
) -> tuple[int, ...]:
    """Cut `layers` into parts, each between one and its maximum, so that the largest cost is minimal.

    `costs[nth](layers)` is the cost of the nth part with so many layers. It must not fall with another layer:
    then it is exact to put each layer where it costs least. If a cost is instead only what the last of these
    layers adds, and no layer adds less than the one before, the sum is minimal.
    """
    parts = [1] * len(costs)
    # Each part has one layer, so the first price is that of its second one.
    queue = [(cost(2), nth) for nth, cost in enumerate(costs) if max_parts[nth] > 1]
    heapq.heapify(queue)
    for _ in range(layers - len(parts)):
        _, nth = heapq.heappop(queue)
        parts[nth] += 1
        if parts[nth] < max_parts[nth]:
            heapq.heappush(queue, (costs[nth](parts[nth] + 1), nth))
    return tuple(parts)


class _UncutStage(Value):
    """A stage without its number of layers: its devices, position and sequences."""

    shape: Shape
    device_types: frozenset[tuple[str, int]]
    """Kind of host and memory in bytes of the devices."""
    position: PipelinePosition
    context: int
    concurrency: int


@lru_cache(maxsize=4096)
def _count_max_layers(stage: _UncutStage) -> int:
    """Return the most layers that fit into the stage; 0 for none."""
    counts = range(1, stage.shape.layers + 1)
    return bisect_left(counts, 1, key=lambda layers: _compute_missing_bytes(stage, layers) > 0)


def _compute_missing_bytes(stage: _UncutStage, layers: int) -> int:
    """Return the bytes that the stage lacks with so many layers; below 0: the bytes that stay free."""
    return max(
        rank_need.compute_total_bytes(stage.context, stage.concurrency) - memory_bytes
        for memory_bytes, rank_need in _list_memory_needs(stage, layers)
    )


def _compute_cache_share(stage: _UncutStage, layers: int) -> float:
    """Return the share that the KV cache takes of the memory that is left for it."""
    return max(
        rank_need.compute_kv_bytes(stage.context, stage.concurrency)
        / max(1, memory_bytes - rank_need.weights_bytes - rank_need.compute_overhead_bytes(stage.concurrency))
        for memory_bytes, rank_need in _list_memory_needs(stage, layers)
    )


@lru_cache(maxsize=16_384)
def _list_memory_needs(stage: _UncutStage, layers: int) -> list[tuple[int, MemoryNeed]]:
    """Return the memory of each type of device with its need; cached, as many candidates share stages."""
    position = stage.position.replace(layers=layers)
    return [
        (memory_bytes, compute_memory_need(stage.shape, position, kind))
        for kind, memory_bytes in stage.device_types
    ]


def find_stage_refusal(shape: Shape, stages: int) -> str | None:
    """Return why the model cannot be cut into so many stages; None if it can."""
    if stages > 1 and shape.one_stage:
        engines = join_names(TITLES[engine] for engine in shape.one_stage)
        return f"{engines} cannot split this model into stages"
    return f"{stages} stages are more than its {shape.layers} layers" if stages > shape.layers else None


def describe_unchecked_width(
    shape: Shape, tensor_parallel: int, *, expert_parallel: bool = False
) -> str | None:
    """Return what `list_refusals` cannot check because config.json does not give it; None without a gap."""
    block = shape.block or BLOCK_WEIGHTS.get(shape.weights)
    if tensor_parallel == 1 or expert_parallel or not block or shape.feed_forward is not None:
        return None
    return (
        f"the feed-forward width is unknown: whether {tensor_parallel} ranks get whole blocks of {block} is "
        "unchecked. config.json does not give it; the engine refuses the model at its start if they do not"
    )


def list_refusals(shape: Shape, tensor_parallel: int, *, expert_parallel: bool = False) -> tuple[str, ...]:
    """Return why the layers cannot be spread over so many devices; empty if they can."""
    reasons = []
    # A model without attention has no heads; its number of heads is not from config.json.
    has_attention = shape.attention_layers != 0 or shape.windowed_layers > 0
    if has_attention and shape.heads % tensor_parallel:
        reasons.append(f"{shape.heads} attention heads are not a multiple of {tensor_parallel}")
    # MLA has one latent for all heads, even if its table has KV heads.
    if (
        has_attention
        and not is_latent(shape)
        and shape.kv_heads % tensor_parallel
        and tensor_parallel % shape.kv_heads
    ):
        reasons.append(f"{shape.kv_heads} KV heads neither divide by {tensor_parallel} nor divide it")
    if (vocabulary := pad_vocabulary(shape)) % tensor_parallel:
        reasons.append(f"a vocabulary of {vocabulary} (padded to 64) is not a multiple of {tensor_parallel}")
    # Only numbers from config.json refuse a layout; the feed-forward width may be unknown.
    block, rows = shape.block or BLOCK_WEIGHTS.get(shape.weights), shape.feed_forward
    if expert_parallel and shape.experts % tensor_parallel:
        reasons.append(f"{shape.experts} experts are not a multiple of {tensor_parallel}")
    elif not expert_parallel and block and rows and rows % (tensor_parallel * block):
        part = "an expert's" if shape.experts else "the feed-forward part's"
        reasons.append(
            f"{part} {rows} rows over {tensor_parallel} are not a multiple of "
            f"{shape.weights}'s block of {block}"
        )
    return tuple(reasons) if tensor_parallel > 1 else ()
