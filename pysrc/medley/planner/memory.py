"""Weights, KV cache and engine memory of a rank."""

from dataclasses import dataclass
from math import ceil

from medley.host.facts import GIB
from medley.model.shape import feed_forward
from medley.planner.kinds import is_unified
from medley.schema import Shape

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
UNIFIED_LIMIT = 0.85
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

# Of one rank, whatever the model: a CUDA context is about half a GiB; "non_torch_memory" of vLLM's log was
# 0.16 to 0.33 GiB (vllm pull request 12126, issue 14452, an RTX 5090 under tensor parallel 2).
_RANK = GIB
# Graphs: 0.13 GiB was logged for a model of 0.6 billion parameters; 1 GiB is an allowance, not measured. On
# unified memory they lie in what the system keeps.
_GPU_GRAPHS = GIB
# Resident sizes of vLLM 0.32 on CPU: a rank 0.94 to 0.96 GB, API server and engine core 0.67 + 0.63 GB.
_CPU_API_SERVER = GIB * 13 // 10

BLOCK_TOKENS = 16
"""vLLM's default block: a sequence's cache grows by so many tokens."""
_VOCABULARY_PADDING = 64
_16_BITS = 2
_BITS = 16
_BITS_OF_BYTE = 8


@dataclass(frozen=True)
class PipelinePosition:
    """Where in a pipeline a rank stands."""

    layers: int
    tensor: int = 1
    first: bool = True
    last: bool = True
    expert_parallel: bool = False


