"""Count the bytes that each layer of a model keeps of a token or of a sequence, as vLLM allocates them."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from medley.model.config_fields import (
    FULL,
    HIDDEN,
    PARALLEL,
    RECURRENT,
    WINDOWED,
    Fields,
    layer_kinds,
    window,
)
from medley.model.recurrent_state import state_bytes

_16_BITS = 2
# An index key is kept in 8 bits, with a scale of 4 bytes for 128 of them (vLLM 0.32, models/deepseek_v32/
# attention.py, DeepseekV32Indexer).
_INDEX_SCALE_BYTES, _INDEX_BLOCK = 4, 128
# They compress keys and values as MLA does, and cache what is expanded (is_deepseek_mla in vLLM 0.32,
# transformers_utils/model_arch_config_convertor.py, does not list them).
_EXPANDED = {"minicpm3"}
_KV_HEADS = (
    "num_key_value_heads",
    "num_kv_heads",
    "multi_query_group_num",
    "num_attention_groups",
    "kv_n_heads",
)


@dataclass(frozen=True)
class Kept:
    """Bytes of one token in one layer: in each KV head, and once for all of them."""

    heads: int
    head_bytes: int
    shared_bytes: Fraction = Fraction(0)


@dataclass(frozen=True)
class Layer:
    growing: Kept | None = None
    windowed: Kept | None = None
    window: int = 0
    """Tokens that `windowed` holds at most."""
    state_bytes: int = 0


def cache_fields(fields: Fields, count: int) -> dict[str, Any]:
    """The entries of `Shape` that say what `count` layers keep; heads and head_dim are among them."""
    layers = _layers(fields, count)
    growing = [layer.growing for layer in layers if layer.growing]
    windowed = [layer.windowed for layer in layers if layer.windowed]
    head = head_dim(fields)
    found: dict[str, Any] = {"heads": query_heads(fields), "head_dim": head}
    found |= _means(growing or windowed, head, ("kv_heads", "kv_head_bytes", "kv_bytes_per_token"))
    if growing and windowed and set(growing) != set(windowed):
        names = ("windowed_kv_heads", "windowed_head_bytes", "windowed_bytes_per_token")
        found |= _means(windowed, head, names)
    return found | {
        "attention_layers": len(growing) if windowed or len(growing) != count else None,
        "windowed_layers": len(windowed),
        "window": max((layer.window for layer in layers), default=0) or None,
        "state_bytes": sum(layer.state_bytes for layer in layers),
    }


def _means(kept: list[Kept], head: int, names: tuple[str, str, str]) -> dict[str, Any]:
    """Heads, their bytes and what is kept once, as means over layers, so that sums over layers are exact."""
    if not kept:
        return {names[0]: 1}
    heads = max(each.heads for each in kept)
    split = Fraction(sum(each.heads * each.head_bytes for each in kept), heads * len(kept))
    shared = sum((each.shared_bytes for each in kept), Fraction(0)) / len(kept)
    usual = split == 2 * _16_BITS * head and not shared
    return {
        names[0]: heads,
        names[1]: None if usual or (shared and not split) else _number(split),
        names[2]: _number(shared) if shared else None,
    }


def _number(value: Fraction) -> int | float:
    return value.numerator if value.denominator == 1 else float(value)


def query_heads(fields: Fields) -> int:
    return fields.optional("num_attention_heads", "n_head", "num_heads", "n_heads") or 1


def head_dim(fields: Fields) -> int:
    """Of a key and, where nothing else is said, of a value."""
    if fields.optional("kv_lora_rank") is not None:
        return fields.whole("qk_nope_head_dim") + fields.whole("qk_rope_head_dim", least=0)
    told = fields.optional("head_dim", "attention_head_dim", "kv_channels")
    return told or fields.whole(*HIDDEN) // query_heads(fields)


def _layers(fields: Fields, count: int) -> tuple[Layer, ...]:
    kinds = layer_kinds(fields, count)
    # The last layers may read what an earlier one keeps: Gemma 3n and 4.
    own = count - (fields.optional("num_kv_shared_layers", least=0) or 0)
    return tuple(
        _layer(fields, kind, number) if number < own else Layer() for number, kind in enumerate(kinds)
    )


def _layer(fields: Fields, kind: str, number: int) -> Layer:
    if kind in FULL:
        return Layer(growing=_kept(fields, number))
    if kind in WINDOWED:
        return Layer(windowed=_kept(fields, number), window=window(fields) or 0)
    if kind in PARALLEL:
        return Layer(growing=_kept(fields, number), state_bytes=state_bytes(fields, "mamba"))
    return Layer(state_bytes=state_bytes(fields, kind)) if kind in RECURRENT else Layer()


def _kept(fields: Fields, number: int) -> Kept:
    latent = fields.optional("kv_lora_rank")
    if latent is not None and fields.word("model_type") not in _EXPANDED:
        # All heads share one compressed key and value, which tensor parallelism cannot split.
        rope = fields.whole("qk_rope_head_dim", least=0)
        return Kept(1, 0, _16_BITS * (latent + rope) + _index_bytes(fields, number))
    heads = query_heads(fields) if latent is not None else _kv_heads(fields)
    return Kept(heads, 2 * _16_BITS * head_dim(fields))


def _kv_heads(fields: Fields) -> int:
    # Falcon: one head for all, unless it is of the newer kind.
    if fields.flag("multi_query") and not fields.flag("new_decoder_architecture"):
        return 1
    return fields.optional(*_KV_HEADS) or query_heads(fields)


def _index_bytes(fields: Fields, number: int) -> Fraction:
    """What sparse attention keeps to choose tokens by, in the layers that choose."""
    size = fields.optional("index_head_dim")
    if size is None or not _chooses(fields, number):
        return Fraction(0)
    kept = size + size // _INDEX_BLOCK * _INDEX_SCALE_BYTES
    return Fraction(kept, fields.optional("index_kpool") or 1)


def _chooses(fields: Fields, number: int) -> bool:
    """Whether this layer has an index of its own, or takes another's choice."""
    types, pattern = fields.words("indexer_types"), fields.word("index_topk_pattern")
    if types is not None:
        return number < len(types) and types[number] == "full"
    if pattern is not None:
        return number >= len(pattern) or pattern[number] != "S"
    every = fields.optional("index_topk_freq") or 1
    offset = fields.optional("index_skip_topk_offset", least=0)
    return max(number - (2 if offset is None else offset) + 1, 0) % every == 0
