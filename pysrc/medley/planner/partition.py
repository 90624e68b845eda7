"""Layers of each pipeline stage; into how many parts a model divides."""

import heapq
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

from medley.model.shape import BLOCK
from medley.planner import Device, Goal, HostLink, Layout, Load, Stage, listed, pipeline, pipelines
from medley.planner.memory import MemoryNeed, PipelinePosition, is_latent, need, padded_vocabulary
from medley.schema import TITLES, Shape

Seconds = Callable[[Stage, bool], float]
"""A step's time on a stage; True: it is the last, which has the head. More layers are never quicker."""
Timed = Callable[[int, HostLink | None], Seconds]
"""The same for so many sequences at once, where this link joins the hosts."""


@dataclass(frozen=True)
class Workload:
    """A model and what is asked of it: what its layers are cut for, and its memory is counted for."""

    shape: Shape
    context: int = 1
    """Tokens that each sequence may have."""
    load: Load = field(default_factory=Load)
    goal: Goal = "latency"
    timed: Timed | None = field(default=None, compare=False)
    """How fast stages are; None where layers are cut by memory only."""
    beyond_config: bool = False
    """Whether the context is more than config.json gives; `shape` then has as much."""


def recut(work: Workload, layout: Layout) -> Layout:
    """Cut the layers of the same stages again, for each replica."""
    first, *others = (
        pipeline(
            units := [stage.devices for stage in stages],
            split(
                work,
                units,
                layout.link,
                replicas=1 + len(layout.replicas),
                expert_parallel=layout.expert_parallel,
            ),
        )
        for stages in pipelines(layout)
    )
    return replace(layout, stages=first, replicas=tuple(others))


