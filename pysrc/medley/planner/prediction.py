"""Predict tokens per second and time to first token, by the roofline of each pass over a stage."""

import math
from collections.abc import Hashable, Sequence
from functools import cache, cached_property, partial
from statistics import NormalDist

from medley.network.fabric.speed import NETWORK_SHARE
from medley.planner import Device, HostLink, Layout, Load, Stage, list_pipelines, runs_on_cpu
from medley.planner.device_specs import (
    LOCAL_GB_S,
    MANY_STREAMS_RANGE,
    ONE_STREAM_RANGE,
    PIECE_BYTES,
    PROMPTS_RANGE,
    SHIPPED_EFFICIENCY,
    Efficiency,
    HeldOutRange,
    compute_pace,
    compute_reached_speed,
    compute_step_pace,
    has_peer_access,
)
from medley.planner.memory import compute_batch_tokens, compute_read_layer_bytes, compute_token_layer_bytes
from medley.planner.partition import StageTimer
from medley.schema import Shape
from medley.values import Value

_GIGA, _MICRO = 1e9, 1e-6
_ACTIVATION_BYTES = 2


class Prediction(Value):
    """The predicted speed of a layout under a load."""

    ttft_s: float
    """Seconds from a prompt to its first token, if it does not wait for other prompts."""
    tokens_per_s: float
    """Tokens per second of all streams, while they are answered."""
    per_stream: float
    """Tokens per second of one stream."""
    low: float
    """Lower end of the range of `tokens_per_s`; `held_out` counts the measurements inside."""
    high: float
    """Upper end of this range."""
    bottleneck: str
    """The part of a step that takes the longest, with its numbers."""
    stage_s: tuple[float, ...]
    """Seconds of a step on each stage of the first pipeline, for the streams of one micro-batch."""
    prefill_tokens_per_s: float
    """Tokens of prompts read per second, if prompts wait in a queue."""
    is_calibrated: bool = True
    """Whether measurements of such devices calibrate it; CPUs were not measured."""
    held_out: HeldOutRange = ONE_STREAM_RANGE
    """The measurements inside the range of `tokens_per_s`, none of which the fit used."""
    held_out_prompts: HeldOutRange = PROMPTS_RANGE
    """The measurements inside the range of `ttft_s`."""

    @property
    def ttft_range_s(self) -> tuple[float, float]:
        """The range of `ttft_s`."""
        # The held-out range is of speeds, and a time is the inverse of a speed.
        return self.ttft_s / self.held_out_prompts.high, self.ttft_s / self.held_out_prompts.low


class PassConditions(Value):
    """The conditions that are the same for every stage of a layout."""

    shape: Shape
    link: HostLink | None
    efficiency: Efficiency
    chunk_tokens: int = 0
    """Tokens of a prompt in one pass."""


class TokenBatch(Value):
    """The tokens in one pass over a stage: a token of each stream, or a piece of a prompt."""

    tokens: float
    streams: float
    context_tokens: float
    """Tokens of each stream that attention reads."""


class Pass(Value):
    """The seconds of each part of a pass on a stage's slowest device; parts do not overlap."""

    weights_s: float
    cache_s: float
    operations_s: float
    kernels_s: float
    collectives_s: float
    weight_bytes: float
    """Bytes of weights that each device reads."""
    slowest: Device

    @property
    def seconds(self) -> float:
        """The time of the whole pass."""
        return self.weights_s + self.cache_s + self.operations_s + self.kernels_s + self.collectives_s


class _PipelineSpeed(Value):
    """The speed of one copy of the model: the time of a step on each stage, and between stages."""

    passes: tuple[Pass, ...]
    between_s: float
    micro_batches: float
    """Micro-batches that are in different stages; with one stream the stages take turns."""
    first_token_s: float
    prefill_tokens_per_s: float

    @property
    def cycle_s(self) -> float:
        """Seconds until every stream has one more token: the slowest stage's work, or one round trip."""
        times = [stage_pass.seconds for stage_pass in self.passes]
        return max(sum(times) + self.between_s, self.micro_batches * max(times))


