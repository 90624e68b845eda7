"""Tokens per second and time to first token, by the roofline of each pass over a stage."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from statistics import NormalDist

from medley.planner import Device, HostLink, Layout, Load, Stage, on_cpu, pipelines
from medley.planner.device_specs import (
    LOCAL_GB_S,
    MANY_STREAMS,
    ONE_STREAM,
    PIECE_BYTES,
    PROMPTS,
    SHIPPED,
    WIRE,
    Efficiency,
    HeldOut,
    pace,
    peers,
    reached,
    step_pace,
)
from medley.planner.memory import batch_tokens, token_layer_bytes
from medley.planner.partition import Seconds, Timed
from medley.schema import Shape

_GIGA, _MICRO = 1e9, 1e-6
_WIDE = 2  # bytes of an activation


@dataclass(frozen=True)
class Prediction:
    ttft_s: float
    """From a prompt to its first token, when it need not wait for others."""
    tokens_per_s: float
    """Of all streams, while they are answered."""
    per_stream: float
    low: float
    high: float
    """Between them lay as many measurements as `held_out` says."""
    bound: str
    """What takes most of a step, in words."""
    stage_s: tuple[float, ...]
    """A step's time on each stage of the first pipeline, for the streams it handles at once."""
    prefill_tokens_per_s: float
    """Prompts read when they queue up."""
    fitted: bool = True
    """To measurements of such devices: none is of a CPU."""
    held_out: HeldOut = ONE_STREAM
    """What the range of tokens_per_s held of measurements that the fit had not seen."""
    held_out_prompts: HeldOut = PROMPTS
    """The same of prompts, for ttft_s."""

    @property
    def ttft_range_s(self) -> tuple[float, float]:
        return self.ttft_s / self.held_out_prompts.high, self.ttft_s / self.held_out_prompts.low


@dataclass(frozen=True)
class Given:
    """What holds for every stage of a layout."""

    shape: Shape
    link: HostLink | None
    efficiency: Efficiency
    chunk_tokens: int = 0
    """Tokens of a prompt in one pass."""


@dataclass(frozen=True)
class TokenBatch:
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


@dataclass(frozen=True)
class _Pipeline:
    """One copy of the model at its load: what a step costs on each stage, and between them."""

    passes: tuple[Pass, ...]
    between_s: float
    groups: float
    """Micro-batches under way at once; with one stream its stages take turns."""
    first_token_s: float
    prefill_tokens_per_s: float

    @property
    def cycle_s(self) -> float:
        """Until every stream has one more token: the slowest stage's work for all, or one round trip."""
        times = [each.seconds for each in self.passes]
        return max(sum(times) + self.between_s, self.groups * max(times))


def predict(
    shape: Shape,
    layout: Layout,
    load: Load,
    efficiency: Efficiency = SHIPPED,
    *,
    chunk_tokens: int | None = None,
) -> Prediction:
    """The roofline of `shape` lying as `layout` says, under `load`.

    chunk_tokens: of a prompt in one pass; None: as many as a launch by medley says.
    """
    copies = pipelines(layout)
    share, streams = load.concurrency / len(copies), _busiest(load.concurrency, len(copies))
    given = Given(shape, layout.link, efficiency, chunk_tokens or batch_tokens(shape))
    # Copies of equal stages are equally fast.
    alike = [tuple((_stage_sort(stage.devices), stage.layers) for stage in stages) for stages in copies]
    unlike = dict(reversed([*zip(alike, copies, strict=True)]))
    known = {key: _pipeline(given, stages, streams, load) for key, stages in unlike.items()}
    found = [known[key] for key in alike]
    total = share * sum(1 / each.cycle_s for each in found)
    held_out = ONE_STREAM if load.concurrency == 1 else MANY_STREAMS
    return Prediction(
        ttft_s=max(each.first_token_s for each in found),
        tokens_per_s=total,
        per_stream=total / load.concurrency,
        low=total * held_out.low,
        high=total * held_out.high,
        bound=_bound(found[0]),
        stage_s=tuple(each.seconds for each in found[0].passes),
        prefill_tokens_per_s=sum(each.prefill_tokens_per_s for each in found),
        fitted=not on_cpu(layout),
        held_out=held_out,
    )


def timed(shape: Shape, load: Load, efficiency: Efficiency = SHIPPED) -> Timed:
    """What the layers of a pipeline are cut by: the time of a step that gives each sequence one token."""

    @cache
    def over(sequences: int, link: HostLink | None) -> Seconds:
        given = Given(shape, link, efficiency)
        batch = TokenBatch(sequences, sequences, load.context_tokens)

        @cache
        def lines(devices: tuple[Device, ...], last: bool) -> list[tuple[float, float]]:  # noqa: FBT001
            """Of each sort of device: what a stage costs besides its layers, and a layer."""
            found = []
            for device in {_sort(device): device for device in devices}.values():
                one, two = (
                    _device_pass(given, Stage(devices, layers), device, batch, last=last).seconds
                    for layers in (1, 2)
                )
                found.append((2 * one - two, two - one))
            return found

        return lambda stage, last: max(
            rest + stage.layers * layer for rest, layer in lines(stage.devices, last)
        )

    return over