@dataclass(frozen=True)
class MemoryNeed:
    weights_bytes: int
    host_table_bytes: int
    """Weights in the host's memory, next to a GPU with its own."""
    fixed_bytes: int
    """Engine, graphs and activations."""
    sampler_bytes: int
    """For each sequence that may be sampled at once."""
    token_bytes: int
    """KV cache of one token, in the layers whose cache grows."""
    windowed_bytes: int
    """KV cache of one token, in the layers that keep a window."""
    window: int
    """Tokens that a windowed layer holds at most: the window and a batch under way."""
    state_bytes: int

    def kv_bytes(self, context: int, concurrency: int) -> int:
        tokens = -(-context // BLOCK_TOKENS) * BLOCK_TOKENS
        windowed = min(tokens, self.window)
        return concurrency * (self.token_bytes * tokens + self.windowed_bytes * windowed + self.state_bytes)

    def overhead_bytes(self, concurrency: int) -> int:
        return self.fixed_bytes + self.sampler_bytes * max(SEQUENCES, concurrency)

    def total_bytes(self, context: int, concurrency: int) -> int:
        return self.weights_bytes + self.overhead_bytes(concurrency) + self.kv_bytes(context, concurrency)


def most_bytes(kind: str, total_bytes: int, available_bytes: int) -> int | None:
    """Return all that unified memory has but for the system: `Device.most_bytes`.

    Two DGX Sparks run models that take more than 0.85 of them: eugr/spark-vllm-docker gives Qwen3.5-397B in
    INT4 108 GB of each (recipes/qwen3.5-397b-int4-autoround.yaml).
    """
    if not is_unified(kind):
        return None
    system = min(_UNIFIED_SYSTEM, max(_LEAST_SYSTEM, total_bytes // _SYSTEM_PART))
    return max(0, available_bytes - system)


def usable_bytes(kind: str, total_bytes: int, available_bytes: int) -> int:
    """What a rank may take of a device of this kind of host: `Device.memory_bytes`."""
    all_but_system = most_bytes(kind, total_bytes, available_bytes)
    if all_but_system is not None:
        most = min(UNIFIED_LIMIT * total_bytes, all_but_system)
    elif kind == "cpu":
        most = min(_CPU_LIMIT * total_bytes, available_bytes - _CPU_SYSTEM)
    else:
        most = min(_GPU_LIMIT * total_bytes, available_bytes)
    return max(0, int(most))


def need(shape: Shape, place: PipelinePosition, kind: str) -> MemoryNeed:
    """Of one rank on a host of this kind; the API server runs beside the first of a pipeline."""
    growing, windowed, recurrent = _layers(shape, place.layers)
    all_recurrent = _layers(shape, shape.layers)[2]
    shared = kind == "cpu" or is_unified(kind)
    graphs = 0 if shared else _GPU_GRAPHS
    api_server = _CPU_API_SERVER if place.first and kind == "cpu" else 0
    table = 0 if shared or not place.first else _up(shape.host_table_bytes, place.tensor)
    return MemoryNeed(
        weights_bytes=weights_bytes(shape, place) - table,
        host_table_bytes=table,
        fixed_bytes=_RANK + graphs + api_server + activation_bytes(shape, place.tensor),
        # Every rank of the last stage holds all words.
        sampler_bytes=_SAMPLER_BYTES * shape.vocabulary if place.last else 0,
        token_bytes=_whole(growing * token_layer_bytes(shape, place.tensor)),
        windowed_bytes=_whole(windowed * token_layer_bytes(shape, place.tensor, windowed=True)),
        window=(_up((shape.window or 0) + batch_tokens(shape), BLOCK_TOKENS) + 1) * BLOCK_TOKENS,
        state_bytes=_up(
            _up(_states_bytes(shape) * recurrent, max(1, all_recurrent)),
            # What is open of compressed keys and values is on every rank, as they are.
            1 if is_latent(shape) and not recurs(shape) else place.tensor,
        ),
    )


def weights_bytes(shape: Shape, place: PipelinePosition) -> int:
    found = place.layers * _layer_bytes(shape, place.tensor, expert_parallel=place.expert_parallel)
    padded = padded_vocabulary(shape)
    if place.first:
        found += _up(shape.embedding_bytes * padded, shape.vocabulary * place.tensor)
    if place.last and (shape.head_bytes or not place.first):
        # A head that is the embedding has to be there again where the embedding is on another stage.
        found += _up((shape.head_bytes or shape.embedding_bytes) * padded, shape.vocabulary * place.tensor)
    return found


def token_layer_bytes(shape: Shape, tensor: int, *, windowed: bool = False) -> float:
    """KV cache of one token in one layer of one rank; the mean over layers that keep different amounts."""
    heads, each, shared = shape.kv_heads, shape.kv_head_bytes, shape.kv_bytes_per_token
    if windowed and shape.windowed_kv_heads is not None:
        heads, each = shape.windowed_kv_heads, shape.windowed_head_bytes
        shared = shape.windowed_bytes_per_token
    if each is None:
        each = 2 * shape.head_dim * _16_BITS if shared is None else 0
    # Heads are split until each rank has one, then copied; each rank has the whole of what they share.
    return (_up(heads, tensor) * each + (shared or 0)) * shape.kv_bits / _BITS


def is_latent(shape: Shape) -> bool:
    """Whether its KV heads keep nothing, but one latent for all of them (MLA)."""
    return shape.kv_bytes_per_token is not None and shape.kv_head_bytes is None


def padded_vocabulary(shape: Shape) -> int:
    return _up(shape.vocabulary, _VOCABULARY_PADDING) * _VOCABULARY_PADDING


def recurs(shape: Shape) -> bool:
    """Whether layers recur; a state beside windows is of the last few tokens (DeepSeek V4, Inkling)."""
    return shape.state_bytes > 0 and not shape.windowed_layers


def _states_bytes(shape: Shape) -> int:
    """All states that the planned engine keeps of one sequence."""
    return shape.state_bytes * shape.state_copies.most


def batch_tokens(shape: Shape) -> int:
    """Tokens of one forward pass, at most."""
    return _RECURRENT_BATCH_TOKENS if recurs(shape) else _BATCH_TOKENS


def activation_bytes(shape: Shape, tensor: int, tokens: int | None = None) -> int:
    """The most that one forward pass of so many tokens holds at once; None: of as many as there may be."""
    attention = 2 * (shape.heads + shape.kv_heads) * shape.head_dim
    inner = 3 * feed_forward(shape) * max(1, shape.experts_per_token)
    wide = _WIDE * shape.hidden + (attention + inner) // tensor
    return _number_bytes(shape) * (tokens or batch_tokens(shape)) * wide


def _number_bytes(shape: Shape) -> int:
    """The size of a number that the engine computes with."""
    return shape.compute_bits // _BITS_OF_BYTE


def _layer_bytes(shape: Shape, tensor: int, *, expert_parallel: bool) -> int:
    dense = max(0, shape.layer_bytes - shape.experts * shape.expert_bytes)
    # Norms and the experts' router are on every rank, not quantized.
    copied = min(dense, _number_bytes(shape) * shape.hidden * (2 + shape.experts))
    # Not quantized, as many quantized models leave their attention: it is too much, never too little.
    keys = _number_bytes(shape) * 2 * shape.hidden * shape.kv_heads * shape.head_dim
    keys = 0 if is_latent(shape) else min(keys, dense - copied)
    held = _up(keys * _up(shape.kv_heads, tensor), shape.kv_heads)
    experts = (
        _up(shape.experts, tensor) * shape.expert_bytes
        if expert_parallel
        else _up(shape.experts * shape.expert_bytes, tensor)
    )
    return copied + _up(dense - copied - keys, tensor) + held + experts


def _layers(shape: Shape, layers: int) -> tuple[int, int, int]:
    """How many of a stage's layers grow, keep a window, and recur, at most: the kinds alternate."""
    growing = (
        shape.layers - shape.windowed_layers if shape.attention_layers is None else shape.attention_layers
    )
    recurrent = max(0, shape.layers - growing - shape.windowed_layers)
    if shape.state_bytes and recurrent == 0:
        recurrent = shape.layers  # attention and a state in one layer

    def part(count: int) -> int:
        return min(layers, _up(count * layers, shape.layers))

    return part(growing), part(shape.windowed_layers), part(recurrent)


def _up(amount: int, parts: int) -> int:
    return -(-amount // parts)


def _whole(amount: float) -> int:
    """Rounded up, but not for the last bits of a mean."""
    return ceil(round(amount, 6))
