"""What one pass over a pipeline stage costs: bytes, operations, kernels, collectives, each in seconds."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from medley.efficiency import (
    LOCAL_GB_S,
    LOCAL_REDUCE_US,
    PIECE_BYTES,
    WIRE,
    Efficiency,
    pace,
    peers,
    reached,
    step_pace,
)
from medley.layout.shapes import Device, Link, Stage
from medley.layout.split import Seconds
from medley.tables import Shape

_GIGA, _MICRO = 1e9, 1e-6
_WIDE = 2  # bytes of an activation
_16_BITS = 16


@dataclass(frozen=True)
class Given:
    """What holds for every stage of a layout."""

    shape: Shape
    link: Link | None
    efficiency: Efficiency


@dataclass(frozen=True)
class Batch:
    """What goes through a stage at once: a token of each stream, or a piece of a prompt."""

    tokens: float
    streams: float
    context_tokens: float
    """Of each stream, at the time."""


@dataclass(frozen=True)
class Pass:
    """Seconds of a stage's slowest device; nothing is taken to overlap."""

    weights: float
    cache: float
    operations: float
    kernels: float
    collectives: float
    weight_bytes: float
    """Per device."""
    slowest: Device

    @property
    def seconds(self) -> float:
        return self.weights + self.cache + self.operations + self.kernels + self.collectives


def stage_pass(given: Given, stage: Stage, batch: Batch, *, last: bool) -> Pass:
    """What `batch` costs on `stage`; the last one has the output head too."""
    sorts = {_sort(device): device for device in reversed(stage.devices)}
    passes = (_device_pass(given, stage, device, batch, last=last) for device in sorts.values())
    return max(passes, key=lambda each: each.seconds)


def stage_seconds(given: Given, batch: Batch) -> Seconds:
    """The same as split asks for it, again and again: with each layer a device's time grows by as much."""
    known: dict[tuple[tuple[Device, ...], bool], Sequence[tuple[float, float]]] = {}
    alike: dict[tuple[Hashable, bool], Sequence[tuple[float, float]]] = {}

    def seconds(stage: Stage, last: bool) -> float:  # noqa: FBT001
        devices = (stage.devices, last)
        if devices not in known:
            unit = (sort(stage.devices), last)
            if unit not in alike:
                alike[unit] = list(_lines(given, stage.devices, batch, last=last))
            known[devices] = alike[unit]
        return max(rest + stage.layers * layer for rest, layer in known[devices])

    return seconds


def sort(devices: Sequence[Device]) -> Hashable:
    """All that makes a stage of these devices faster or slower than another of as many layers."""
    return len(devices), len({device.host for device in devices}), frozenset(map(_sort, devices))


def _sort(device: Device) -> Hashable:
    return device.kind, device.name, device.bandwidth_gb_s, device.bf16_tflops, device.measured


def _lines(
    given: Given, devices: tuple[Device, ...], batch: Batch, *, last: bool
) -> Iterator[tuple[float, float]]:
    """Of each sort of device: what a stage costs besides its layers, and a layer."""
    for device in {_sort(device): device for device in devices}.values():
        one, two = (
            _device_pass(given, Stage(devices, layers), device, batch, last=last).seconds for layers in (1, 2)
        )
        yield 2 * one - two, two - one


def _device_pass(given: Given, stage: Stage, device: Device, batch: Batch, *, last: bool) -> Pass:
    shape, efficiency, ranks = given.shape, given.efficiency, len(stage.devices)
    part, speed = stage.layers / shape.layers, reached(device, shape.weights, efficiency)
    weight_bytes = stage.layers * layer_bytes(shape, batch.tokens, efficiency.routing) / ranks
    weight_bytes += head_bytes(shape) / ranks if last else 0.0
    cache_bytes = part * cache_share(shape, ranks) * batch.streams * sequence_bytes(shape, batch)
    return Pass(
        weights=weight_bytes / speed.weights,
        cache=cache_bytes / speed.cache,
        operations=part / ranks * operations(shape, batch) / speed.operations,
        kernels=stage.layers * efficiency.layer_us * _MICRO / pace(device.kind, efficiency),
        collectives=collectives_s(given, stage, batch, last=last),
        weight_bytes=weight_bytes,
        slowest=device,
    )