def _busiest(streams: float, copies: int) -> float:
    """Streams of the busiest copy, at least one, where each stream goes to any of them by chance.

    The mean and the largest of so many normal deviates (Blom, 1958). Of even sharing two Sparks behind a
    router reached 76 to 94 %, this says 78 to 95 %: source: kubis.ai's three topology benchmarks, 2026.
    """
    share = streams / copies
    deviate = NormalDist().inv_cdf((copies - 0.375) / (copies + 0.25))
    return max(1.0, share + deviate * math.sqrt(share * (1 - 1 / copies)))


def _pipeline(given: Given, stages: Sequence[Stage], streams: float, load: Load) -> _Pipeline:
    groups = min(float(len(stages)), streams)
    batch = TokenBatch(streams / groups, streams / groups, load.context_tokens)
    passes = _passes(given, stages, batch)
    between_s = _between_s(given, stages, batch.tokens)
    return _Pipeline(
        passes=passes,
        between_s=between_s,
        groups=groups,
        first_token_s=_prefill_s(given, stages, 1.0, load) + sum(each.seconds for each in passes) + between_s,
        prefill_tokens_per_s=streams * load.prompt_tokens / _prefill_s(given, stages, streams, load),
    )


def _passes(given: Given, stages: Sequence[Stage], batch: TokenBatch) -> tuple[Pass, ...]:
    last = len(stages) - 1
    return tuple(stage_pass(given, stage, batch, last=at == last) for at, stage in enumerate(stages))


def _prefill_s(given: Given, stages: Sequence[Stage], prompts: float, load: Load) -> float:
    """Prompts read in pieces, which follow each other through the stages."""
    tokens = prompts * load.prompt_tokens
    pieces = max(1, math.ceil(tokens / given.chunk_tokens))
    before = load.cached_tokens + load.prompt_tokens / 2
    batch = TokenBatch(tokens / pieces, max(1.0, prompts / pieces), before)
    times = [each.seconds for each in _passes(given, stages, batch)]
    return sum(times) + (pieces - 1) * max(times) + _between_s(given, stages, batch.tokens)


def _between_s(given: Given, stages: Sequence[Stage], tokens: float) -> float:
    """Hops from stage to stage, and what the engine does between two steps on the slowest of its hosts."""
    devices = [device for stage in stages for device in stage.devices]
    slowest = min(step_pace(device.kind, given.efficiency) for device in devices)
    # Two tensors a hop, for the residual travels beside the activations.
    hop = _call_s(given, given.link, 2 * tokens * given.shape.hidden * _WIDE, 1, direct=_direct(devices))
    return (len(stages) - 1) * hop + given.efficiency.step_us * _MICRO / slowest


def stage_pass(given: Given, stage: Stage, batch: TokenBatch, *, last: bool) -> Pass:
    """What `batch` costs on `stage`; the last one has the output head too."""
    sorts = {_sort(device): device for device in reversed(stage.devices)}
    passes = (_device_pass(given, stage, device, batch, last=last) for device in sorts.values())
    return max(passes, key=lambda each: each.seconds)


def _stage_sort(devices: Sequence[Device]) -> Hashable:
    """All that makes a stage of these devices faster or slower than another of as many layers."""
    return len(devices), len({device.host for device in devices}), frozenset(map(_sort, devices))


def _sort(device: Device) -> Hashable:
    return device.kind, device.name, device.bandwidth_gb_s, device.bf16_tflops, device.measured


def _device_pass(given: Given, stage: Stage, device: Device, batch: TokenBatch, *, last: bool) -> Pass:
    shape, efficiency, ranks = given.shape, given.efficiency, len(stage.devices)
    part, speed = stage.layers / shape.layers, reached(device, shape.weights, efficiency)
    weight_bytes = stage.layers * _layer_bytes(shape, batch.tokens, efficiency.routing) / ranks
    weight_bytes += (shape.head_bytes or shape.embedding_bytes) / ranks if last else 0.0
    # Tokens that attention looks back at, over all layers.
    whole = shape.layers - shape.windowed_layers if shape.attention_layers is None else shape.attention_layers
    near = min(batch.context_tokens, shape.window or 0)
    attended = whole * batch.context_tokens + shape.windowed_layers * near
    stream_bytes = whole * batch.context_tokens * token_layer_bytes(shape, ranks)
    stream_bytes += shape.windowed_layers * near * token_layer_bytes(shape, ranks, windowed=True)
    stream_bytes += 2.0 * shape.state_bytes / ranks  # a state is written back too
    # Two for each weight a token meets, four for each pair of values attention compares.
    compared = shape.heads * shape.head_dim * attended
    operations = batch.tokens * (2 * shape.active_parameters + 4 * compared)
    return Pass(
        weights=weight_bytes / speed.weights,
        cache=part * batch.streams * stream_bytes / speed.cache,
        operations=part / ranks * operations / speed.operations,
        kernels=stage.layers * efficiency.layer_us * _MICRO / pace(device.kind, efficiency),
        collectives=collectives_s(given, stage, batch, last=last),
        weight_bytes=weight_bytes,
        slowest=device,
    )


