"""Count the bytes of the KV cache that each layer of a model takes, as vLLM allocates them."""

from fractions import Fraction
from typing import Any

from medley.model.config_fields import (
    FIELD_NAMES,
    FULL_KINDS,
    PARALLEL_KINDS,
    RECURRENT_KINDS,
    SPARSE_KINDS,
    WINDOWED_KINDS,
    ConfigFields,
    find_window,
    list_layer_kinds,
)
from medley.model.recurrent_state import compute_short_convolution_bytes, compute_state_bytes
from medley.values import Value

_16_BITS_BYTES = 2
# An index key is kept in 8 bits, with a scale of 4 bytes for 128 of them (vLLM 0.32, models/deepseek_v32/
# attention.py, DeepseekV32Indexer).
_INDEX_SCALE_BYTES, _INDEX_BLOCK_NUMBERS = 4, 128
_COMPRESSED_ENTRY_BYTES, _PAGE_ALIGNMENT_BYTES = 584, 576
_RATIO_BY_KIND = {
    "sliding_attention": 0,
    "compressed_sparse_attention": 4,
    "heavily_compressed_attention": 128,
}
"""Kinds of DeepSeek V4's layers in transformers 5, with their default compression."""
# The states of a key and of its score, each in 32 bits.
_STATE_BYTES = 8
OVERLAPPING_RATIO = 4
"""The compression ratio at which neighboring groups of tokens overlap, so their states are kept twice."""
# Models that compress keys and values as MLA does, but cache them expanded (is_deepseek_mla in vLLM 0.32,
# transformers_utils/model_arch_config_convertor.py, does not list them).
_EXPANDED_MODELS = {"minicpm3"}
# vLLM 0.32, model_executor/models/iquest_loopcoder.py.
_LOOP_WINDOW_TOKENS = 64


class TokenBytes(Value):
    """The bytes of one token in one layer: in each KV head, and once for all of them."""

    heads: int
    head_bytes: int | Fraction
    shared_bytes: Fraction = Fraction(0)


def _build_shared_bytes(token_bytes: Fraction) -> TokenBytes:
    """Return the bytes of a token that all heads share: there is one head, with no bytes of its own."""
    return TokenBytes(1, 0, token_bytes)


class LayerCache(Value):
    """The cache of one layer."""

    growing: TokenBytes | None = None
    """The bytes of every token of the sequence."""
    windowed: TokenBytes | None = None
    """The bytes of each token of the window."""
    window: int = 0
    """The most tokens that `windowed` holds."""
    state_bytes: int = 0
    """The bytes of a sequence, whatever its length."""

    def multiply(self, number: Fraction) -> "LayerCache":
        """Return the layer with this number of attentions."""
        token = self.growing
        if token is None or number == 1:
            return self
        multiple = TokenBytes(token.heads, token.head_bytes * number, token.shared_bytes * number)
        return self.replace(growing=multiple)


def build_cache_fields(fields: ConfigFields, count: int) -> dict[str, Any]:
    """Return the entries of `Shape` for the cache of `count` layers, with heads and head_dim."""
    layers = _build_layers(fields, count)
    growing = [layer.growing for layer in layers if layer.growing]
    windowed = [layer.windowed for layer in layers if layer.windowed]
    head_size = find_head_dim(fields)
    entries: dict[str, Any] = {"heads": count_query_heads(fields), "head_dim": head_size}
    entries |= _compute_means(
        growing or windowed, head_size, ("kv_heads", "kv_head_bytes", "kv_bytes_per_token")
    )
    if growing and windowed and set(growing) != set(windowed):
        names = ("windowed_kv_heads", "windowed_head_bytes", "windowed_bytes_per_token")
        entries |= _compute_means(windowed, head_size, names)
    return entries | {
        "attention_layers": len(growing) if windowed or len(growing) != count else None,
        "kv_bits": 8 if _is_deepseek_v4_family(fields) else 16,
        "windowed_layers": len(windowed),
        "window": max((layer.window for layer in layers), default=0) or None,
        "state_bytes": sum(layer.state_bytes for layer in layers),
    }


