"""Compute whether a layout fits, and how much context and how many streams it holds."""

import math
from collections.abc import Callable, Sequence

from medley.host.facts import GIB
from medley.planner import Device, Layout, list_pipelines
from medley.planner.memory import (
    BLOCK_TOKENS,
    DEFAULT_SEQUENCES,
    MemoryNeed,
    PipelinePosition,
    compute_batch_tokens,
    compute_memory_need,
    compute_utilization,
)
from medley.planner.partition import Workload
from medley.schema import Shape
from medley.values import Value

MAX_SEQUENCES = 1024
"""The largest number of sequences of one replica, which is the largest default of vLLM."""
_MIB = 1 << 20


class Rank(Value):
    """One device, and the memory that its part of the model needs."""

    device: Device
    replica: int
    stage: int
    need: MemoryNeed
    weights_bytes: int
    kv_bytes: int
    """The KV cache for the requested context and concurrency."""
    overhead_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.kv_bytes + self.overhead_bytes

    @property
    def free_bytes(self) -> int:
        """The bytes that stay free; below 0, the bytes that are missing."""
        return self.device.memory_bytes - self.total_bytes

    def __str__(self) -> str:
        parts = f"weights {format_gib(self.weights_bytes)} + KV cache {format_gib(self.kv_bytes)}"
        device = f"{self.device.host} {self.device.index}"
        return (
            f"{device}: {parts} + engine {format_gib(self.overhead_bytes)} = {format_gib(self.total_bytes)} "
            f"of {format_gib(self.device.memory_bytes)} GiB"
            + (f", {format_gib(-self.free_bytes)} short" if self.free_bytes < 0 else "")
        )


class Fit(Value):
    """The memory of each rank of a layout, and the limits that an engine gets for it."""

    ranks: tuple[Rank, ...]
    short_bytes: int
    """The bytes that the tightest rank lacks; 0 if all ranks fit."""
    context: int
    """The longest context at the requested concurrency, up to the model's own; 0 if none fits."""
    concurrency: int
    """The most streams at the requested context, over all replicas; 0 if not even one fits."""
    kv_cache_bytes: int | None
    """The KV cache of each rank (--kv-cache-memory-bytes); None if the layout does not fit.

    All ranks get the same number, and the engine gives each rank as many blocks as the rank with the fewest
    has. So the number is the need of the rank with the most layers.
    """
    utilization: float | None
    """The share of its memory that every rank may take (--gpu-memory-utilization, --mem-fraction-static).

    It goes with the bytes too, because vLLM does not start if less than this share is free. None if the whole
    memory of a device is unknown, or if the layout does not fit.
    """
    utilization_does: bool
    """Whether `utilization` alone is enough, so that the engine needs no `kv_cache_bytes`."""
    sequences: int
    """The --max-num-seqs of each replica that these numbers hold for."""
    batch_tokens: int
    """The --max-num-batched-tokens of each replica that these numbers hold for."""

    @property
    def fits(self) -> bool:
        """Whether every rank has enough memory."""
        return self.short_bytes == 0

    @property
    def worst(self) -> Rank:
        """The rank with the least free memory."""
        return min(self.ranks, key=lambda rank: (rank.free_bytes, rank.device.host, rank.device.index))


def compute_fit(workload: Workload, layout: Layout) -> Fit:
    """Return the memory of each rank for the workload, whose streams the replicas share, and its limits."""
    shape, replicas = workload.shape, len(list_pipelines(layout))
    streams = -(-workload.load.concurrency // replicas)
    ranks = _list_ranks(workload, layout, streams)
    # Only the rank with the least memory of those with equal needs is checked, because most ranks are alike.
    tightest: dict[MemoryNeed, int] = {}
    for rank in ranks:
        least_bytes = tightest.get(rank.need, rank.device.memory_bytes)
        tightest[rank.need] = min(least_bytes, rank.device.memory_bytes)

    def fits(context: int, concurrency: int) -> bool:
        return all(
            rank_need.compute_total_bytes(context, concurrency) <= memory_bytes
            for rank_need, memory_bytes in tightest.items()
        )

    max_blocks = math.ceil(shape.context / BLOCK_TOKENS)
    blocks = find_largest(max_blocks, lambda count: fits(count * BLOCK_TOKENS, streams))
    missing_bytes = max((0, *(-rank.free_bytes for rank in ranks)))
    share = None if missing_bytes else compute_utilization([rank.device for rank in ranks])
    return Fit(
        ranks=ranks,
        short_bytes=missing_bytes,
        context=min(shape.context, blocks * BLOCK_TOKENS),
        concurrency=replicas * find_largest(MAX_SEQUENCES, lambda count: fits(workload.context, count)),
        kv_cache_bytes=None if missing_bytes else _compute_kv_cache_bytes(ranks),
        utilization=share,
        utilization_does=share is not None
        and all(rank.total_bytes <= share * (rank.device.total_bytes or 0) for rank in ranks),
        sequences=_compute_sequences(shape, ranks, streams),
        batch_tokens=compute_batch_tokens(shape),
    )


def _compute_sequences(shape: Shape, ranks: Sequence[Rank], streams: int) -> int:
    """Return how many sequences may run; states that an engine reserves get half of the free memory."""
    if shape.state_copies.most == 1:
        return max(DEFAULT_SEQUENCES, streams)
    state_counts = (
        (rank.device.memory_bytes - rank.weights_bytes - rank.overhead_bytes) // 2 // rank.need.state_bytes
        for rank in ranks
        if rank.need.state_bytes
    )
    return max(streams, min((DEFAULT_SEQUENCES, *state_counts)))


def _list_ranks(workload: Workload, layout: Layout, sequences: int) -> tuple[Rank, ...]:
    """Return the ranks of a layout with the memory that they need for so many sequences of each replica."""
    ranks = []
    for replica, stages in enumerate(list_pipelines(layout)):
        for nth, stage in enumerate(stages):
            position = PipelinePosition(
                stage.layers, len(stage.devices), nth == 0, nth == len(stages) - 1, layout.expert_parallel
            )
            # The API server runs next to the first rank; Ray decides which device of the first stage that is.
            needs = {
                kind: compute_memory_need(workload.shape, position, kind)
                for kind in {device.kind for device in stage.devices}
            }
            for device in stage.devices:
                rank_need = needs[device.kind]
                kv_bytes = rank_need.compute_kv_bytes(workload.context, sequences)
                overhead_bytes = rank_need.compute_overhead_bytes(sequences)
                weights_bytes = rank_need.weights_bytes
                ranks.append(Rank(device, replica, nth, rank_need, weights_bytes, kv_bytes, overhead_bytes))
    return tuple(ranks)


def _compute_kv_cache_bytes(ranks: tuple[Rank, ...]) -> int:
    """Return the KV cache of the rank with the most layers when the tightest rank is full."""
    needed_bytes = max(rank.kv_bytes for rank in ranks)
    growth = min(
        (
            (rank.device.memory_bytes - rank.weights_bytes - rank.overhead_bytes) / rank.kv_bytes
            for rank in ranks
            if rank.kv_bytes
        ),
        default=1.0,
    )
    return max(needed_bytes, int(needed_bytes * growth) // _MIB * _MIB)


def find_largest(maximum: int, condition: Callable[[int], bool]) -> int:
    """Return the largest number up to `maximum` that meets the condition, as all below it do; 0 for none."""
    low, high = 0, maximum
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if condition(middle) else (low, middle - 1)
    return low


def format_gib(size_bytes: float) -> str:
    """Return the size in GiB with one decimal, without the unit."""
    return f"{size_bytes / GIB:.1f}"
