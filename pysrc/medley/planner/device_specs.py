"""Stated bandwidth and FLOPS by GPU; fitted efficiency.

`python -m benchmarks.predictor --fit` prints the fitted ones; docs/explanation/prediction.md has the method.
"""

import math
import re
from dataclasses import dataclass

from medley import config
from medley.planner import Device
from medley.planner.kinds import speed


@dataclass(frozen=True)
class Stated:
    bandwidth_gb_s: float
    bf16_tflops: float
    """Dense, on tensor cores where there are any."""
    source: str
    assumed: bool = False
    """Nobody stated it for this device: a cautious reading of its generation."""
    below_gib: float = math.inf
    """The row is for devices with less memory, because the driver gives larger ones the same name."""


_TABLES = config.beside(__file__, "gpus.toml")
_NAMED = [(re.compile(rf"\b{row.pop('name')}\b", re.IGNORECASE), Stated(**row)) for row in _TABLES["gpus"]]
_GENERATIONS = [(row.pop("since"), Stated(**row, assumed=True)) for row in _TABLES["generations"]]
_CPU = Stated(**_TABLES["cpu"], assumed=True)

# Cards of so much memory have at least so wide a bus: a cautious floor from the cards sold with each size.
_BY_MEMORY = ((70 << 30, 900.0), (40 << 30, 700.0), (22 << 30, 500.0), (14 << 30, 288.0))


def stated(
    kind: str, gpu_name: str = "", *, capability: str | None = None, memory_bytes: int | None = None
) -> Stated:
    """The GPU's own line, else its kind's, else a floor for its generation and memory, marked as assumed."""
    found = _named(gpu_name, memory_bytes) or _named(speed(kind).gpu, memory_bytes)
    if found is None:
        return _CPU if kind == "cpu" else _floor(capability, memory_bytes)
    return found


def _named(gpu_name: str, memory_bytes: int | None) -> Stated | None:
    gib = math.inf if memory_bytes is None else memory_bytes / (1 << 30)
    rows = (facts for pattern, facts in _NAMED if pattern.search(gpu_name))
    return next((facts for facts in rows if facts.below_gib == math.inf or gib < facts.below_gib), None)


def _floor(capability: str | None, memory_bytes: int | None) -> Stated:
    level = float(capability) if capability else 0.0
    least = next(facts for since, facts in _GENERATIONS if level >= since)
    width = next((gb_s for size, gb_s in _BY_MEMORY if (memory_bytes or 0) >= size), 0.0)
    if level < 8.0 or width <= least.bandwidth_gb_s:  # noqa: PLR2004  before 8.0 a large card may be old and slow
        return least
    source = (
        f"{least.source}; no card with {(memory_bytes or 0) / (1 << 30):.0f} GiB has under {width:.0f} GB/s"
    )
    return Stated(width, least.bf16_tflops, source, assumed=True)


@dataclass(frozen=True)
class Efficiency:
    """One set of fitted constants."""

    weights: float = 0.833
    """Share of the stated bandwidth at which weights stream."""
    cache: float = 0.535
    """Share of it at which attention reads a KV cache: many short pieces."""
    orin: float = 0.751
    """What a Jetson Orin reaches of both and of its operations, where a Spark reaches 1."""
    layer_us: float = 49.5
    """What a layer costs however little it does: kernels started and waited for."""
    step_us: float = 3540.0
    """What an engine in Python does between two steps: scheduling, sampling, answering."""
    routing: float = 0.837
    """B tokens meet as many experts as B to this power would with a fair choice: neighbours choose alike."""
    gemm: float = 0.416
    """Share of the stated operations that matrices in a format of the tensor cores reach."""
    formats: float = 0.606
    """How much of a narrower format's extra operations is reached: all of them (1) or none (0)."""
    unpacked: float = 0.33
    """Share of the stated 16-bit operations where weights are unpacked first, as Marlin's kernels do."""
    desktop: float = 1.85
    """How much nearer a card with power and memory of its own comes to its stated operations."""
    rdma_us: float = 36.6
    """An all-reduce of a few kilobytes between hosts over RDMA, besides the wire's own latency."""
    tcp_us: float = 1070.0
    """The same over TCP sockets."""
    local_us: float = 40.1
    """An all-reduce of a few kilobytes between GPUs of one host, over PCIe."""
    staged_gb_s: float = 0.774
    """At what rate a message's first piece goes between hosts besides: copied, reduced and copied back."""