def predict_speed(
    shape: Shape,
    layout: Layout,
    load: Load,
    efficiency: Efficiency = SHIPPED_EFFICIENCY,
    *,
    chunk_tokens: int | None = None,
) -> Prediction:
    """Predict the speed of a model in this layout under this load.

    `chunk_tokens`: the tokens of a prompt in one pass; None: as many as medley's launches set.
    """
    pipelines = list_pipelines(layout)
    mean_streams = load.concurrency / len(pipelines)
    busiest_streams = _count_busiest_streams(load.concurrency, len(pipelines))
    conditions = PassConditions(shape, layout.link, efficiency, chunk_tokens or compute_batch_tokens(shape))
    # Pipelines of equal stages are equally fast.
    keys = [tuple(map(_compute_stage_key, stages)) for stages in pipelines]
    speed_by_key: dict[Hashable, _PipelineSpeed] = {}
    for key, stages in zip(keys, pipelines, strict=True):
        if key not in speed_by_key:
            speed_by_key[key] = _predict_pipeline(conditions, stages, busiest_streams, load)
    speeds = [speed_by_key[key] for key in keys]
    # The mean streams at the pace of the busiest: `_count_busiest_streams` compares that with measurements.
    total = mean_streams * sum(1 / speed.cycle_s for speed in speeds)
    held_out = ONE_STREAM_RANGE if load.concurrency == 1 else MANY_STREAMS_RANGE
    return Prediction(
        ttft_s=max(speed.first_token_s for speed in speeds),
        tokens_per_s=total,
        per_stream=total / load.concurrency,
        low=total * held_out.low,
        high=total * held_out.high,
        bottleneck=_describe_bottleneck(speeds[0]),
        stage_s=tuple(stage_pass.seconds for stage_pass in speeds[0].passes),
        prefill_tokens_per_s=sum(speed.prefill_tokens_per_s for speed in speeds),
        is_calibrated=not runs_on_cpu(layout),
        held_out=held_out,
    )


class PredictedStageTimerFactory(Value):
    """Builds the timers by which layers are cut: the time of a step that gives each sequence one token."""

    shape: Shape
    load: Load
    efficiency: Efficiency = SHIPPED_EFFICIENCY

    @cached_property
    def _timers(self) -> dict[tuple[int, HostLink | None], StageTimer]:
        return {}

    def __call__(self, sequences: int, link: HostLink | None) -> StageTimer:
        if (key := (sequences, link)) not in self._timers:
            batch = TokenBatch(sequences, sequences, self.load.context_tokens)
            self._timers[key] = _build_stage_timer(PassConditions(self.shape, link, self.efficiency), batch)
        return self._timers[key]


def _build_stage_timer(conditions: PassConditions, batch: TokenBatch) -> StageTimer:
    @cache
    def fit_stage_costs(devices: tuple[Device, ...], is_last: bool) -> list[tuple[float, float]]:  # noqa: FBT001
        """Return for each sort of device the seconds of a stage without its layers, and of a layer."""
        lines = []
        for device in {_compute_device_key(device): device for device in devices}.values():
            one_layer_s, two_layers_s = (
                _compute_device_pass(conditions, Stage(devices, layers), device, batch, last=is_last).seconds
                for layers in (1, 2)
            )
            lines.append((2 * one_layer_s - two_layers_s, two_layers_s - one_layer_s))
        return lines

    return lambda stage, /, *, is_last_stage: max(
        fixed_s + stage.layers * layer_s for fixed_s, layer_s in fit_stage_costs(stage.devices, is_last_stage)
    )


def _count_busiest_streams(streams: float, pipelines: int) -> float:
    """Return the streams of the busiest pipeline, at least one, if each stream goes to one by chance.

    It is the mean plus the largest of so many normal deviates (Blom, 1958). Two Sparks behind a router
    reached 76 to 94 % of even sharing (kubis.ai's three topology benchmarks, 2026); this gives 78 to 95 %.
    """
    share = streams / pipelines
    deviate = NormalDist().inv_cdf((pipelines - 0.375) / (pipelines + 0.25))
    return max(1.0, share + deviate * math.sqrt(share * (1 - 1 / pipelines)))


def _predict_pipeline(
    conditions: PassConditions, stages: Sequence[Stage], streams: float, load: Load
) -> _PipelineSpeed:
    micro_batches = min(float(len(stages)), streams)
    batch = TokenBatch(streams / micro_batches, streams / micro_batches, load.context_tokens)
    passes = _compute_passes(conditions, stages, batch)
    between_s = _compute_idle_s(conditions, stages, batch.tokens)
    one_prompt_s = _compute_prefill_s(conditions, stages, 1.0, load)
    all_prompts_s = _compute_prefill_s(conditions, stages, streams, load)
    return _PipelineSpeed(
        passes=passes,
        between_s=between_s,
        micro_batches=micro_batches,
        first_token_s=one_prompt_s + sum(stage_pass.seconds for stage_pass in passes) + between_s,
        prefill_tokens_per_s=streams * load.prompt_tokens / all_prompts_s,
    )


