"""A rank's need: the memory that its share of a model takes, for any context and concurrency."""

from dataclasses import dataclass

from medley.layout.engine_memory import SEQUENCES, batch_tokens, overhead_bytes, sampler_bytes
from medley.layout.shapes import Device
from medley.tables import Shape

BLOCK_TOKENS = 16
"""vLLM's default block: a sequence's cache grows by so many tokens."""
_VOCABULARY_PADDING = 64
_16_BITS = 2
_BITS = 16


@dataclass(frozen=True)
class Place:
    """Where in a pipeline a rank stands."""

    layers: int
    tensor: int = 1
    first: bool = True
    last: bool = True
    expert_parallel: bool = False


@dataclass(frozen=True)
class Need:
    weights_bytes: int
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
    """Recurrent state of one sequence."""

    def kv_bytes(self, context: int, concurrency: int) -> int:
        tokens = -(-context // BLOCK_TOKENS) * BLOCK_TOKENS
        windowed = min(tokens, self.window)
        return concurrency * (self.token_bytes * tokens + self.windowed_bytes * windowed + self.state_bytes)

    def overhead_bytes(self, concurrency: int) -> int:
        return self.fixed_bytes + self.sampler_bytes * max(SEQUENCES, concurrency)

    def total_bytes(self, context: int, concurrency: int) -> int:
        return self.weights_bytes + self.overhead_bytes(concurrency) + self.kv_bytes(context, concurrency)


def need(shape: Shape, place: Place, device: Device, *, head: bool = False) -> Need:
    """Of one rank; `head`: it is the first of its pipeline, beside which the API server runs."""
    growing, windowed, recurrent = _layers(shape, place.layers)
    cache = token_layer_bytes(shape, place.tensor)
    all_recurrent = _layers(shape, shape.layers)[2]
    state = _up(_up(shape.state_bytes * recurrent, max(1, all_recurrent)), place.tensor)
    return Need(
        weights_bytes=weights_bytes(shape, place),
        fixed_bytes=overhead_bytes(shape, device, place.tensor, head=head),
        sampler_bytes=sampler_bytes(shape) if place.last else 0,
        token_bytes=growing * cache,
        windowed_bytes=windowed * cache,
        window=(_up((shape.window or 0) + batch_tokens(shape), BLOCK_TOKENS) + 1) * BLOCK_TOKENS,
        state_bytes=state,
    )


def weights_bytes(shape: Shape, place: Place) -> int:
    found = place.layers * _layer_bytes(shape, place.tensor, expert_parallel=place.expert_parallel)
    padded = padded_vocabulary(shape)
    if place.first:
        found += _up(shape.embedding_bytes * padded, shape.vocabulary * place.tensor)
    if place.last and (shape.head_bytes or not place.first):
        # A head that is the embedding has to be there again where the embedding is on another stage.
        found += _up((shape.head_bytes or shape.embedding_bytes) * padded, shape.vocabulary * place.tensor)
    return found


def token_layer_bytes(shape: Shape, tensor: int) -> int:
    """KV cache of one token in one layer of one rank."""
    if shape.kv_bytes_per_token is not None:
        # MLA keeps one latent for all heads, and each rank a copy of it.
        return shape.kv_bytes_per_token * shape.kv_bits // _BITS
    return 2 * _kv_heads(shape, tensor) * shape.head_dim * _16_BITS * shape.kv_bits // _BITS


def padded_vocabulary(shape: Shape) -> int:
    return -(-shape.vocabulary // _VOCABULARY_PADDING) * _VOCABULARY_PADDING


def _kv_heads(shape: Shape, tensor: int) -> int:
    """Split until each rank has one, then copied."""
    return _up(shape.kv_heads, tensor)


def _layer_bytes(shape: Shape, tensor: int, *, expert_parallel: bool) -> int:
    dense = max(0, shape.layer_bytes - shape.experts * shape.expert_bytes)
    # Norms and the experts' router are on every rank, in 16 bits.
    copied = min(dense, _16_BITS * shape.hidden * (2 + shape.experts))
    keys = 0
    if shape.kv_bytes_per_token is None:
        # In 16 bits, as many quantised models leave their attention: it is too much, never too little.
        keys = _16_BITS * 2 * shape.hidden * shape.kv_heads * shape.head_dim
    keys = min(keys, dense - copied)
    held = _up(keys * _kv_heads(shape, tensor), shape.kv_heads)
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
    counts = (growing, shape.windowed_layers, recurrent)
    grown, windowed, recurring = (min(layers, _up(count * layers, shape.layers)) for count in counts)
    return grown, windowed, recurring


def _up(amount: int, parts: int) -> int:
    return -(-amount // parts)
