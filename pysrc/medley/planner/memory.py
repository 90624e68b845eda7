"""Decide the share of memory that an engine may take, and compute what a rank needs of it."""

from collections.abc import Sequence
from math import ceil, floor

from medley.host.facts import GIB
from medley.model.shape import compute_feed_forward_width
from medley.planner import Device
from medley.planner.kinds import is_unified
from medley.schema import Shape
from medley.values import Value

# The limits that a launch must give the engine (--max-num-seqs, --max-num-batched-tokens) so that these
# numbers hold. By default vLLM 0.32 takes 1024 and 8192 on a device of 70 GiB or more.
DEFAULT_SEQUENCES = 64
# One image of a model that cannot cut it must go into a batch: 2496 tokens for Gemma 4.
_BATCH_TOKENS = 4096
# A block of a model with recurrent layers is as large as a state, often over 2048 tokens, and vLLM does not
# start where a block is larger than a batch (vllm pull requests 34445 and 36734).
_RECURRENT_BATCH_TOKENS = 8192
# Bytes for each sequence that is sampled and each word: logits in 32 bits, sorted with 64-bit indexes, their
# probabilities and running sum.
_SAMPLER_BYTES = 4 + 4 + 8 + 4 + 4
# Tensors of the model's width that exist together, in 16 bits: residual, normed, attention's and the
# feed-forward part's answers, two of the collective.
_ACTIVATION_TENSORS = 6

# GPU and system share unified memory, and vLLM's limit is not a hard one there: above 0.85 hosts were seen to
# wedge (vllm issues 46307, 56824). About 5.6 GiB of an engine on GB10 lie outside of its own accounting: its
# processes on the host's side and its graphs (MiaAI-Lab's two-Spark kit, issue 118); with the system itself
# that makes 8. Boards with less memory run less next to it: an eighth, and no less than 2 (judgement).
UNIFIED_SHARE = 0.85
_UNIFIED_SYSTEM_BYTES = 8 * GIB
_MIN_SYSTEM_BYTES = 2 * GIB
_SYSTEM_DIVISOR = 8
MIN_SPARE_BYTES = 4 * GIB
"""A layout that leaves a rank on unified memory less than this loses to one of equal speed that leaves more.

Judgement: what is estimated here (activations, sampler, graphs) may be off by a few GiB, and where the system
shares the memory, running out freezes the host."""
# vLLM's own default of --gpu-memory-utilization in 0.32.
_GPU_SHARE = 0.92
# Judgement: a host without a GPU runs the engine's threads and everything else in the same memory.
_CPU_SHARE = 0.85
_CPU_SYSTEM_BYTES = 2 * GIB

# One rank of any model: a CUDA context is about half a GiB; "non_torch_memory" of vLLM's log was
# 0.16 to 0.33 GiB (vllm pull request 12126, issue 14452, an RTX 5090 under tensor parallel 2).
_RANK_OVERHEAD_BYTES = GIB
# Graphs: 0.13 GiB was logged for a model of 0.6 billion parameters; 1 GiB is an allowance, not measured. On
# unified memory they lie in what the system keeps.
_GPU_GRAPH_BYTES = GIB
# Resident sizes of vLLM 0.32 on CPU: a rank 0.94 to 0.96 GB, API server and engine core 0.67 + 0.63 GB.
_CPU_API_SERVER_BYTES = GIB * 13 // 10

BLOCK_TOKENS = 16
"""vLLM's default block: a sequence's cache grows by so many tokens."""
_VOCABULARY_MULTIPLE = 64
_BYTES_OF_16_BITS = 2
_BITS_OF_CACHE = 16
_BITS_OF_BYTE = 8


class PipelinePosition(Value):
    """The position of a rank in its pipeline."""

    layers: int
    tensor_parallel: int = 1
    is_first: bool = True
    is_last: bool = True
    expert_parallel: bool = False