def split(
    work: Workload,
    stages: Sequence[tuple[Device, ...]],
    link: HostLink | None = None,
    *,
    replicas: int = 1,
    expert_parallel: bool = False,
    turns: bool = False,
) -> tuple[int, ...]:
    """Layers of each stage: the slowest is as fast as can be, and none holds more than it can.

    By `turns`, as one stream visits them: their sum is least. For context: the KV cache of the tightest is as
    large as can be. Where it does not fit at all: what the tightest is short of is as little as can be. There
    must be at least a layer for each stage.
    """
    shape, last = work.shape, len(stages) - 1
    each = -(-work.load.concurrency // replicas)
    rooms = [
        _Room(
            shape,
            frozenset((device.kind, device.memory_bytes) for device in devices),
            PipelinePosition(1, len(devices), nth == 0, nth == last, expert_parallel),
            work.context,
            each,
        )
        for nth, devices in enumerate(stages)
    ]
    most = [_most(room) for room in rooms]
    if any(count < 1 for count in most) or sum(most) < shape.layers:
        return cut(shape.layers, [partial(_short, room) for room in rooms], [shape.layers] * len(rooms))
    if work.goal == "context" or work.timed is None:
        return cut(shape.layers, [partial(_fill, room) for room in rooms], most)
    seconds = work.timed(-(-each // len(stages)), link)

    def cost(nth: int, layers: int) -> float:
        """A step on this stage; by turns, what the last of these layers adds."""
        devices = stages[nth]
        rest = seconds(Stage(devices, layers - 1), nth == last) if turns else 0.0
        return seconds(Stage(devices, layers), nth == last) - rest

    return cut(shape.layers, [partial(cost, nth) for nth in range(len(stages))], most)


def cut(layers: int, costs: Sequence[Callable[[int], float]], most: Sequence[int]) -> tuple[int, ...]:
    """The parts of `layers`, each at least one and at most its own, of which the largest cost is least.

    Each layer goes where it costs least, which is exact because no part gets cheaper by a layer more. Where a
    cost is that of the last layer alone, and no layer costs less than the one before, the sum is least.
    """
    found = [1] * len(costs)
    waiting = [(cost(2), nth) for nth, cost in enumerate(costs) if most[nth] > 1]
    heapq.heapify(waiting)
    for _ in range(layers - len(found)):
        _, nth = heapq.heappop(waiting)
        found[nth] += 1
        if found[nth] < most[nth]:
            heapq.heappush(waiting, (costs[nth](found[nth] + 1), nth))
    return tuple(found)


@dataclass(frozen=True)
class _Room:
    """A stage before it is known how many layers it carries."""

    shape: Shape
    sorts: frozenset[tuple[str, int]]
    """Kind and memory of its devices."""
    place: PipelinePosition
    context: int
    concurrency: int


@lru_cache(maxsize=4096)
def _most(room: _Room) -> int:
    """The most layers that it can hold; 0 for none."""
    return bisect_left(range(1, room.shape.layers + 1), 1, key=lambda layers: _short(room, layers) > 0)


def _short(room: _Room, layers: int) -> int:
    """What it is short of, in bytes; below 0: what it has left."""
    return max(
        found.total_bytes(room.context, room.concurrency) - memory_bytes
        for memory_bytes, found in _needs(room, layers)
    )


def _fill(room: _Room, layers: int) -> float:
    """The part of what is left for the KV cache that it takes."""
    return max(
        found.kv_bytes(room.context, room.concurrency)
        / max(1, memory_bytes - found.weights_bytes - found.overhead_bytes(room.concurrency))
        for memory_bytes, found in _needs(room, layers)
    )


@lru_cache(maxsize=16_384)
def _needs(room: _Room, layers: int) -> list[tuple[int, MemoryNeed]]:
    """Equal stages of other candidates ask the same again."""
    place = replace(room.place, layers=layers)
    return [(memory_bytes, need(room.shape, place, kind)) for kind, memory_bytes in room.sorts]


def too_many_stages(shape: Shape, stages: int) -> str | None:
    if stages > 1 and shape.one_stage:
        return f"{listed([TITLES[engine] for engine in shape.one_stage])} cannot split this model into stages"
    return f"{stages} stages are more than its {shape.layers} layers" if stages > shape.layers else None


def unchecked(shape: Shape, tensor: int, *, expert_parallel: bool = False) -> str | None:
    """Return what `refusals` cannot compare because config.json does not give it; None without such a gap."""
    block = shape.block or BLOCK.get(shape.weights)
    if tensor == 1 or expert_parallel or not block or shape.feed_forward is not None:
        return None
    return (
        f"the feed-forward width is unknown: whether {tensor} ranks get whole blocks of {block} is "
        "unchecked. config.json does not give it; the engine refuses the model at its start if they do not"
    )


def refusals(shape: Shape, tensor: int, *, expert_parallel: bool = False) -> tuple[str, ...]:
    """Why its layers cannot be spread over so many devices; none where they can."""
    found = []
    # A model without attention has no heads: what stands for them is no number of config.json's.
    attends = shape.attention_layers != 0 or shape.windowed_layers > 0
    if attends and shape.heads % tensor:
        found.append(f"{shape.heads} attention heads are not a multiple of {tensor}")
    # MLA has one latent for all heads, whatever its table calls KV heads.
    if attends and not is_latent(shape) and shape.kv_heads % tensor and tensor % shape.kv_heads:
        found.append(f"{shape.kv_heads} KV heads neither divide by {tensor} nor divide it")
    if (vocabulary := padded_vocabulary(shape)) % tensor:
        found.append(f"a vocabulary of {vocabulary} (padded to 64) is not a multiple of {tensor}")
    # Only what config.json gives refuses a layout: the width may be unknown, and with it this question.
    block, inner = shape.block or BLOCK.get(shape.weights), shape.feed_forward
    if expert_parallel and shape.experts % tensor:
        found.append(f"{shape.experts} experts are not a multiple of {tensor}")
    elif not expert_parallel and block and inner and inner % (tensor * block):
        what = "an expert's" if shape.experts else "the feed-forward part's"
        found.append(
            f"{what} {inner} rows over {tensor} are not a multiple of {shape.weights}'s block of {block}"
        )
    return tuple(found) if tensor > 1 else ()
