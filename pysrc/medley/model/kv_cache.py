"""Count the bytes that each layer of a model keeps of a token or of a sequence, as vLLM allocates them."""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from medley.model.config_fields import (
    FULL,
    NAMES,
    PARALLEL,
    RECURRENT,
    SPARSE,
    WINDOWED,
    Fields,
    layer_kinds,
    window,
)
from medley.model.recurrent_state import short_convolutions, state_bytes

_16_BITS = 2
# An index key is kept in 8 bits, with a scale of 4 bytes for 128 of them (vLLM 0.32, models/deepseek_v32/
# attention.py, DeepseekV32Indexer).
_INDEX_SCALE_BYTES, _INDEX_BLOCK = 4, 128
_ENTRY_BYTES, _ALIGNMENT = 584, 576
_RATIOS = {"sliding_attention": 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
"""Kinds of DeepSeek V4's layers in transformers 5, with their default compression."""
# A key's and its score's state in 32 bits; groups of this many tokens overlap, so both are kept twice.
_STATE_BYTES = 8
OVERLAPPING = 4
"""Tokens of an entry whose groups overlap."""
# They compress keys and values as MLA does, and cache what is expanded (is_deepseek_mla in vLLM 0.32,
# transformers_utils/model_arch_config_convertor.py, does not list them).
_EXPANDED = {"minicpm3"}
# vLLM 0.32, model_executor/models/iquest_loopcoder.py.
_LOOP_WINDOW = 64


@dataclass(frozen=True)
class Kept:
    """Bytes of one token in one layer: in each KV head, and once for all of them."""

    heads: int
    head_bytes: int | Fraction
    shared_bytes: Fraction = Fraction(0)


@dataclass(frozen=True)
class Layer:
    growing: Kept | None = None
    windowed: Kept | None = None
    window: int = 0
    """Tokens that `windowed` holds at most."""
    state_bytes: int = 0

    def times(self, number: Fraction) -> "Layer":
        kept = self.growing
        if kept is None or number == 1:
            return self
        more = Kept(kept.heads, kept.head_bytes * number, kept.shared_bytes * number)
        return replace(self, growing=more)


def cache_fields(fields: Fields, count: int) -> dict[str, Any]:
    """Return the entries of `Shape` for the cache of `count` layers, with heads and head_dim."""
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
        "kv_bits": 8 if _in_8_bits(fields) else 16,
        "windowed_layers": len(windowed),
        "window": max((layer.window for layer in layers), default=0) or None,
        "state_bytes": sum(layer.state_bytes for layer in layers),
    }


def _means(kept: list[Kept], head: int, names: tuple[str, str, str]) -> dict[str, Any]:
    """Heads, their bytes and what is kept once, as means over layers, so that sums over layers are exact."""
    if not kept:
        return {names[0]: 1}
    heads = max(each.heads for each in kept)
    split = sum((Fraction(each.heads * each.head_bytes) for each in kept), Fraction(0)) / (heads * len(kept))
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
    return fields.optional(*NAMES["query_heads"]) or 1


def head_dim(fields: Fields) -> int:
    """Return the size of a key, and by default of a value."""
    if fields.optional("kv_lora_rank") is not None:
        return fields.whole("qk_nope_head_dim") + fields.whole("qk_rope_head_dim", least=0)
    told = fields.optional(*NAMES["head_dim"])
    return told or fields.whole(*NAMES["hidden"]) // query_heads(fields)


def _layers(fields: Fields, count: int) -> tuple[Layer, ...]:
    if _in_8_bits(fields):
        layer = _compressed if fields.word("model_type") == "deepseek_v4" else _compressed_for_others
        return tuple(
            layer(fields, ratio, number) for number, ratio in enumerate(compression_ratios(fields, count))
        )
    kinds = layer_kinds(fields, count)
    # The last layers may read what an earlier one keeps: Gemma 3n and 4.
    own = count - (fields.optional("num_kv_shared_layers", least=0) or 0)
    times = _times(fields, count)
    return tuple(
        _layer(_of_layer(fields, number), kind, number).times(times) if number < own else Layer()
        for number, kind in enumerate(kinds)
    )


def _times(fields: Fields, count: int) -> Fraction:
    """Return the number of attentions per layer."""
    model = fields.word("model_type")
    if model == "longcat_flash":
        return Fraction(2)
    if model == "hrm_text":  # each stack of layers runs in cycles, and keeps anew in each
        steps = fields.whole("H_cycles") * (fields.whole("L_cycles") + 1)
        return Fraction(fields.whole("num_layers_per_stack") * steps, count)
    return Fraction(1)