def layer_bytes(shape: Shape, tokens: float, routing: float) -> float:
    """Bytes of a layer that a pass reads: from one token's to all of them as more experts are met."""
    if not 0 < shape.experts_per_token < shape.experts:
        return shape.active_layer_bytes
    one = shape.experts_per_token / shape.experts
    met: float = 1 - (1 - one) ** (max(tokens, 1.0) ** routing)
    rest = shape.layer_bytes - shape.active_layer_bytes
    return shape.active_layer_bytes + rest * (met - one) / (1 - one)


def head_bytes(shape: Shape) -> int:
    return shape.head_bytes or shape.embedding_bytes


def sequence_bytes(shape: Shape, batch: Batch) -> float:
    """Of one stream's KV cache and state, as a pass over all layers reads it (state is written back too)."""
    row = (shape.kv_bytes_per_token or 2 * shape.kv_heads * shape.head_dim * _WIDE) * shape.kv_bits / _16_BITS
    return row * _attended(shape, batch.context_tokens) + 2.0 * shape.state_bytes


def _attended(shape: Shape, context_tokens: float) -> float:
    """Tokens that attention looks back at, over all layers."""
    whole = shape.layers - shape.windowed_layers if shape.attention_layers is None else shape.attention_layers
    return whole * context_tokens + shape.windowed_layers * min(context_tokens, shape.window or 0)


def cache_share(shape: Shape, ranks: int) -> float:
    """Of the KV cache on one of `ranks` devices: a head is never cut, and MLA's one latent is on each."""
    return 1.0 if shape.kv_bytes_per_token else max(1 / ranks, 1 / shape.kv_heads)


def operations(shape: Shape, batch: Batch) -> float:
    """Of all layers: two for each weight a token meets, four for each pair of values attention compares."""
    compared = shape.heads * shape.head_dim * _attended(shape, batch.context_tokens)
    return batch.tokens * (2 * shape.active_parameters + 4 * compared)


def collectives_s(given: Given, stage: Stage, batch: Batch, *, last: bool) -> float:
    """Two all-reduces a layer and one for the embedding; on the last stage logits are gathered."""
    ranks, hosts = len(stage.devices), len({device.host for device in stage.devices})
    if ranks == 1:
        return 0.0
    link, crossings = given.link if hosts > 1 else None, hosts - 1
    part = (ranks - 1) / ranks * _WIDE
    call = partial(_call_s, given, link, direct=_direct(stage.devices))
    reduces = call(2 * part * batch.tokens * given.shape.hidden, 2 * crossings) * (2 * stage.layers + 1)
    return reduces + (call(part * batch.streams * given.shape.vocabulary, crossings) if last else 0.0)


def hop_s(given: Given, devices: Sequence[Device], tokens: float) -> float:
    """From one pipeline stage to the next: two tensors, for the residual travels beside the activations."""
    return _call_s(given, given.link, 2 * tokens * given.shape.hidden * _WIDE, 1, direct=_direct(devices))


def _direct(devices: Sequence[Device]) -> bool:
    """Whether they reach each other's data as it lies: CPUs, and GPUs of one host if not GeForce."""
    together = len({device.host for device in devices}) == 1 and all(peers(device.name) for device in devices)
    return together or all(device.kind == "cpu" for device in devices)


def step_s(given: Given, stages: Sequence[Stage]) -> float:
    """What the engine does between two steps, on the slowest of its hosts."""
    slowest = min(step_pace(device.kind, given.efficiency) for stage in stages for device in stage.devices)
    return given.efficiency.step_us * _MICRO / slowest


def _call_s(
    given: Given, link: Link | None, message: float, crossings: int, *, direct: bool = False
) -> float:
    """A collective or a hop. Unless `direct`, NCCL stages it in hosts' memory; a first piece is awaited."""
    staged = 0.0 if direct else min(message, PIECE_BYTES) / (given.efficiency.staged_gb_s * _GIGA)
    if link is None:
        return LOCAL_REDUCE_US * _MICRO + staged + message / (LOCAL_GB_S * _GIGA)
    started = given.efficiency.rdma_us if link.rdma else given.efficiency.tcp_us
    wire = link.mbit * 1e6 / 8
    if link.measured:
        return crossings * link.latency_us * _MICRO + staged + message / wire
    return (started + crossings * link.latency_us) * _MICRO + staged + message / (wire * WIRE)