def _compute_means(tokens: list[TokenBytes], head_size: int, names: tuple[str, str, str]) -> dict[str, Any]:
    """Return the most heads, the bytes of a head and the bytes shared by all heads, under these names.

    The bytes are means over layers, so that sums over layers are exact.
    """
    if not tokens:
        return {names[0]: 1}
    heads = max(token.heads for token in tokens)
    split_bytes = sum((Fraction(token.heads * token.head_bytes) for token in tokens), Fraction(0))
    split = split_bytes / (heads * len(tokens))
    shared = sum((token.shared_bytes for token in tokens), Fraction(0)) / len(tokens)
    is_usual = split == 2 * _16_BITS_BYTES * head_size and not shared
    return {
        names[0]: heads,
        names[1]: None if is_usual or (shared and not split) else _simplify(split),
        names[2]: _simplify(shared) if shared else None,
    }


def _simplify(value: Fraction) -> int | float:
    return value.numerator if value.denominator == 1 else float(value)


def count_query_heads(fields: ConfigFields) -> int:
    return fields.find_number(*FIELD_NAMES["query_heads"]) or 1


def find_head_dim(fields: ConfigFields) -> int:
    """Return the size of a key, and by default of a value."""
    if fields.find_number("kv_lora_rank") is not None:
        return fields.require_number("qk_nope_head_dim") + fields.require_number(
            "qk_rope_head_dim", minimum=0
        )
    size = fields.find_number(*FIELD_NAMES["head_dim"])
    return size or fields.require_number(*FIELD_NAMES["hidden"]) // count_query_heads(fields)


def _build_layers(fields: ConfigFields, count: int) -> tuple[LayerCache, ...]:
    """Return the cache of each layer."""
    if _is_deepseek_v4_family(fields):
        build = _build_v4_layer if fields.find_word("model_type") == "deepseek_v4" else _build_v4_1_layer
        ratios = list_compression_ratios(fields, count)
        return tuple(build(fields, ratio, number) for number, ratio in enumerate(ratios))
    kinds = list_layer_kinds(fields, count)
    # The last layers may read the cache of an earlier one: Gemma 3n and 4.
    shared = fields.find_number("num_kv_shared_layers", minimum=0) or 0
    attentions = _count_attentions(fields, count)
    layers = []
    for number, kind in enumerate(kinds):
        layer = LayerCache()
        if number < count - shared:
            layer = _build_layer(_find_layer_fields(fields, number), kind, number).multiply(attentions)
        layers.append(layer)
    return tuple(layers)


def _count_attentions(fields: ConfigFields, count: int) -> Fraction:
    """Return the number of attentions per layer."""
    model = fields.find_word("model_type")
    if model == "longcat_flash":
        return Fraction(2)
    if model == "hrm_text":  # each stack of layers runs in cycles, and each run has its own cache
        steps = fields.require_number("H_cycles") * (fields.require_number("L_cycles") + 1)
        return Fraction(fields.require_number("num_layers_per_stack") * steps, count)
    return Fraction(1)


def _find_layer_fields(fields: ConfigFields, number: int) -> ConfigFields:
    """Return the entries of one layer: transformers 5 lists differences by number."""
    by_number = fields.find_table("per_layer_config")
    differences = by_number and (by_number.find_table(str(number)) or by_number.find_table(f"{number:02}"))
    return ConfigFields({**fields.table, **differences.table}, differences.where) if differences else fields


