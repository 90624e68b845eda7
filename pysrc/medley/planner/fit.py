"""Whether a layout fits, how much context and concurrency."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from medley.host.facts import GIB
from medley.planner import Device, Layout, pipelines
from medley.planner.memory import BLOCK_TOKENS, SEQUENCES, MemoryNeed, PipelinePosition, batch_tokens, need
from medley.planner.partition import Workload
from medley.schema import Shape

MOST_SEQUENCES = 1024
"""Of one replica: vLLM's own largest default."""
_MIB = 1 << 20


@dataclass(frozen=True)
class Rank:
    """One device, and what it would have to hold."""

    device: Device
    replica: int
    stage: int
    need: MemoryNeed
    weights_bytes: int
    kv_bytes: int
    """Of the context and concurrency asked for."""
    overhead_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.kv_bytes + self.overhead_bytes

    @property
    def free_bytes(self) -> int:
        """Below 0: what it is short of."""
        return self.device.memory_bytes - self.total_bytes

    def __str__(self) -> str:
        parts = f"weights {gib(self.weights_bytes)} + KV cache {gib(self.kv_bytes)}"
        device = f"{self.device.host} {self.device.index}"
        return (
            f"{device}: {parts} + engine {gib(self.overhead_bytes)} = {gib(self.total_bytes)} "
            f"of {gib(self.device.memory_bytes)} GiB"
            + (f", {gib(-self.free_bytes)} short" if self.free_bytes < 0 else "")
        )


@dataclass(frozen=True)
class Fit:
    ranks: tuple[Rank, ...]
    short_bytes: int
    """What the worst rank lacks; 0 where all fit."""
    context: int
    """The largest at the concurrency asked for, up to the model's own; 0 where none fits."""
    concurrency: int
    """The largest at the context asked for, over all replicas; 0 where not even one fits."""
    kv_cache_bytes: int | None
    """What each rank is told to take (--kv-cache-memory-bytes); None where it does not fit.

    All get the same number, and the engine gives each as many blocks as the one with the fewest: so it is the
    need of the rank with the most layers.
    """
    utilization: float | None
    """The most that every rank may take of its memory (--gpu-memory-utilization, --mem-fraction-static).

    Beside the bytes too: vLLM does not start where less than this is free. None where some device's whole
    memory is not known, or where it does not fit.
    """
    utilization_does: bool
    """It is enough by itself, without the bytes: all ranks then have what they need."""
    sequences: int
    """--max-num-seqs and --max-num-batched-tokens that the numbers count on, for each replica."""
    batch_tokens: int

    @property
    def fits(self) -> bool:
        return self.short_bytes == 0

    @property
    def worst(self) -> Rank:
        return min(self.ranks, key=lambda rank: (rank.free_bytes, rank.device.host, rank.device.index))


def fit(work: Workload, layout: Layout) -> Fit:
    """What each rank needs for the sequences of this work, which replicas share, and how many it holds."""
    shape, replicas = work.shape, 1 + len(layout.replicas)
    each = -(-work.load.concurrency // replicas)
    ranks = _ranks(work, layout, each)
    # Most ranks are alike: of those with equal needs, the one with the least memory decides.
    tightest: dict[MemoryNeed, int] = {}
    for rank in ranks:
        least = tightest.get(rank.need, rank.device.memory_bytes)
        tightest[rank.need] = min(least, rank.device.memory_bytes)

    def holds(context: int, concurrency: int) -> bool:
        return all(one.total_bytes(context, concurrency) <= room for one, room in tightest.items())

    blocks = largest(math.ceil(shape.context / BLOCK_TOKENS), lambda count: holds(count * BLOCK_TOKENS, each))
    short = max((0, *(-rank.free_bytes for rank in ranks)))
    share = None if short else utilization([rank.device for rank in ranks])
    return Fit(
        ranks=ranks,
        short_bytes=short,
        context=min(shape.context, blocks * BLOCK_TOKENS),
        concurrency=replicas * largest(MOST_SEQUENCES, lambda count: holds(work.context, count)),
        kv_cache_bytes=None if short else _kv_cache_bytes(ranks),
        utilization=share,
        utilization_does=share is not None
        and all(rank.total_bytes <= share * (rank.device.total_bytes or 0) for rank in ranks),
        sequences=_sequences(shape, ranks, each),
        batch_tokens=batch_tokens(shape),
    )


def _sequences(shape: Shape, ranks: Sequence[Rank], each: int) -> int:
    """Return how many may run at once; where an engine reserves their states, half of the memory left."""
    if shape.state_copies.most == 1:
        return max(SEQUENCES, each)
    rooms = (
        (rank.device.memory_bytes - rank.weights_bytes - rank.overhead_bytes) // 2 // rank.need.state_bytes
        for rank in ranks
        if rank.need.state_bytes
    )
    return max(each, min((SEQUENCES, *rooms)))


def _ranks(work: Workload, layout: Layout, sequences: int) -> tuple[Rank, ...]:
    """Each with what it needs for so many sequences of its replica."""
    found = []
    for replica, stages in enumerate(pipelines(layout)):
        for nth, stage in enumerate(stages):
            place = PipelinePosition(
                stage.layers, len(stage.devices), nth == 0, nth == len(stages) - 1, layout.expert_parallel
            )
            # The API server runs beside the first rank; which device of the first stage that is, Ray decides.
            needs = {
                kind: need(work.shape, place, kind) for kind in {device.kind for device in stage.devices}
            }
            for device in stage.devices:
                one = needs[device.kind]
                kv, overhead = one.kv_bytes(work.context, sequences), one.overhead_bytes(sequences)
                found.append(Rank(device, replica, nth, one, one.weights_bytes, kv, overhead))
    return tuple(found)


def _kv_cache_bytes(ranks: tuple[Rank, ...]) -> int:
    """All that the tightest rank has left, as the rank with the largest cache needs it."""
    wanted = max(rank.kv_bytes for rank in ranks)
    growth = min(
        (
            (rank.device.memory_bytes - rank.weights_bytes - rank.overhead_bytes) / rank.kv_bytes
            for rank in ranks
            if rank.kv_bytes
        ),
        default=1.0,
    )
    return max(wanted, int(wanted * growth) // _MIB * _MIB)


def utilization(devices: Sequence[Device]) -> float | None:
    """The share of its memory that each of them may take; None where a device's whole memory is not known."""
    shares = [device.memory_bytes / device.total_bytes for device in devices if device.total_bytes]
    # A device's memory was cut from a share, down to whole bytes.
    return math.floor(min(shares) * 100 + 1e-6) / 100 if len(shares) == len(devices) else None


def largest(most: int, holds: Callable[[int], bool]) -> int:
    """The largest number up to `most` for which it holds, as it does for all below; 0 for none."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def gib(size_bytes: float) -> str:
    return f"{size_bytes / GIB:.1f}"
