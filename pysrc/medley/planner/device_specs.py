"""Find the stated bandwidth and FLOPS of a GPU, and the share of them that engines reach.

`python -m benchmarks.predictor --fit` prints the shares; docs/explanation/prediction.md has the method.
"""

import math
import re

from medley import config
from medley.planner import Device
from medley.planner.kinds import read_speed_table
from medley.values import Value


class StatedSpeed(Value):
    """Bandwidth and operations of a device as its maker states them: a row of gpus.toml."""

    bandwidth_gb_s: float
    bf16_tflops: float
    """Dense operations, on tensor cores where there are any."""
    source: str
    assumed: bool = False
    """Whether the figures are a cautious estimate from the generation, because no maker states them."""
    below_gib: float = math.inf
    """The memory below which the row holds, because the driver gives larger devices the same name."""


_TABLES = config.read_module_table(__file__, "gpus.toml")
_GPU_ROWS = [
    (re.compile(rf"\b{row.pop('name')}\b", re.IGNORECASE), StatedSpeed(**row)) for row in _TABLES["gpus"]
]
_GENERATIONS = [(row.pop("since"), StatedSpeed(**row, assumed=True)) for row in _TABLES["generations"]]
_CPU_SPEED = StatedSpeed(**_TABLES["cpu"], assumed=True)

# (bytes, GB/s): the least bandwidth of all cards that are sold with at least this much memory.
_MIN_BANDWIDTH_BY_MEMORY = ((70 << 30, 900.0), (40 << 30, 700.0), (22 << 30, 500.0), (14 << 30, 288.0))


def find_stated_speed(
    kind: str, gpu_name: str = "", *, capability: str | None = None, memory_bytes: int | None = None
) -> StatedSpeed:
    """Return the GPU's row, else the row of its kind, else an estimate that is marked as assumed."""
    gpu_speed = _find_gpu_row(gpu_name, memory_bytes) or _find_gpu_row(
        read_speed_table(kind).gpu, memory_bytes
    )
    if gpu_speed is None:
        return _CPU_SPEED if kind == "cpu" else _estimate_speed(capability, memory_bytes)
    return gpu_speed


def _find_gpu_row(gpu_name: str, memory_bytes: int | None) -> StatedSpeed | None:
    gib = math.inf if memory_bytes is None else memory_bytes / (1 << 30)
    matches = (row for pattern, row in _GPU_ROWS if pattern.search(gpu_name))
    return next((row for row in matches if row.below_gib == math.inf or gib < row.below_gib), None)


def _estimate_speed(capability: str | None, memory_bytes: int | None) -> StatedSpeed:
    """Return the lowest speed of a GPU's generation and memory."""
    generation, size_bytes = float(capability) if capability else 0.0, memory_bytes or 0
    lowest = next(row for first_capability, row in _GENERATIONS if generation >= first_capability)
    min_gb_s = next((gb_s for size, gb_s in _MIN_BANDWIDTH_BY_MEMORY if size_bytes >= size), 0.0)
    if generation < 8.0 or min_gb_s <= lowest.bandwidth_gb_s:  # noqa: PLR2004  before 8.0 a large card may be old and slow
        return lowest
    source = f"{lowest.source}; no card with {size_bytes / (1 << 30):.0f} GiB has under {min_gb_s:.0f} GB/s"
    return StatedSpeed(min_gb_s, lowest.bf16_tflops, source, assumed=True)


class Efficiency(Value):
    """One set of fitted constants of the prediction."""

    weights: float = 0.833
    """Share of the stated bandwidth at which weights stream."""
    cache: float = 0.535
    """Share of the stated bandwidth at which attention reads a KV cache: many short pieces."""
    orin: float = 0.751
    """Share of bandwidth and operations that a Jetson Orin reaches, where a Spark reaches 1."""
    layer_us: float = 49.5
    """The least time of a layer in microseconds, to start its kernels and wait for them."""
    step_us: float = 3540.0
    """The time of an engine's Python code between two steps, in microseconds: schedule, sample, answer."""
    routing: float = 0.837
    """The exponent of routing: B tokens use as many experts as B to this power random tokens would.

    Neighboring tokens choose similar experts, so they use fewer than random tokens."""
    gemm: float = 0.416
    """Share of the stated operations that matrices in a format of the tensor cores reach."""
    formats: float = 0.606
    """The share of a narrower format's extra operations that engines reach, from 0 (none) to 1 (all)."""
    unpacked: float = 0.33
    """Share of the stated 16-bit operations where weights are unpacked first, as Marlin's kernels do."""
    desktop: float = 1.85
    """The factor by which a discrete card reaches a larger share of its stated operations."""
    rdma_us: float = 36.6
    """The time of an all-reduce of a few kilobytes between hosts over RDMA, without the link's latency."""
    tcp_us: float = 1070.0
    """The time of such an all-reduce over TCP sockets."""
    local_us: float = 40.1
    """The time of an all-reduce of a few kilobytes between GPUs of one host, over PCIe."""
    staged_gb_s: float = 0.774
    """The rate of the extra work on a message's first piece between hosts: copy, reduce and copy back."""