def _of_layer(fields: Fields, number: int) -> Fields:
    """Return the entries of one layer: transformers 5 lists differences by number."""
    several = fields.inner("per_layer_config")
    own = several and (several.inner(str(number)) or several.inner(f"{number:02}"))
    return Fields({**fields.table, **own.table}, own.where) if own else fields


def _layer(fields: Fields, kind: str, number: int) -> Layer:
    if kind in FULL:
        kept = _kept(fields, number)
        state = _open_group_bytes(fields) + short_convolutions(fields, kept.heads, head_dim(fields))
        return _repeated(fields, Layer(kept, state_bytes=state))
    if kind in WINDOWED:
        kept, size = _windowed(fields, number), fields.optional("swa_head_dim") or head_dim(fields)
        inputs = short_convolutions(fields, kept.heads, size)
        return Layer(windowed=kept, window=window(fields) or 0, state_bytes=inputs)
    if kind in PARALLEL:
        return Layer(growing=_kept(fields, number), state_bytes=state_bytes(fields, "mamba"))
    return Layer(state_bytes=state_bytes(fields, kind)) if kind in RECURRENT else Layer()


def compression_ratios(fields: Fields, count: int) -> tuple[int, ...]:
    """Return each layer's tokens per entry; 0 if it has only a window."""
    kinds, said = fields.words("layer_types"), fields.inner("compress_rates")
    ratios = fields.numbers("compress_ratios")
    if not ratios and kinds and set(kinds) <= set(_RATIOS):
        ratios = tuple((said and said.optional(kind)) or _RATIOS[kind] for kind in kinds)
    if len(ratios) < count:
        raise fields.problem("compress_ratios", f"it names {len(ratios)} layers of {count}")
    # The list goes on with the layers that guess ahead.
    return ratios[:count]