def _build_layer(fields: ConfigFields, kind: str, number: int) -> LayerCache:
    if kind in FULL_KINDS:
        token = _compute_full_bytes(fields, number)
        state_size = _compute_open_group_bytes(fields) + compute_short_convolution_bytes(
            fields, token.heads, find_head_dim(fields)
        )
        return _add_repeats(fields, LayerCache(token, state_bytes=state_size))
    if kind in WINDOWED_KINDS:
        token = _compute_windowed_bytes(fields, number)
        head_size = fields.find_number("swa_head_dim") or find_head_dim(fields)
        input_bytes = compute_short_convolution_bytes(fields, token.heads, head_size)
        return LayerCache(windowed=token, window=find_window(fields) or 0, state_bytes=input_bytes)
    if kind in PARALLEL_KINDS:
        return LayerCache(
            growing=_compute_full_bytes(fields, number), state_bytes=compute_state_bytes(fields, "mamba")
        )
    return (
        LayerCache(state_bytes=compute_state_bytes(fields, kind)) if kind in RECURRENT_KINDS else LayerCache()
    )


def list_compression_ratios(fields: ConfigFields, count: int) -> tuple[int, ...]:
    """Return each layer's tokens per entry; 0 if it has only a window."""
    kinds, rates = fields.find_words("layer_types"), fields.find_table("compress_rates")
    ratios = fields.find_numbers("compress_ratios")
    if not ratios and kinds and set(kinds) <= set(_RATIO_BY_KIND):
        ratios = tuple((rates and rates.find_number(kind)) or _RATIO_BY_KIND[kind] for kind in kinds)
    if len(ratios) < count:
        raise fields.build_problem("compress_ratios", f"it names {len(ratios)} layers of {count}")
    # The list goes on with the layers of multi-token prediction (MTP).
    return ratios[:count]


def _build_v4_layer(fields: ConfigFields, ratio: int, _: int) -> LayerCache:
    """Return a layer of DeepSeek V4, which has a window, and one entry for `ratio` tokens.

    vLLM 0.32's fp8_ds_mla (models/deepseek_v4/attention.py, compressor.py): pages of 64 windowed or 256 other
    tokens, padded to 576 bytes; an entry has 584 bytes.
    """
    window_bytes = _compute_paged_bytes(_COMPRESSED_ENTRY_BYTES, 64)
    entry_bytes, state_size = Fraction(0), 0
    if ratio > 1:
        entry_bytes += _compute_paged_bytes(_COMPRESSED_ENTRY_BYTES, 256, ratio)
        row_bytes = _STATE_BYTES * fields.require_number("head_dim")
        if ratio == OVERLAPPING_RATIO:
            index_size = fields.require_number("index_head_dim")
            entry_bytes += _compute_paged_bytes(_compute_index_key_bytes(index_size), 256, ratio)
            state_size = _compute_open_page_bytes(2 * row_bytes) + _compute_open_page_bytes(
                2 * _STATE_BYTES * index_size
            )
        else:
            window_bytes += _compute_paged_bytes(row_bytes, 8)
    growing = _build_shared_bytes(entry_bytes) if entry_bytes else None
    return LayerCache(
        growing, _build_shared_bytes(window_bytes), fields.require_number("sliding_window"), state_size
    )


def _compute_open_page_bytes(row_bytes: int) -> int:
    """Return the bytes of the states of open groups of tokens, whose entry is not written yet.

    They take two pages of four tokens each: a window of eight tokens, which is always full.
    """
    return 2 * _align(row_bytes * OVERLAPPING_RATIO)