class MemoryNeed(Value):
    """The memory that one rank needs, in parts that grow with context and concurrency."""

    weights_bytes: int
    host_table_bytes: int
    """Weights in the host's memory, next to a GPU with its own."""
    fixed_bytes: int
    """Engine, graphs and activations."""
    sampler_bytes: int
    """The sampler's memory for each sequence in a batch."""
    token_bytes: int
    """KV cache of one token, in the layers whose cache grows."""
    windowed_bytes: int
    """KV cache of one token, in the layers that keep a window."""
    window: int
    """The most tokens that a windowed layer holds: the window and one batch."""
    state_bytes: int
    """Recurrent states of one sequence."""

    def compute_kv_bytes(self, context: int, concurrency: int) -> int:
        """Return the KV cache and states of so many sequences with so many tokens each."""
        tokens = -(-context // BLOCK_TOKENS) * BLOCK_TOKENS
        windowed = min(tokens, self.window)
        return concurrency * (self.token_bytes * tokens + self.windowed_bytes * windowed + self.state_bytes)

    def compute_overhead_bytes(self, concurrency: int) -> int:
        """Return the memory of the engine itself with so many sequences."""
        return self.fixed_bytes + self.sampler_bytes * max(DEFAULT_SEQUENCES, concurrency)

    def compute_total_bytes(self, context: int, concurrency: int) -> int:
        """Return all memory that so many sequences with so many tokens each need."""
        return (
            self.weights_bytes
            + self.compute_overhead_bytes(concurrency)
            + self.compute_kv_bytes(context, concurrency)
        )


def compute_max_unified_bytes(kind: str, total_bytes: int, available_bytes: int) -> int | None:
    """Return unified memory less the system's part, `Device.most_bytes`; None for other memory.

    Two DGX Sparks run models that take more than 0.85 of them: eugr/spark-vllm-docker gives Qwen3.5-397B in
    INT4 108 GB of each (recipes/qwen3.5-397b-int4-autoround.yaml).
    """
    if not is_unified(kind):
        return None
    system_bytes = min(_UNIFIED_SYSTEM_BYTES, max(_MIN_SYSTEM_BYTES, total_bytes // _SYSTEM_DIVISOR))
    return max(0, available_bytes - system_bytes)


def compute_usable_bytes(kind: str, total_bytes: int, available_bytes: int) -> int:
    """Return the memory that a rank may take of a device of this kind of host: `Device.memory_bytes`."""
    all_but_system_bytes = compute_max_unified_bytes(kind, total_bytes, available_bytes)
    if all_but_system_bytes is not None:
        max_bytes = min(UNIFIED_SHARE * total_bytes, all_but_system_bytes)
    elif kind == "cpu":
        max_bytes = min(_CPU_SHARE * total_bytes, available_bytes - _CPU_SYSTEM_BYTES)
    else:
        max_bytes = min(_GPU_SHARE * total_bytes, available_bytes)
    return max(0, int(max_bytes))


def compute_utilization(devices: Sequence[Device]) -> float | None:
    """Return the share of memory that every device may take; None if the whole memory of one is unknown.

    It is vLLM's --gpu-memory-utilization.
    """
    shares = [device.memory_bytes / device.total_bytes for device in devices if device.total_bytes]
    # A device's memory is a share that was rounded down to whole bytes.
    return floor(min(shares) * 100 + 1e-6) / 100 if len(shares) == len(devices) else None


def compute_memory_need(shape: Shape, position: PipelinePosition, kind: str) -> MemoryNeed:
    """Return the memory that a rank needs on this kind of host; the first one has the API server."""
    growing, windowed, recurrent = _count_layers(shape, position.layers)
    all_recurrent = _count_layers(shape, shape.layers)[2]
    has_shared_memory = kind == "cpu" or is_unified(kind)
    graph_bytes = 0 if has_shared_memory else _GPU_GRAPH_BYTES
    api_server_bytes = _CPU_API_SERVER_BYTES if position.is_first and kind == "cpu" else 0
    table_bytes = 0
    if position.is_first and not has_shared_memory:
        table_bytes = _divide_up(shape.host_table_bytes, position.tensor_parallel)
    activation_bytes = compute_activation_bytes(shape, position.tensor_parallel)
    windowed_layer_bytes = compute_token_layer_bytes(shape, position.tensor_parallel, windowed=True)
    window_blocks = _divide_up((shape.window or 0) + compute_batch_tokens(shape), BLOCK_TOKENS) + 1
    return MemoryNeed(
        weights_bytes=compute_weights_bytes(shape, position) - table_bytes,
        host_table_bytes=table_bytes,
        fixed_bytes=_RANK_OVERHEAD_BYTES + graph_bytes + api_server_bytes + activation_bytes,
        # Every rank of the last stage holds all words.
        sampler_bytes=_SAMPLER_BYTES * shape.vocabulary if position.is_last else 0,
        token_bytes=_round_up(growing * compute_token_layer_bytes(shape, position.tensor_parallel)),
        windowed_bytes=_round_up(windowed * windowed_layer_bytes),
        window=window_blocks * BLOCK_TOKENS,
        state_bytes=_divide_up(
            _divide_up(_compute_states_bytes(shape) * recurrent, max(1, all_recurrent)),
            # Every rank has the whole latent cache, and the part of it that is not compressed yet.
            1 if is_latent(shape) and not is_recurrent(shape) else position.tensor_parallel,
        ),
    )


def compute_weights_bytes(shape: Shape, position: PipelinePosition) -> int:
    """Return the weights of a rank: its part of the layers, the embedding and the head."""
    tensor_parallel, padded = position.tensor_parallel, pad_vocabulary(shape)
    layer_bytes = _compute_layer_bytes(shape, tensor_parallel, expert_parallel=position.expert_parallel)
    total_bytes = position.layers * layer_bytes
    if position.is_first:
        total_bytes += _divide_up(shape.embedding_bytes * padded, shape.vocabulary * tensor_parallel)
    if position.is_last and (shape.head_bytes or not position.is_first):
        # A head that shares the embedding's weights needs a copy if the embedding is on another stage.
        head_bytes = shape.head_bytes or shape.embedding_bytes
        total_bytes += _divide_up(head_bytes * padded, shape.vocabulary * tensor_parallel)
    return total_bytes


def compute_token_layer_bytes(shape: Shape, tensor_parallel: int, *, windowed: bool = False) -> float:
    """Return the KV cache of one token in one layer of one rank; the mean where layers differ."""
    heads, head_bytes, shared_bytes = shape.kv_heads, shape.kv_head_bytes, shape.kv_bytes_per_token
    if windowed and shape.windowed_kv_heads is not None:
        heads, head_bytes = shape.windowed_kv_heads, shape.windowed_head_bytes
        shared_bytes = shape.windowed_bytes_per_token
    if head_bytes is None:
        head_bytes = 2 * shape.head_dim * _BYTES_OF_16_BITS if shared_bytes is None else 0
    # Heads are split until each rank has one, then copied; each rank has all of the shared part.
    return (
        (_divide_up(heads, tensor_parallel) * head_bytes + (shared_bytes or 0))
        * shape.kv_bits
        / _BITS_OF_CACHE
    )


def compute_read_layer_bytes(shape: Shape, tokens: float, routing: float) -> float:
    """Return the bytes of a layer that a pass reads; more tokens meet more of the experts.

    So many tokens meet as many experts as `tokens ** routing` tokens with random experts. The experts of one
    token are in `active_layer_bytes`.
    """
    if not 0 < shape.experts_per_token < shape.experts:
        return shape.active_layer_bytes
    one_token_share = shape.experts_per_token / shape.experts
    met_share: float = 1 - (1 - one_token_share) ** (max(tokens, 1.0) ** routing)
    inactive_bytes = shape.layer_bytes - shape.active_layer_bytes
    return shape.active_layer_bytes + inactive_bytes * (met_share - one_token_share) / (1 - one_token_share)


def is_latent(shape: Shape) -> bool:
    """Return whether the KV cache has one latent for all heads, and nothing for each of them (MLA)."""
    return shape.kv_bytes_per_token is not None and shape.kv_head_bytes is None


def pad_vocabulary(shape: Shape) -> int:
    """Return the vocabulary rounded up to a multiple of 64, as engines pad it."""
    return _divide_up(shape.vocabulary, _VOCABULARY_MULTIPLE) * _VOCABULARY_MULTIPLE


def is_recurrent(shape: Shape) -> bool:
    """Return whether layers recur; a state next to windows is only the last tokens (DeepSeek V4, Inkling)."""
    return shape.state_bytes > 0 and not shape.windowed_layers


def _compute_states_bytes(shape: Shape) -> int:
    """Return the size of all states that the planned engine keeps of one sequence."""
    return shape.state_bytes * shape.state_copies.most


def compute_batch_tokens(shape: Shape) -> int:
    """Return the most tokens of one forward pass."""
    return _RECURRENT_BATCH_TOKENS if is_recurrent(shape) else _BATCH_TOKENS


def compute_activation_bytes(shape: Shape, tensor_parallel: int, tokens: int | None = None) -> int:
    """Return the peak memory of one forward pass of so many tokens; None: the most tokens of a pass."""
    attention_width = 2 * (shape.heads + shape.kv_heads) * shape.head_dim
    inner_width = 3 * compute_feed_forward_width(shape) * max(1, shape.experts_per_token)
    numbers_per_token = (
        _ACTIVATION_TENSORS * shape.hidden + (attention_width + inner_width) // tensor_parallel
    )
    return _compute_number_bytes(shape) * (tokens or compute_batch_tokens(shape)) * numbers_per_token


def _compute_number_bytes(shape: Shape) -> int:
    """Return the size of a number that the engine computes with."""
    return shape.compute_bits // _BITS_OF_BYTE


def _compute_layer_bytes(shape: Shape, tensor_parallel: int, *, expert_parallel: bool) -> int:
    """Return the weights of one layer on one rank."""
    dense_bytes = max(0, shape.layer_bytes - shape.experts * shape.expert_bytes)
    # Norms and the experts' router are on every rank, not quantized.
    copied_bytes = min(dense_bytes, _compute_number_bytes(shape) * shape.hidden * (2 + shape.experts))
    # Many quantized models leave attention in 16 bits; counted so, the sum is too large, never too small.
    key_bytes = _compute_number_bytes(shape) * 2 * shape.hidden * shape.kv_heads * shape.head_dim
    key_bytes = 0 if is_latent(shape) else min(key_bytes, dense_bytes - copied_bytes)
    key_bytes_per_rank = _divide_up(key_bytes * _divide_up(shape.kv_heads, tensor_parallel), shape.kv_heads)
    expert_bytes = _divide_up(shape.experts * shape.expert_bytes, tensor_parallel)
    if expert_parallel:
        expert_bytes = _divide_up(shape.experts, tensor_parallel) * shape.expert_bytes
    split_bytes = _divide_up(dense_bytes - copied_bytes - key_bytes, tensor_parallel)
    return copied_bytes + split_bytes + key_bytes_per_rank + expert_bytes


def _count_layers(shape: Shape, layers: int) -> tuple[int, int, int]:
    """Return the most layers of a stage that grow, keep a window, and recur; the kinds alternate."""
    growing = shape.attention_layers
    if growing is None:
        growing = shape.layers - shape.windowed_layers
    recurrent = max(0, shape.layers - growing - shape.windowed_layers)
    if shape.state_bytes and recurrent == 0:
        recurrent = shape.layers  # attention and a state in one layer

    def count_share(count: int) -> int:
        return min(layers, _divide_up(count * layers, shape.layers))

    return count_share(growing), count_share(shape.windowed_layers), count_share(recurrent)


def _divide_up(amount: int, parts: int) -> int:
    return -(-amount // parts)


def _round_up(amount: float) -> int:
    """Round up, except for the rounding error of a mean."""
    return ceil(round(amount, 6))
