"""A split says how many layers each stage of a pipeline carries."""

import heapq
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Literal

from medley.layout.need import Need, Place, need
from medley.layout.shapes import Device, Layout, Link, Stage
from medley.tables import Shape

By = Literal["speed", "turns", "memory"]
"""What is made least: the slowest stage's time, the sum of all (one stream visits them in turn), or what the
KV cache takes of the room for it."""
Seconds = Callable[[Stage, bool], float]
"""A step's time on a stage; True: it is the last, which has the head. More layers are never quicker."""
Timed = Callable[[int, Link | None], Seconds]
"""The same for so many sequences at once, where this link joins the hosts."""


def split(
    shape: Shape,
    stages: Sequence[Sequence[Device]],
    *,
    context: int = 1,
    concurrency: int = 1,
    by: By = "speed",
    expert_parallel: bool = False,
    seconds: Seconds | None = None,
) -> tuple[int, ...]:
    """Layers of each stage: the slowest is as fast as can be, and none holds more than it can.

    By turns: their sum is least. By memory: the KV cache of the tightest is as large as can be. Where it
    does not fit at all: what the tightest is short of is as little as can be. There must be at least a layer
    for each stage. Where no `seconds` says how fast stages are, it is by memory.
    """
    rooms = _rooms(shape, stages, context, concurrency, expert_parallel=expert_parallel)
    most = [_most(room) for room in rooms]
    if any(count < 1 for count in most) or sum(most) < shape.layers:
        return cut(shape.layers, [partial(_short, room) for room in rooms], [shape.layers] * len(rooms))
    if by == "memory" or seconds is None:
        return cut(shape.layers, [partial(_fill, room) for room in rooms], most)
    cost = _stage_seconds if by == "speed" else _more_seconds
    costs = [
        partial(cost, seconds, tuple(devices), nth == len(stages) - 1) for nth, devices in enumerate(stages)
    ]
    return cut(shape.layers, costs, most)


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


def recut(
    shape: Shape,
    layout: Layout,
    *,
    context: int = 1,
    concurrency: int = 1,
    by: By = "speed",
    timed: Timed | None = None,
) -> Layout:
    """The same stages with their layers cut anew, for each replica."""
    copies = (layout.stages, *layout.replicas)
    each = -(-concurrency // len(copies))
    seconds = timed and timed(-(-each // len(layout.stages)), layout.link)

    def anew(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        layers = split(
            shape,
            [stage.devices for stage in stages],
            context=context,
            concurrency=each,
            by=by,
            expert_parallel=layout.expert_parallel,
            seconds=seconds,
        )
        return tuple(Stage(stage.devices, count) for stage, count in zip(stages, layers, strict=True))

    first, *others = (anew(stages) for stages in copies)
    return replace(layout, stages=first, replicas=tuple(others))


@dataclass(frozen=True)
class _Room:
    """A stage before it is known how many layers it carries."""

    shape: Shape
    devices: tuple[Device, ...]
    """One of each sort, less their names, so that equal stages are equal."""
    place: Place
    context: int
    concurrency: int


def _rooms(
    shape: Shape,
    stages: Sequence[Sequence[Device]],
    context: int,
    concurrency: int,
    *,
    expert_parallel: bool,
) -> list[_Room]:
    return [
        _Room(
            shape,
            tuple(dict.fromkeys(replace(device, host="", index=0) for device in devices)),
            Place(1, len(devices), nth == 0, nth == len(stages) - 1, expert_parallel),
            context,
            concurrency,
        )
        for nth, devices in enumerate(stages)
    ]


@lru_cache(maxsize=4096)
def _most(room: _Room) -> int:
    """The most layers that it can hold; 0 for none."""
    return bisect_left(range(1, room.shape.layers + 1), 1, key=lambda layers: _short(room, layers) > 0)


def _short(room: _Room, layers: int) -> int:
    """What it is short of, in bytes; below 0: what it has left."""
    return max(
        found.total_bytes(room.context, room.concurrency) - device.memory_bytes
        for device, found in _needs(room, layers)
    )


def _fill(room: _Room, layers: int) -> float:
    """The part of what is left for the KV cache that it takes."""
    return max(
        found.kv_bytes(room.context, room.concurrency)
        / max(1, device.memory_bytes - found.weights_bytes - found.overhead_bytes(room.concurrency))
        for device, found in _needs(room, layers)
    )


@lru_cache(maxsize=16_384)
def _needs(room: _Room, layers: int) -> list[tuple[Device, Need]]:
    """Equal stages of other candidates ask the same again."""
    place = replace(room.place, layers=layers)
    return [(device, need(room.shape, place, device, head=place.first)) for device in room.devices]


def _stage_seconds(seconds: Seconds, devices: tuple[Device, ...], last: bool, layers: int) -> float:  # noqa: FBT001
    return seconds(Stage(devices, layers), last)


def _more_seconds(seconds: Seconds, devices: tuple[Device, ...], last: bool, layers: int) -> float:  # noqa: FBT001
    """What the last of these layers adds."""
    return seconds(Stage(devices, layers), last) - seconds(Stage(devices, layers - 1), last)
