"""How much of what makers state is reached: the fitted constants of the prediction, and what is assumed.

`python benchmarks/predictor.py --fit` prints the fitted ones; docs/prediction.md says how and from what.
"""

import re
from dataclasses import dataclass

from medley.layout.shapes import Device


@dataclass(frozen=True)
class Efficiency:
    """One set of fitted constants."""

    weights: float = 0.808
    """Share of the stated bandwidth at which weights stream."""
    cache: float = 0.701
    """Share of it at which attention reads a KV cache: many short pieces."""
    orin: float = 0.711
    """What a Jetson Orin reaches of both and of its operations, where a Spark reaches 1."""
    layer_us: float = 46.9
    """What a layer costs however little it does: kernels started and waited for."""
    step_us: float = 2810.0
    """What an engine in Python does between two steps: scheduling, sampling, answering."""
    routing: float = 0.773
    """B tokens meet as many experts as B to this power would with a fair choice: neighbours choose alike."""
    gemm: float = 0.239
    """Share of the stated operations that matrices reach."""
    rdma_us: float = 35.5
    """An all-reduce of a few kilobytes between hosts over RDMA, besides the wire's own latency."""
    tcp_us: float = 1050.0
    """The same over TCP sockets."""
    staged_gb_s: float = 0.662
    """At what rate a message's first piece goes between hosts besides: copied, reduced and copied back."""


SHIPPED = Efficiency()

# Not fitted, for no published row shows them.
LOCAL_REDUCE_US, LOCAL_GB_S = 20.0, 25.0  # source: NCCL over PCIe 4.0 x16 without NVLink, the usual figures
WIRE = 0.9  # source: NVIDIA's connect-two-sparks playbook, 92.6 to 97.3 Gb/s of 100; less NCCL's own cutting
# NCCL cuts a connection's buffer of 4 MiB into eight pieces (NCCL_BUFFSIZE, NCCL_STEPS); later ones overlap.
# An all-reduce goes in two halves, of which each waits for its first.
PIECE_BYTES = 2 * (512 << 10)
CHUNK_TOKENS = 2048  # vLLM's max_num_batched_tokens where nothing else is said
# A discrete GPU sits in a host of few fast cores. No row shows it apart: taken as three times a Spark's.
DESKTOP_STEP = 3.0
_DESKTOPS = frozenset({"rtx", "cuda"})

# GeForce halves bfloat16 with fp32 accumulation on purpose, and comes twice as near to what is stated: by the
# architecture papers a multiprocessor does the same work as on the cards that do not. No row shows it apart.
HALVED = 2.0
_GEFORCE = re.compile(r"RTX [345]0[5-9]0\b")

# Formats that these kinds' tensor cores take as they are, and how much faster than bfloat16.
_FORMATS = {"fp8": 2.0, "nvfp4": 4.0}
_NATIVE = frozenset({"spark", "thor", "rtx"})


@dataclass(frozen=True)
class Reached:
    """What a device really does in a second."""

    weights: float
    """Bytes of weights."""
    cache: float
    """Bytes of KV cache."""
    operations: float


def reached(device: Device, weights: str, efficiency: Efficiency) -> Reached:
    """Shares of what its maker states, all of what was measured. `weights`: how they are stored."""
    bandwidth, operations = device.bandwidth_gb_s * 1e9, device.bf16_tflops * 1e12
    if device.measured:
        return Reached(bandwidth, bandwidth, operations)
    part = pace(device.kind, efficiency)
    faster = format_speed(device.kind, device.name, weights) * efficiency.gemm
    return Reached(
        bandwidth * part * efficiency.weights,
        bandwidth * part * efficiency.cache,
        operations * part * faster,
    )


def format_speed(kind: str, name: str, weights: str) -> float:
    """How much faster than `gemm` of its stated bfloat16 a device multiplies weights stored so."""
    native = _FORMATS.get(weights, 1.0) if kind in _NATIVE else 1.0
    return native * (HALVED if _GEFORCE.search(name) else 1.0)


def peers(name: str) -> bool:
    """Whether GPUs of this name reach each other's memory on one host: drivers keep GeForce from it."""
    return not _GEFORCE.search(name)


def pace(kind: str, efficiency: Efficiency) -> float:
    """What a kind of host reaches, where a Spark reaches 1."""
    return efficiency.orin if kind.startswith("orin") else 1.0


def step_pace(kind: str, efficiency: Efficiency) -> float:
    """How fast the host's cores get an engine from step to step, where a Spark's are 1."""
    return DESKTOP_STEP if kind in _DESKTOPS else pace(kind, efficiency)