def _build_v4_1_layer(fields: ConfigFields, ratio: int, number: int) -> LayerCache:
    """Return a layer of DeepSeek V4.1, which has a window.

    Few layers hold compressed keys and values, which the other layers read.

    This is fp8_ds_mla of vLLM 0.32, except on compute capability 10.x (models/deepseek_v41/attention.py):
    pages of 32 windowed or 256 other tokens, and a ring of 8 rows in 32 bits for the open group of tokens.
    """
    windowed = _build_shared_bytes(_compute_paged_bytes(_COMPRESSED_ENTRY_BYTES, 32))
    if not ratio or number not in fields.find_numbers("kv_source_layer_ids"):
        return LayerCache(windowed=windowed, window=fields.require_number("sliding_window"))
    entry_bytes = _compute_paged_bytes(_COMPRESSED_ENTRY_BYTES, 256, ratio)
    if number in fields.find_numbers("index_source_layer_ids"):
        index_size = fields.require_number("index_head_dim")
        entry_bytes += _compute_paged_bytes(_compute_index_key_bytes(index_size), 256, ratio)
    ring_bytes = 8 * _STATE_BYTES * fields.require_number("head_dim") if ratio > 1 else 0
    return LayerCache(
        _build_shared_bytes(entry_bytes), windowed, fields.require_number("sliding_window"), ring_bytes
    )


def _is_deepseek_v4_family(fields: ConfigFields) -> bool:
    """Return whether this is DeepSeek V4 or V4.1, whose KV cache is always in 8 bits."""
    return fields.find_word("model_type") in {"deepseek_v4", "deepseek_v41"}


def _compute_index_key_bytes(size: int) -> int:
    """Return the bytes of an index key of `size` numbers in 8 bits, with their scales."""
    return size + size // _INDEX_BLOCK_NUMBERS * _INDEX_SCALE_BYTES