def _compute_passes(
    conditions: PassConditions, stages: Sequence[Stage], batch: TokenBatch
) -> tuple[Pass, ...]:
    last = len(stages) - 1
    return tuple(
        compute_stage_pass(conditions, stage, batch, last=index == last) for index, stage in enumerate(stages)
    )


def _compute_prefill_s(
    conditions: PassConditions, stages: Sequence[Stage], prompts: float, load: Load
) -> float:
    """Return the time to read prompts in pieces, which follow each other through the stages."""
    tokens = prompts * load.prompt_tokens
    pieces = max(1, math.ceil(tokens / conditions.chunk_tokens))
    cached_tokens = load.cached_tokens + load.prompt_tokens / 2
    batch = TokenBatch(tokens / pieces, max(1.0, prompts / pieces), cached_tokens)
    times = [stage_pass.seconds for stage_pass in _compute_passes(conditions, stages, batch)]
    return sum(times) + (pieces - 1) * max(times) + _compute_idle_s(conditions, stages, batch.tokens)


def _compute_idle_s(conditions: PassConditions, stages: Sequence[Stage], tokens: float) -> float:
    """Return the time of hops between stages, and of the engine between two steps on its slowest host."""
    devices = [device for stage in stages for device in stage.devices]
    step_speed_factor = min(compute_step_pace(device.kind, conditions.efficiency) for device in devices)
    # Two tensors a hop, because the residual travels with the activations.
    message_bytes = 2 * tokens * conditions.shape.hidden * _ACTIVATION_BYTES
    is_direct = _has_direct_access(devices)
    hop_s = _compute_transfer_s(conditions, conditions.link, message_bytes, 1, is_direct=is_direct)
    return (len(stages) - 1) * hop_s + conditions.efficiency.step_us * _MICRO / step_speed_factor


def compute_stage_pass(conditions: PassConditions, stage: Stage, batch: TokenBatch, *, last: bool) -> Pass:
    """Return the pass of a batch over a stage; the last stage has the output head too."""
    # Reversed, so that the first device of equal ones is the one that stays.
    sorts = {_compute_device_key(device): device for device in reversed(stage.devices)}
    passes = (_compute_device_pass(conditions, stage, device, batch, last=last) for device in sorts.values())
    return max(passes, key=lambda stage_pass: stage_pass.seconds)


def _compute_stage_key(stage: Stage) -> Hashable:
    """Return a key that is equal for stages of equal speed."""
    hosts = {device.host for device in stage.devices}
    return stage.layers, len(stage.devices), len(hosts), frozenset(map(_compute_device_key, stage.devices))


def _compute_device_key(device: Device) -> Hashable:
    """Return a key that is equal for devices of equal speed."""
    return device.kind, device.name, device.bandwidth_gb_s, device.bf16_tflops, device.measured


def _compute_device_pass(
    conditions: PassConditions, stage: Stage, device: Device, batch: TokenBatch, *, last: bool
) -> Pass:
    shape, efficiency, ranks = conditions.shape, conditions.efficiency, len(stage.devices)
    layer_share, speed = stage.layers / shape.layers, compute_reached_speed(device, shape.weights, efficiency)
    weight_bytes = stage.layers * compute_read_layer_bytes(shape, batch.tokens, efficiency.routing) / ranks
    weight_bytes += (shape.head_bytes or shape.embedding_bytes) / ranks if last else 0.0
    # The tokens that attention reads, over all layers.
    full_layers = shape.attention_layers
    if full_layers is None:
        full_layers = shape.layers - shape.windowed_layers
    window_tokens = min(batch.context_tokens, shape.window or 0)
    attended = full_layers * batch.context_tokens + shape.windowed_layers * window_tokens
    stream_bytes = full_layers * batch.context_tokens * compute_token_layer_bytes(shape, ranks)
    window_layer_bytes = compute_token_layer_bytes(shape, ranks, windowed=True)
    stream_bytes += shape.windowed_layers * window_tokens * window_layer_bytes
    stream_bytes += 2.0 * shape.state_bytes / ranks  # a state is written back too
    # Two operations for each weight that a token meets, four for each pair of values that attention compares.
    compared = shape.heads * shape.head_dim * attended
    operations = batch.tokens * (2 * shape.active_parameters + 4 * compared)
    return Pass(
        weights_s=weight_bytes / speed.weight_bytes_per_s,
        cache_s=layer_share * batch.streams * stream_bytes / speed.cache_bytes_per_s,
        operations_s=layer_share / ranks * operations / speed.operations_per_s,
        kernels_s=stage.layers * efficiency.layer_us * _MICRO / compute_pace(device.kind, efficiency),
        collectives_s=compute_collectives_s(conditions, stage, batch, last=last),
        weight_bytes=weight_bytes,
        slowest=device,
    )