def _compressed(fields: Fields, ratio: int, _: int) -> Layer:
    """DeepSeek V4: a window in each layer, and one entry for `ratio` tokens.

    vLLM 0.32's fp8_ds_mla (models/deepseek_v4/attention.py, compressor.py): pages of 64 windowed or 256 other
    tokens, padded to 576 bytes; an entry has 584 bytes.
    """
    near = _page(_ENTRY_BYTES, 64)
    far, state = Fraction(0), 0
    if ratio > 1:
        far += _page(_ENTRY_BYTES, 256, ratio)
        row = _STATE_BYTES * fields.whole("head_dim")
        if ratio == OVERLAPPING:
            size = fields.whole("index_head_dim")
            far += _page(size + size // _INDEX_BLOCK * _INDEX_SCALE_BYTES, 256, ratio)
            state = _open_groups(2 * row) + _open_groups(2 * _STATE_BYTES * size)
        else:
            near += _page(row, 8)
    growing = Kept(1, 0, far) if far else None
    return Layer(growing, Kept(1, 0, near), fields.whole("sliding_window"), state)


def _open_groups(row_bytes: int) -> int:
    """Count two pages of four tokens each: a window of eight tokens, which is always full."""
    return 2 * _aligned(row_bytes * OVERLAPPING)


def _compressed_for_others(fields: Fields, ratio: int, number: int) -> Layer:
    """DeepSeek V4.1: a window in each layer; few keep compressed keys and values, which those behind read.

    As vLLM 0.32 lays fp8_ds_mla out but for compute capability 10.x (models/deepseek_v41/attention.py): pages
    of 32 windowed or 256 other tokens, and a ring of 8 rows in 32 bits where a group of tokens is open.
    """
    near = Kept(1, 0, _page(_ENTRY_BYTES, 32))
    if not ratio or number not in fields.numbers("kv_source_layer_ids"):
        return Layer(windowed=near, window=fields.whole("sliding_window"))
    far = _page(_ENTRY_BYTES, 256, ratio)
    if number in fields.numbers("index_source_layer_ids"):
        size = fields.whole("index_head_dim")
        far += _page(size + size // _INDEX_BLOCK * _INDEX_SCALE_BYTES, 256, ratio)
    ring = 8 * _STATE_BYTES * fields.whole("head_dim") if ratio > 1 else 0
    return Layer(Kept(1, 0, far), near, fields.whole("sliding_window"), ring)


def _in_8_bits(fields: Fields) -> bool:
    """Check for models with an 8-bit KV cache only: `Shape` then has twice the bytes, as of 16 bits."""
    return fields.word("model_type") in {"deepseek_v4", "deepseek_v41"}


def _page(entry_bytes: int, tokens: int, ratio: int = 1) -> Fraction:
    """Return the bytes of one token, as if of 16 bits; a page has an entry per `ratio` tokens."""
    return 2 * Fraction(_aligned(entry_bytes * (tokens // ratio)), tokens)


def _aligned(page_bytes: int) -> int:
    return -(-page_bytes // _ALIGNMENT) * _ALIGNMENT


def _repeated(fields: Fields, layer: Layer) -> Layer:
    """Add the keys and values of a layer that runs again on its output."""
    kept, again = layer.growing, (fields.optional("loop_num") or 1) - 1
    if kept is None or not again:
        return layer
    near = replace(kept, head_bytes=again * kept.head_bytes)
    return Layer(growing=kept, windowed=near, window=fields.optional("loop_window_size") or _LOOP_WINDOW)


def _kept(fields: Fields, number: int) -> Kept:
    latent = fields.optional("kv_lora_rank")
    if latent is not None and fields.word("model_type") not in _EXPANDED:
        # All heads share one compressed key and value, which tensor parallelism cannot split.
        rope = fields.whole("qk_rope_head_dim", least=0)
        return Kept(1, 0, _16_BITS * (latent + rope) + _index_bytes(fields, number))
    if latent is not None:
        return Kept(query_heads(fields), 2 * _16_BITS * head_dim(fields))
    wide = fields.optional("global_head_dim")
    if wide is not None and window(fields) is not None:
        # Gemma 4: full layers have other heads, and fewer where a key is also the value.
        fewer = fields.optional("num_global_key_value_heads") if fields.flag("attention_k_eq_v") else None
        return Kept(fewer or kv_heads(fields), 2 * _16_BITS * wide)
    size = head_dim(fields)
    value = fields.optional("v_head_dim") or size
    return Kept(kv_heads(fields), _16_BITS * (size + value), _block_index_bytes(fields, number))


def _windowed(fields: Fields, number: int) -> Kept:
    """Return the bytes of a layer with a window, which may have other heads."""
    other = fields.inner("attention_other_setting")
    if other is not None:
        return Kept(other.whole("num_attention_groups"), 2 * _16_BITS * other.whole("head_dim"))
    heads = fields.optional("swa_num_key_value_heads")
    if heads is None:
        return _kept(Fields({**fields.table, "global_head_dim": None}, fields.where), number)
    size = fields.optional("swa_head_dim") or head_dim(fields)
    value = fields.optional("swa_v_head_dim", "v_head_dim") or size
    return Kept(heads, _16_BITS * (size + value))


def kv_heads(fields: Fields) -> int:
    # Falcon: one head for all, unless it is of the newer kind. Step 3: one for all.
    falcon = fields.flag("multi_query") and not fields.flag("new_decoder_architecture")
    if falcon or fields.word("model_type") == "step3_text":
        return 1
    return fields.optional(*NAMES["kv_heads"]) or query_heads(fields)


def _index_bytes(fields: Fields, number: int) -> Fraction:
    """Return the index bytes of sparse attention, in layers that choose tokens."""
    size = fields.optional("index_head_dim")
    if size is None or not _chooses(fields, number):
        return Fraction(0)
    kept = size + size // _INDEX_BLOCK * _INDEX_SCALE_BYTES
    return Fraction(kept, fields.optional("index_kpool") or 1)


def _block_index_bytes(fields: Fields, number: int) -> Fraction:
    """Return the index bytes with KV heads: MiniMax M3 in some layers, Qwen 4 in all with attention."""
    sparse = fields.inner("sparse_attention_config")
    if sparse is not None:
        chosen = sparse.numbers("sparse_attention_freq")
        size = sparse.whole("sparse_index_dim") if number < len(chosen) and chosen[number] else 0
        return Fraction(_16_BITS * size)
    size = fields.optional("indexer_head_dim") or 0
    return Fraction(_16_BITS * size, fields.optional("indexer_compress_ratio") or 1)


def _open_group_bytes(fields: Fields) -> int:
    """Return the bytes of keys, for GLM 5 Next also scores, that the next index entry is made from."""
    pooled, grouped = fields.optional("index_kpool"), fields.optional("indexer_compress_ratio")
    if pooled is not None:
        return 2 * _16_BITS * pooled * fields.whole("index_head_dim")
    return 0 if grouped is None else _16_BITS * grouped * fields.whole("indexer_head_dim")


def _chooses(fields: Fields, number: int) -> bool:
    """Check whether this layer has an index, or uses another layer's."""
    types, pattern = fields.words("indexer_types"), fields.word("index_topk_pattern")
    kinds = fields.words("layer_types") or ()
    if fields.word("model_type") == "hy_v4" and (number >= len(kinds) or kinds[number] not in SPARSE):
        return False
    if types is not None:
        return number < len(types) and types[number] == "full"
    if pattern is not None:
        return number >= len(pattern) or pattern[number] != "S"
    every = fields.optional("index_topk_freq") or 1
    offset = fields.optional("index_skip_topk_offset", least=0)
    return max(number - (2 if offset is None else offset) + 1, 0) % every == 0