def _compute_paged_bytes(entry_bytes: int, page_tokens: int, ratio: int = 1) -> Fraction:
    """Return the bytes of one token, as if in 16 bits; a page has an entry per `ratio` tokens."""
    # Twice, because `Shape` counts as if in 16 bits, and its `kv_bits` of 8 halves that.
    return 2 * Fraction(_align(entry_bytes * (page_tokens // ratio)), page_tokens)


def _align(page_bytes: int) -> int:
    return -(-page_bytes // _PAGE_ALIGNMENT_BYTES) * _PAGE_ALIGNMENT_BYTES


def _add_repeats(fields: ConfigFields, layer: LayerCache) -> LayerCache:
    """Add the keys and values of a layer that runs again on its output."""
    token, repeats = layer.growing, (fields.find_number("loop_num") or 1) - 1
    if token is None or not repeats:
        return layer
    windowed = token.replace(head_bytes=repeats * token.head_bytes)
    window_tokens = fields.find_number("loop_window_size") or _LOOP_WINDOW_TOKENS
    return layer.replace(windowed=windowed, window=window_tokens)


def _compute_full_bytes(fields: ConfigFields, number: int) -> TokenBytes:
    """Return the bytes of a token in a layer with full attention."""
    latent_size = fields.find_number("kv_lora_rank")
    if latent_size is not None and fields.find_word("model_type") not in _EXPANDED_MODELS:
        # All heads share one compressed key and value, which tensor parallelism cannot split.
        rope_size = fields.require_number("qk_rope_head_dim", minimum=0)
        return _build_shared_bytes(
            _16_BITS_BYTES * (latent_size + rope_size) + _compute_index_bytes(fields, number)
        )
    if latent_size is not None:
        return TokenBytes(count_query_heads(fields), 2 * _16_BITS_BYTES * find_head_dim(fields))
    global_size = fields.find_number("global_head_dim")
    if global_size is not None and find_window(fields) is not None:
        # Gemma 4: full layers have other heads, and fewer where a key is also the value.
        global_heads = (
            fields.find_number("num_global_key_value_heads") if fields.find_flag("attention_k_eq_v") else None
        )
        return TokenBytes(global_heads or count_kv_heads(fields), 2 * _16_BITS_BYTES * global_size)
    key_size = find_head_dim(fields)
    value_size = fields.find_number("v_head_dim") or key_size
    return TokenBytes(
        count_kv_heads(fields),
        _16_BITS_BYTES * (key_size + value_size),
        _compute_block_index_bytes(fields, number),
    )


def _compute_windowed_bytes(fields: ConfigFields, number: int) -> TokenBytes:
    """Return the bytes of a token in a layer with a window, which may have other heads."""
    other_setting = fields.find_table("attention_other_setting")
    if other_setting is not None:
        return TokenBytes(
            other_setting.require_number("num_attention_groups"),
            2 * _16_BITS_BYTES * other_setting.require_number("head_dim"),
        )
    heads = fields.find_number("swa_num_key_value_heads")
    if heads is None:
        # Without Gemma 4's head size for full layers, which a layer with a window does not have.
        return _compute_full_bytes(
            ConfigFields({**fields.table, "global_head_dim": None}, fields.where), number
        )
    key_size = fields.find_number("swa_head_dim") or find_head_dim(fields)
    value_size = fields.find_number("swa_v_head_dim", "v_head_dim") or key_size
    return TokenBytes(heads, _16_BITS_BYTES * (key_size + value_size))


def count_kv_heads(fields: ConfigFields) -> int:
    # Falcon: one head for all, unless it is of the newer kind. Step 3: one for all.
    falcon = fields.find_flag("multi_query") and not fields.find_flag("new_decoder_architecture")
    if falcon or fields.find_word("model_type") == "step3_text":
        return 1
    return fields.find_number(*FIELD_NAMES["kv_heads"]) or count_query_heads(fields)


def _compute_index_bytes(fields: ConfigFields, number: int) -> Fraction:
    """Return the index bytes of sparse attention, in layers that choose tokens."""
    size = fields.find_number("index_head_dim")
    if size is None or not _has_index(fields, number):
        return Fraction(0)
    return Fraction(_compute_index_key_bytes(size), fields.find_number("index_kpool") or 1)


def _compute_block_index_bytes(fields: ConfigFields, number: int) -> Fraction:
    """Return the index bytes with KV heads: MiniMax M3 in some layers, Qwen 4 in all with attention."""
    sparse = fields.find_table("sparse_attention_config")
    if sparse is not None:
        index_flags = sparse.find_numbers("sparse_attention_freq")
        size = (
            sparse.require_number("sparse_index_dim")
            if number < len(index_flags) and index_flags[number]
            else 0
        )
        return Fraction(_16_BITS_BYTES * size)
    size = fields.find_number("indexer_head_dim") or 0
    return Fraction(_16_BITS_BYTES * size, fields.find_number("indexer_compress_ratio") or 1)


def _compute_open_group_bytes(fields: ConfigFields) -> int:
    """Return the bytes of keys, for GLM 5 Next also scores, that the next index entry is made from."""
    pooled_tokens = fields.find_number("index_kpool")
    grouped_tokens = fields.find_number("indexer_compress_ratio")
    if pooled_tokens is not None:
        return 2 * _16_BITS_BYTES * pooled_tokens * fields.require_number("index_head_dim")
    return (
        0
        if grouped_tokens is None
        else _16_BITS_BYTES * grouped_tokens * fields.require_number("indexer_head_dim")
    )


def _has_index(fields: ConfigFields, number: int) -> bool:
    """Return whether this layer has an index of its own, and does not use another layer's."""
    types, pattern = fields.find_words("indexer_types"), fields.find_word("index_topk_pattern")
    kinds = fields.find_words("layer_types") or ()
    if fields.find_word("model_type") == "hy_v4" and (
        number >= len(kinds) or kinds[number] not in SPARSE_KINDS
    ):
        return False
    if types is not None:
        return number < len(types) and types[number] == "full"
    if pattern is not None:
        return number >= len(pattern) or pattern[number] != "S"
    # As vLLM skips an index (models/deepseek_v32/attention.py), with an offset of 2 by default.
    frequency = fields.find_number("index_topk_freq") or 1
    offset = fields.find_number("index_skip_topk_offset", minimum=0)
    return max(number - (2 if offset is None else offset) + 1, 0) % frequency == 0