def compute_collectives_s(
    conditions: PassConditions, stage: Stage, batch: TokenBatch, *, last: bool
) -> float:
    """Return the time of two all-reduces a layer and one for the embedding; the last stage gathers logits."""
    ranks, hosts = len(stage.devices), len({device.host for device in stage.devices})
    if ranks == 1:
        return 0.0
    link, crossings = conditions.link if hosts > 1 else None, hosts - 1
    sent_value_bytes = (ranks - 1) / ranks * _ACTIVATION_BYTES
    time_call = partial(_compute_transfer_s, conditions, link, is_direct=_has_direct_access(stage.devices))
    reduce_bytes = 2 * sent_value_bytes * batch.tokens * conditions.shape.hidden
    reduces_s = time_call(reduce_bytes, 2 * crossings) * (2 * stage.layers + 1)
    if not last:
        return reduces_s
    return reduces_s + time_call(sent_value_bytes * batch.streams * conditions.shape.vocabulary, crossings)


def _has_direct_access(devices: Sequence[Device]) -> bool:
    """Return whether devices reach each other's memory: CPUs, and GPUs of one host if not GeForce."""
    is_one_host = len({device.host for device in devices}) == 1
    if is_one_host and all(has_peer_access(device.name) for device in devices):
        return True
    return all(device.kind == "cpu" for device in devices)


def _compute_transfer_s(
    conditions: PassConditions,
    link: HostLink | None,
    message_bytes: float,
    crossings: int,
    *,
    is_direct: bool = False,
) -> float:
    """Return the time of a collective or a hop.

    `crossings`: how often it goes over the link, one time after the other. Unless `is_direct`, NCCL stages
    the message in the hosts' memory, and its first piece is awaited.
    """
    efficiency, staged_s = conditions.efficiency, 0.0
    if not is_direct:
        staged_s = min(message_bytes, PIECE_BYTES) / (efficiency.staged_gb_s * _GIGA)
    if link is None:
        return efficiency.local_us * _MICRO + staged_s + message_bytes / (LOCAL_GB_S * _GIGA)
    start_us = efficiency.rdma_us if link.rdma else efficiency.tcp_us
    bytes_per_s = link.mbit * 1e6 / 8
    if link.measured:
        return crossings * link.latency_us * _MICRO + staged_s + message_bytes / bytes_per_s
    latency_us = start_us + crossings * link.latency_us
    return latency_us * _MICRO + staged_s + message_bytes / (bytes_per_s * NETWORK_SHARE)


def _describe_bottleneck(pipeline: _PipelineSpeed) -> str:
    """Describe the largest part of a step with its numbers, and how the stages take turns."""
    passes, times = pipeline.passes, [stage_pass.seconds for stage_pass in pipeline.passes]
    is_stage_bound = pipeline.micro_batches * max(times) >= sum(times) + pipeline.between_s
    busiest = max(range(len(passes)), key=times.__getitem__)
    counted_passes, between_s = ([passes[busiest]], 0.0) if is_stage_bound else (passes, pipeline.between_s)
    slowest = max(counted_passes, key=lambda stage_pass: stage_pass.weights_s).slowest
    read_gb = sum(stage_pass.weight_bytes for stage_pass in counted_passes) / 1e9
    origin = "measured" if slowest.measured else "stated"
    weights = (
        f"reading {read_gb:.2f} GB of weights at {slowest.bandwidth_gb_s:.0f} GB/s {origin} ({slowest.host})"
    )
    parts = {
        weights: sum(stage_pass.weights_s for stage_pass in counted_passes),
        "reading the KV cache": sum(stage_pass.cache_s for stage_pass in counted_passes),
        "multiplying": sum(stage_pass.operations_s for stage_pass in counted_passes),
        "starting kernels": sum(stage_pass.kernels_s for stage_pass in counted_passes),
        "all-reduces between devices": sum(stage_pass.collectives_s for stage_pass in counted_passes),
        "the engine between steps, and hops between stages": between_s,
    }
    description, seconds = max(parts.items(), key=lambda part: part[1])
    total_s = sum(stage_pass.seconds for stage_pass in counted_passes) + between_s
    bottleneck = f"{description}: {seconds * 1000:.1f} of {total_s * 1000:.1f} ms a step"
    if len(passes) == 1:
        return bottleneck
    if is_stage_bound:
        return f"{bottleneck}; stage {busiest + 1} of {len(passes)} is always busy and the others wait for it"
    if pipeline.micro_batches > 1:
        return f"{bottleneck}; the {len(passes)} stages work concurrently, each on its own group of streams"
    return f"{bottleneck}; the {len(passes)} stages take turns"