def _layer_bytes(shape: Shape, tokens: float, routing: float) -> float:
    """Bytes of a layer that a pass reads: from one token's to all of them as more experts are met."""
    if not 0 < shape.experts_per_token < shape.experts:
        return shape.active_layer_bytes
    one = shape.experts_per_token / shape.experts
    met: float = 1 - (1 - one) ** (max(tokens, 1.0) ** routing)
    rest = shape.layer_bytes - shape.active_layer_bytes
    return shape.active_layer_bytes + rest * (met - one) / (1 - one)


def collectives_s(given: Given, stage: Stage, batch: TokenBatch, *, last: bool) -> float:
    """Two all-reduces a layer and one for the embedding; on the last stage logits are gathered."""
    ranks, hosts = len(stage.devices), len({device.host for device in stage.devices})
    if ranks == 1:
        return 0.0
    link, crossings = given.link if hosts > 1 else None, hosts - 1
    part = (ranks - 1) / ranks * _WIDE
    call = partial(_call_s, given, link, direct=_direct(stage.devices))
    reduces = call(2 * part * batch.tokens * given.shape.hidden, 2 * crossings) * (2 * stage.layers + 1)
    return reduces + (call(part * batch.streams * given.shape.vocabulary, crossings) if last else 0.0)


def _direct(devices: Sequence[Device]) -> bool:
    """Whether they reach each other's data as it lies: CPUs, and GPUs of one host if not GeForce."""
    together = len({device.host for device in devices}) == 1 and all(peers(device.name) for device in devices)
    return together or all(device.kind == "cpu" for device in devices)


def _call_s(
    given: Given, link: HostLink | None, message: float, crossings: int, *, direct: bool = False
) -> float:
    """A collective or a hop. Unless `direct`, NCCL stages it in hosts' memory; a first piece is awaited."""
    staged = 0.0 if direct else min(message, PIECE_BYTES) / (given.efficiency.staged_gb_s * _GIGA)
    if link is None:
        return given.efficiency.local_us * _MICRO + staged + message / (LOCAL_GB_S * _GIGA)
    started = given.efficiency.rdma_us if link.rdma else given.efficiency.tcp_us
    wire = link.mbit * 1e6 / 8
    if link.measured:
        return crossings * link.latency_us * _MICRO + staged + message / wire
    return (started + crossings * link.latency_us) * _MICRO + staged + message / (wire * WIRE)


def _bound(pipeline: _Pipeline) -> str:
    """The largest part of a step, with its numbers, and how the stages take turns."""
    passes, times = pipeline.passes, [each.seconds for each in pipeline.passes]
    full = pipeline.groups * max(times) >= sum(times) + pipeline.between_s
    busiest = max(range(len(passes)), key=times.__getitem__)
    counted, between_s = ([passes[busiest]], 0.0) if full else (passes, pipeline.between_s)
    slowest = max(counted, key=lambda each: each.weights).slowest
    read = sum(each.weight_bytes for each in counted) / 1e9
    origin = "measured" if slowest.measured else "stated"
    weights = (
        f"reading {read:.2f} GB of weights at {slowest.bandwidth_gb_s:.0f} GB/s {origin} ({slowest.host})"
    )
    parts = {
        weights: sum(each.weights for each in counted),
        "reading the KV cache": sum(each.cache for each in counted),
        "multiplying": sum(each.operations for each in counted),
        "starting kernels": sum(each.kernels for each in counted),
        "all-reduces between devices": sum(each.collectives for each in counted),
        "the engine between steps, and hops between stages": between_s,
    }
    words, seconds = max(parts.items(), key=lambda part: part[1])
    whole = sum(each.seconds for each in counted) + between_s
    bound = f"{words}: {seconds * 1000:.1f} of {whole * 1000:.1f} ms a step"
    if len(passes) == 1:
        return bound
    if full:
        return f"{bound}; stage {busiest + 1} of {len(passes)} is always busy and the others wait for it"
    if pipeline.groups > 1:
        return f"{bound}; the {len(passes)} stages work concurrently, each on its own group of streams"
    return f"{bound}; the {len(passes)} stages take turns"