SHIPPED = Efficiency()


@dataclass(frozen=True)
class HeldOut:
    """Where speeds lay that were measured, as shares of what is predicted by a fit without their source."""

    low: float
    high: float
    rows: int
    inside: int
    """Rows between low and high."""


# `python -m benchmarks.held_out` works them out of the published rows: four of five lie inside.
ONE_STREAM = HeldOut(0.86, 1.3, 108, 89)
MANY_STREAMS = HeldOut(0.72, 1.32, 140, 114)
PROMPTS = HeldOut(0.56, 1.58, 82, 69)

# Not fitted, for no published row shows them.
LOCAL_GB_S = 25.0  # source: NCCL over PCIe 4.0 x16 without NVLink, the usual figure
WIRE = 0.9  # source: NVIDIA's connect-two-sparks playbook, 92.6 to 97.3 Gb/s of 100; less NCCL's own cutting
# NCCL cuts a connection's buffer of 4 MiB into eight pieces (NCCL_BUFFSIZE, NCCL_STEPS); later ones overlap.
# An all-reduce goes in two halves, of which each waits for its first.
PIECE_BYTES = 2 * (512 << 10)
# A discrete GPU sits in a host of few fast cores. No row shows it apart: taken as three times a Spark's.
_DESKTOP_STEP = 3.0

# GeForce halves bfloat16 with fp32 accumulation on purpose, and comes nearer to what is stated: it has the
# registers and the cache of the cards that do not. No row shows it apart: with 1.2 it is nine tenths of it.
_HALVED = 1.2
_GEFORCE = re.compile(r"RTX [345]0[5-9]0\b")

# How much faster than bfloat16 tensor cores are that take a format as it is.
_FORMATS = {"fp8": 2.0, "nvfp4": 4.0}


@dataclass(frozen=True)
class Reached:
    """Bytes of weights and of KV cache that a device really reads in a second, and its operations."""

    weights: float
    cache: float
    operations: float


def reached(device: Device, weights: str, efficiency: Efficiency) -> Reached:
    """Shares of what its maker states, all of what was measured. `weights`: how they are stored."""
    bandwidth, operations = device.bandwidth_gb_s * 1e9, device.bf16_tflops * 1e12
    if device.measured:
        return Reached(bandwidth, bandwidth, operations)
    part = pace(device.kind, efficiency)
    faster = _matrices(device.kind, weights, efficiency) * (1.0 if peers(device.name) else _HALVED)
    return Reached(
        bandwidth * part * efficiency.weights, bandwidth * part * efficiency.cache, operations * part * faster
    )


def _matrices(kind: str, weights: str, efficiency: Efficiency) -> float:
    """Share of the stated 16-bit operations, by how weights are stored."""
    card = efficiency.desktop if speed(kind).like == "desktop" else 1.0
    if weights == "bf16":
        return card * efficiency.gemm
    if weights in _FORMATS and weights in speed(kind).native_formats:
        return card * efficiency.gemm * math.pow(_FORMATS[weights], efficiency.formats)
    return card * efficiency.unpacked


def peers(name: str) -> bool:
    """Whether GPUs of this name reach each other's memory on one host: drivers keep GeForce from it."""
    return not _GEFORCE.search(name)


def pace(kind: str, efficiency: Efficiency) -> float:
    """What a kind of host reaches, where a Spark reaches 1."""
    return efficiency.orin if speed(kind).like == "orin" else 1.0


def step_pace(kind: str, efficiency: Efficiency) -> float:
    """How fast the host's cores get an engine from step to step, where a Spark's are 1."""
    return _DESKTOP_STEP if speed(kind).like == "desktop" else pace(kind, efficiency)