SHIPPED_EFFICIENCY = Efficiency()


class HeldOutRange(Value):
    """The range of measured speeds as shares of a prediction that was fitted without these measurements."""

    low: float
    high: float
    rows: int
    inside: int
    """The number of rows between low and high."""


# `python -m benchmarks.held_out` computes them from the published rows: four of five lie inside.
ONE_STREAM_RANGE = HeldOutRange(0.86, 1.3, 108, 89)
MANY_STREAMS_RANGE = HeldOutRange(0.72, 1.32, 140, 114)
PROMPTS_RANGE = HeldOutRange(0.56, 1.58, 82, 69)

# The constants below are not fitted, because no published row shows them.
LOCAL_GB_S = 25.0  # source: NCCL over PCIe 4.0 x16 without NVLink, the usual figure
# NCCL cuts a connection's buffer of 4 MiB into eight pieces (NCCL_BUFFSIZE, NCCL_STEPS); later ones overlap.
# An all-reduce has two halves, and each half waits for its first piece.
PIECE_BYTES = 2 * (512 << 10)
# A discrete GPU is in a host with few fast cores. No published row shows this factor alone, so it is
# assumed to be three times a Spark's.
_DESKTOP_STEP_PACE = 3.0

# NVIDIA halves GeForce's stated speed of bfloat16 with fp32 accumulation. These cards have the registers and
# the cache of the full cards, so they reach a larger share of it. No published row shows this factor alone;
# 1.2 makes it nine tenths of the stated speed.
_GEFORCE_GAIN = 1.2
_GEFORCE_PATTERN = re.compile(r"RTX [345]0[5-9]0\b")

# The factor by which tensor cores that compute in a format are faster than in bfloat16.
_FORMAT_SPEEDUPS = {"fp8": 2.0, "nvfp4": 4.0}


class ReachedSpeed(Value):
    """The speed that a device reaches in practice."""

    weight_bytes_per_s: float
    cache_bytes_per_s: float
    operations_per_s: float


def compute_reached_speed(device: Device, weights: str, efficiency: Efficiency) -> ReachedSpeed:
    """Return shares of the stated speed, or the measured speed; `weights`: the format of the weights."""
    bandwidth, operations = device.bandwidth_gb_s * 1e9, device.bf16_tflops * 1e12
    if device.measured:
        return ReachedSpeed(bandwidth, bandwidth, operations)
    share = compute_pace(device.kind, efficiency)
    matrix_share = _compute_matrix_share(device.kind, weights, efficiency)
    matrix_share *= 1.0 if has_peer_access(device.name) else _GEFORCE_GAIN
    return ReachedSpeed(
        weight_bytes_per_s=bandwidth * share * efficiency.weights,
        cache_bytes_per_s=bandwidth * share * efficiency.cache,
        operations_per_s=operations * share * matrix_share,
    )


def _compute_matrix_share(kind: str, weights: str, efficiency: Efficiency) -> float:
    """Return the share of the stated 16-bit operations that matrices of this format reach."""
    card_factor = efficiency.desktop if read_speed_table(kind).like == "desktop" else 1.0
    if weights == "bf16":
        return card_factor * efficiency.gemm
    if weights in _FORMAT_SPEEDUPS and weights in read_speed_table(kind).native_formats:
        return card_factor * efficiency.gemm * math.pow(_FORMAT_SPEEDUPS[weights], efficiency.formats)
    return card_factor * efficiency.unpacked


def has_peer_access(name: str) -> bool:
    """Return whether GPUs of this name reach each other's memory on one host; GeForce drivers forbid it."""
    return not _GEFORCE_PATTERN.search(name)


def compute_pace(kind: str, efficiency: Efficiency) -> float:
    """Return the speed of a kind of host, where a Spark's is 1."""
    return efficiency.orin if read_speed_table(kind).like == "orin" else 1.0


def compute_step_pace(kind: str, efficiency: Efficiency) -> float:
    """Return the speed of the engine's work between two steps on a host's cores, where a Spark's is 1."""
    return _DESKTOP_STEP_PACE if read_speed_table(kind).like == "desktop" else compute_pace(kind, efficiency)
