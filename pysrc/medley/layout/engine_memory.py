"""The engine's memory: what it takes besides weights and KV cache, and what the system keeps from it."""

from collections.abc import Mapping
from dataclasses import dataclass

from medley.layout.shapes import Device
from medley.layout.width import feed_forward
from medley.tables import Shape

GIB = 1 << 30
# What a launch must hand the engine (--max-num-seqs, and --max-num-batched-tokens below) for these numbers to
# hold: left to itself vLLM 0.32 takes 1024 and 8192 on a device of 70 GiB or more.
SEQUENCES = 64
# One image of a model that cannot cut it must go into a batch: 2496 tokens for Gemma 4.
_BATCH_TOKENS = 4096
# A block of a model with recurrent layers is as large as a state, often over 2048 tokens, and vLLM does not
# start where a block is larger than a batch (vllm pull requests 34445 and 36734).
_RECURRENT_BATCH_TOKENS = 8192
# For each sequence that is sampled, of each word: logits in 32 bits, sorted with 64-bit indexes, their
# probabilities and running sum.
_SAMPLER_BYTES = 4 + 4 + 8 + 4 + 4
# Tensors as wide as the model that are alive at once, in 16 bits: residual, normed, attention's and the
# feed-forward part's answers, two of the collective.
_WIDE = 6

# GPU and system share unified memory, and vLLM's limit is not a hard one there: above 0.85 hosts were seen to
# wedge (vllm issues 46307, 56824). About 5.6 GiB of an engine on GB10 lie outside of its own accounting: its
# processes on the host's side and its graphs (MiaAI-Lab's two-Spark kit, issue 118); with the system itself
# that makes 8. Boards with less memory run less beside it: an eighth, and no less than 2 (judgement).
_UNIFIED_LIMIT = 0.85
_UNIFIED_SYSTEM = 8 * GIB
_LEAST_SYSTEM = 2 * GIB
_SYSTEM_PART = 8
SNUG_BYTES = 4 * GIB
"""A layout that leaves a rank on unified memory less than this loses to one of equal speed that leaves more.

Judgement: what is estimated here (activations, sampler, graphs) may be off by a few GiB, and where the system
shares the memory, running out freezes the host."""
# vLLM's own default of --gpu-memory-utilization in 0.32.
_GPU_LIMIT = 0.92
# Judgement: a host without a GPU runs the engine's threads and everything else in the same memory.
_CPU_LIMIT = 0.85
_CPU_SYSTEM = 2 * GIB


@dataclass(frozen=True)
class Engine:
    """The memory of one rank, whatever the model."""

    rank_bytes: int
    graph_bytes: int
    head_bytes: int = 0
    """More, where the API server runs: beside the first rank."""


# A CUDA context is about half a GiB; "non_torch_memory" of vLLM's log was 0.16 to 0.33 GiB (vllm pull request
# 12126, issue 14452, an RTX 5090 under tensor parallel 2). Graphs: 0.13 GiB was logged for a model of 0.6
# billion parameters; 1 GiB is an allowance, not measured. On unified memory they lie in what the system
# keeps.
_GPU = Engine(rank_bytes=GIB, graph_bytes=GIB)
_UNIFIED = Engine(rank_bytes=GIB, graph_bytes=0)
# Resident sizes of vLLM 0.32 on CPU: a rank 0.94 to 0.96 GB, API server and engine core 0.67 + 0.63 GB.
_CPU = Engine(rank_bytes=GIB, graph_bytes=0, head_bytes=GIB * 13 // 10)
_BY_KIND: Mapping[str, Engine] = {
    "cpu": _CPU,
    "spark": _UNIFIED,
    "thor": _UNIFIED,
    "orin": _UNIFIED,
    "orin-r39": _UNIFIED,
}


def engine(kind: str) -> Engine:
    return _BY_KIND.get(kind, _GPU)


def is_unified(kind: str) -> bool:
    """Whether GPU and system of this kind of host share one memory."""
    return engine(kind) is _UNIFIED


def usable_bytes(kind: str, total_bytes: int, available_bytes: int) -> int:
    """What a rank may take of a device of this kind of host: `Device.memory_bytes`."""
    if is_unified(kind):
        system = min(_UNIFIED_SYSTEM, max(_LEAST_SYSTEM, total_bytes // _SYSTEM_PART))
        most = min(_UNIFIED_LIMIT * total_bytes, available_bytes - system)
    elif kind == "cpu":
        most = min(_CPU_LIMIT * total_bytes, available_bytes - _CPU_SYSTEM)
    else:
        most = min(_GPU_LIMIT * total_bytes, available_bytes)
    return max(0, int(most))


def overhead_bytes(shape: Shape, device: Device, tensor: int, *, head: bool) -> int:
    """The engine's own, graphs and activations of a rank; `head`: the API server runs beside it."""
    own = engine(device.kind)
    fixed = own.rank_bytes + own.graph_bytes + (own.head_bytes if head else 0)
    return fixed + activation_bytes(shape, tensor)


def batch_tokens(shape: Shape) -> int:
    """Tokens of one forward pass, at most."""
    return _RECURRENT_BATCH_TOKENS if shape.state_bytes else _BATCH_TOKENS


def activation_bytes(shape: Shape, tensor: int, tokens: int | None = None) -> int:
    """The most that one forward pass of so many tokens holds at once; None: of as many as there may be."""
    tokens = tokens or batch_tokens(shape)
    attention = 2 * (shape.heads + shape.kv_heads) * shape.head_dim
    inner = 3 * feed_forward(shape) * max(1, shape.experts_per_token)
    return 2 * tokens * (_WIDE * shape.hidden + (attention + inner) // tensor)


def sampler_bytes(shape: Shape) -> int:
    """For each sequence, on the last stage: every rank of it holds all words."""
    return _SAMPLER_BYTES * shape.vocabulary
