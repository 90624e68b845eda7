"""Estimate a model's bytes from config.json: only matrices, as norms and biases are below 1%."""

from collections.abc import Collection, Mapping
from typing import Any

from medley.model.checkpoint import Tensor, find_part
from medley.model.compressed_attention import (
    BYTES_PER_ATTENTION_WEIGHT,
    count_attention_weights,
    count_compressor_weights,
)
from medley.model.config_fields import (
    FEED_FORWARD_KINDS,
    FIELD_NAMES,
    PARALLEL_KINDS,
    RECURRENT_KINDS,
    WINDOWED_KINDS,
    ConfigFields,
    count_layers,
    list_layer_kinds,
)
from medley.model.kv_cache import count_kv_heads, count_query_heads, find_head_dim, list_compression_ratios
from medley.model.recurrent_state import MAMBA_1_MODELS
from medley.schema import WeightFormat as Format

_BYTES_PER_EMBEDDING_WEIGHT = 2.0
"""The bytes of a weight of embedding, head and routers: quantized models keep most of these in 16 bits."""

_WIDE_ERROR, _NARROW_ERROR = 0.04, 0.2
# Their feed-forward has no gate beside its up projection (transformers 5.19, models/*/modeling_*.py), nor has
# Nemotron's, which its activation says.
_UNGATED_MODELS = {
    "gpt2",
    "gptj",
    "bloom",
    "opt",
    "falcon",
    "apertus",
    "starcoder2",
    "gpt_neox",
    "phi",
    "mpt",
}
# Their attention has a gate as wide as its queries (the same modules of transformers).
_GATED_MODELS = ("afmoe", "muse_glimmer", "hrm_text")
# A layer of theirs is Mamba and nothing else.
_BARE_MODELS = {"mamba", "mamba2", "falcon_mamba"}
_MAX_TOTAL_BYTES = 1 << 50
_MAX_LAYERS = 4096
"""The limit, above any model's layers, because each layer takes memory here."""


def find_weights_error(weights: Format) -> float:
    """Return the share by which an estimate without the index's total may be too high.

    tests/model/test_estimate.py compares it with all models whose sizes are known. In 4 bits config.json does
    not say which layers stay wider.
    """
    return _NARROW_ERROR if weights in {"nvfp4", "mxfp4", "awq", "int4"} else _WIDE_ERROR


def estimate_tensors(fields: ConfigFields, index: Mapping[str, Any], bytes_each: float) -> dict[str, Tensor]:
    """Return a tensor for each part of each layer; raise a Problem for an entry that config.json lacks."""
    layers = count_layers(fields)
    if layers > _MAX_LAYERS:
        raise fields.build_problem("num_hidden_layers", f"it is {layers}; the limit is {_MAX_LAYERS}")
    names = index.get("weight_map")
    names = tuple(names) if isinstance(names, dict) else ()
    embedding_weights = fields.require_number("vocab_size") * fields.require_number(*FIELD_NAMES["hidden"])
    tensors = {"model.embed_tokens.weight": _build_tensor(embedding_weights, _BYTES_PER_EMBEDDING_WEIGHT)}
    parts = {find_part(name, layers)[0] for name in names}
    if not fields.find_flag("tie_word_embeddings") and ("head" in parts or not names):
        tensors["lm_head.weight"] = _build_tensor(embedding_weights, _BYTES_PER_EMBEDDING_WEIGHT)
    per_layer_width = _find_per_layer_width(fields)
    if per_layer_width:
        vocabulary = fields.find_number("vocab_size_per_layer_input") or fields.require_number("vocab_size")
        tensors["model.embed_tokens_per_layer.weight"] = _build_tensor(
            vocabulary * layers * per_layer_width, _BYTES_PER_EMBEDDING_WEIGHT
        )
    if fields.find_word("model_type") == "deepseek_v4":
        tensors |= _estimate_compressed_layers(fields, layers, bytes_each)
        return _match_total(tensors, names, index, parts)
    kinds = list_layer_kinds(fields, layers)
    # Nemotron-H counts a bare feed-forward as a layer: then attention has none of its own.
    has_own_feed_forward = bool(FEED_FORWARD_KINDS & set(kinds))
    # Beside experts in 4 bits attention is mostly kept in 16 (gpt-oss), or in 8: the larger is safer.
    is_mixed = bytes_each < 1 and bool(fields.find_number(*FIELD_NAMES["experts"], minimum=0))
    plain_bytes = _BYTES_PER_EMBEDDING_WEIGHT if is_mixed else bytes_each
    for layer, kind in enumerate(kinds):
        prefix = f"model.layers.{layer}"
        plain, routed = _count_layer_weights(fields, layer, kind, has_own_feed_forward=has_own_feed_forward)
        tensors[f"{prefix}.weight"] = _build_tensor(plain, plain_bytes)
        if routed:
            tensors[f"{prefix}.mlp.experts.weight"] = _build_tensor(routed, bytes_each)
    return _match_total(tensors, names, index, parts)


def _estimate_compressed_layers(fields: ConfigFields, layers: int, bytes_each: float) -> dict[str, Tensor]:
    """Return DeepSeek V4's layers, whose kinds are their compression ratios."""
    tensors = {}
    for layer, ratio in enumerate(list_compression_ratios(fields, layers)):
        prefix = f"model.layers.{layer}"
        plain, routed = _count_feed_forward_weights(fields, layer, "full_attention")
        tensors[f"{prefix}.weight"] = _build_tensor(
            count_attention_weights(fields, ratio) + plain, BYTES_PER_ATTENTION_WEIGHT
        )
        tensors[f"{prefix}.compressor.weight"] = _build_tensor(
            count_compressor_weights(fields, ratio), _BYTES_PER_EMBEDDING_WEIGHT
        )
        tensors[f"{prefix}.mlp.experts.weight"] = _build_tensor(routed, bytes_each)
    return tensors


def _count_layer_weights(
    fields: ConfigFields, layer: int, kind: str, *, has_own_feed_forward: bool
) -> tuple[int, int]:
    """Count a layer's weights: those that every token uses, and routed experts."""
    mixer = 0 if kind in FEED_FORWARD_KINDS else _count_mixer_weights(fields, kind)
    plain, routed = (
        _count_feed_forward_weights(fields, layer, kind)
        if kind in FEED_FORWARD_KINDS or not has_own_feed_forward
        else (0, 0)
    )
    return mixer + plain + 2 * fields.require_number(*FIELD_NAMES["hidden"]) * _find_per_layer_width(
        fields
    ), routed


def _find_per_layer_width(fields: ConfigFields) -> int:
    """Return the width of per-layer embeddings (Gemma 3n and 4), through two matrices."""
    return fields.find_number("hidden_size_per_layer_input", minimum=0) or 0


def _count_mixer_weights(fields: ConfigFields, kind: str) -> int:
    """Count the weights of a layer's attention, or of its replacement."""
    hidden = fields.require_number(*FIELD_NAMES["hidden"])
    if kind == "conv":
        # LFM2: three gates in, one out.
        return 4 * hidden * hidden
    if kind in PARALLEL_KINDS:
        return _count_mixer_weights(fields, "mamba") + _count_mixer_weights(fields, "attention")
    if kind in RECURRENT_KINDS:
        return _count_recurrent_weights(fields, kind, hidden)
    heads = count_query_heads(fields)
    latent = fields.find_number("kv_lora_rank")
    if latent is not None:
        return _count_latent_weights(fields, hidden, heads, latent) + _count_index_weights(fields, hidden)
    # Where some layers are recurrent, those with attention have a gate as wide as the queries (Qwen3-Next).
    has_gate = fields.find_number("linear_num_value_heads") or (
        fields.find_word("model_type") or ""
    ).startswith(_GATED_MODELS)
    query_parts = 3 if has_gate else 2
    query_heads, key_size, key_heads = heads, find_head_dim(fields), count_kv_heads(fields)
    value_size = fields.find_number("v_head_dim") or key_size
    if kind not in WINDOWED_KINDS:
        key_size = fields.find_number("global_head_dim") or key_size  # Gemma 4
        value_size = fields.find_number("v_head_dim") or key_size
    else:
        query_heads = fields.find_number("swa_num_attention_heads") or heads
        key_size = fields.find_number("swa_head_dim") or key_size
        value_size = fields.find_number("swa_v_head_dim") or value_size
        key_heads = fields.find_number("swa_num_key_value_heads") or key_heads
    return hidden * (
        query_heads * (key_size * (query_parts - 1) + value_size) + key_heads * (key_size + value_size)
    )


def _count_recurrent_weights(fields: ConfigFields, kind: str, hidden: int) -> int:
    """Count the weights of a gated delta net, of Kimi's (KDA), or of Mamba 1 or 2."""
    if kind == "linear_attention" and fields.find_number("linear_num_value_heads") is not None:
        value_width = fields.require_number("linear_num_value_heads") * fields.require_number(
            "linear_value_head_dim"
        )
        key_width = fields.require_number("linear_num_key_heads") * fields.require_number(
            "linear_key_head_dim"
        )
        return hidden * (2 * key_width + 3 * value_width)
    linear_config = fields.find_table("linear_attn_config") or fields
    heads = linear_config.find_number("linear_num_heads", "num_heads") if kind == "linear_attention" else None
    if heads is not None:
        # Queries, keys, values and output; the decay and the gate go through one head's width.
        head_size = linear_config.require_number("linear_head_dim", "head_dim")
        return 4 * hidden * heads * head_size + 2 * head_size * (hidden + heads * head_size)
    state = fields.require_number(*FIELD_NAMES["mamba_state"])
    if fields.find_word("model_type") in MAMBA_1_MODELS:
        expanded = fields.find_number("mamba_expand")
        inner = expanded * hidden if expanded else fields.require_number("intermediate_size")
        rank = fields.find_number("mamba_dt_rank", "time_step_rank") or -(-hidden // 16)
        return inner * (3 * hidden + 2 * rank + 3 * state)
    inner_size = fields.find_number("mamba_d_ssm")
    if inner_size is None:
        inner_size = fields.require_number(*FIELD_NAMES["mamba_heads"]) * fields.require_number(
            *FIELD_NAMES["mamba_head_dim"]
        )
    return hidden * (3 * inner_size + 2 * fields.require_number(*FIELD_NAMES["mamba_groups"]) * state)


def _count_index_weights(fields: ConfigFields, hidden: int) -> int:
    """Count the index weights of DeepSeek's sparse attention."""
    size = fields.find_number("index_head_dim")
    if size is None:
        return 0
    heads = fields.require_number("index_n_heads")
    return size * (heads * (fields.find_number("q_lora_rank") or hidden) + hidden) + hidden * heads


def _count_latent_weights(fields: ConfigFields, hidden: int, heads: int, latent_size: int) -> int:
    """Count the weights of MLA as DeepSeek-V2's description has them."""
    rope_size = fields.require_number("qk_rope_head_dim", minimum=0)
    key_size = fields.require_number("qk_nope_head_dim")
    value_size = fields.find_number("v_head_dim") or key_size
    query_rank = fields.find_number("q_lora_rank")
    query_width = heads * (key_size + rope_size)
    query_weights = query_rank * (hidden + query_width) if query_rank else hidden * query_width
    return (
        query_weights
        + hidden * (latent_size + rope_size)
        + latent_size * heads * (key_size + value_size)
        + heads * value_size * hidden
    )


def _count_feed_forward_weights(fields: ConfigFields, layer: int, kind: str) -> tuple[int, int]:
    """Count feed-forward weights: those that every token uses, and routed experts."""
    hidden, model = fields.require_number(*FIELD_NAMES["hidden"]), fields.find_word("model_type") or ""
    if model in _BARE_MODELS:
        return 0, 0
    activation = fields.table.get("mlp_hidden_act") or fields.table.get("hidden_act")
    matrices = 2 if activation == "relu2" or kind in FEED_FORWARD_KINDS or model in _UNGATED_MODELS else 3
    experts = fields.find_number(*FIELD_NAMES["experts"], minimum=0) or 0
    if not experts or not _is_sparse(fields, layer, kind):
        return matrices * hidden * _find_dense_width(fields, layer, hidden), 0
    expert_width = fields.require_number(*FIELD_NAMES["expert_width"])
    shared = fields.find_number(*FIELD_NAMES["shared_width"], minimum=0)
    if shared is None:
        # Llama 4 has one beside its routed experts and says so nowhere.
        implied_experts = 1 if model.startswith("llama4") else 0
        shared = (
            fields.find_number(*FIELD_NAMES["shared_experts"], minimum=0) or implied_experts
        ) * expert_width
    latent_size = fields.find_number("moe_latent_size")
    latent_weights = 2 * hidden * latent_size if latent_size else 0
    return matrices * hidden * shared + latent_weights, experts * matrices * (
        latent_size or hidden
    ) * expert_width


def find_feed_forward_width(fields: ConfigFields) -> int | None:
    """Return the inner width of a routed expert, else of the dense feed-forward; None where layers differ."""
    if fields.find_number(*FIELD_NAMES["experts"], minimum=0):
        return fields.find_number(*FIELD_NAMES["expert_width"])
    if (
        isinstance(fields.table.get("intermediate_size"), list)
        or fields.find_number(*FIELD_NAMES["dense_width"]) is None
    ):
        return None
    return _find_dense_width(fields, 0, fields.require_number(*FIELD_NAMES["hidden"]))


def _find_dense_width(fields: ConfigFields, layer: int, hidden: int) -> int:
    """Return a dense feed-forward's inner width; by default four times the model's (GPT-2)."""
    listed = fields.table.get("intermediate_size")
    if isinstance(listed, list) and layer < len(listed):  # Gemma 3n
        return ConfigFields({"intermediate_size": listed[layer]}, fields.where).require_number(
            "intermediate_size"
        )
    width = fields.find_number(*FIELD_NAMES["dense_width"])
    if width is None and fields.find_word("model_type") not in _UNGATED_MODELS:
        raise fields.build_problem("intermediate_size", "it is missing")
    if width is not None and fields.find_number("block_multiple_of") is not None:
        # LFM2 (transformers 5.19, models/lfm2/modeling_lfm2.py, Lfm2MLP).
        adjusted = width if fields.find_flag("block_auto_adjust_ff_dim") is False else 2 * width // 3
        block = fields.require_number("block_multiple_of")
        return -(-adjusted // block) * block
    return width or 4 * hidden


def _is_sparse(fields: ConfigFields, layer: int, kind: str) -> bool:
    """Return whether this layer has experts: the first ones, or every other, may have none."""
    if kind in FEED_FORWARD_KINDS:
        return kind == "moe"
    frequency, kinds = fields.table.get("moe_layer_freq"), fields.find_words("mlp_layer_types")
    if kinds is not None:
        return layer < len(kinds) and kinds[layer] != "dense"
    if isinstance(frequency, list):
        return layer < len(frequency) and bool(frequency[layer])
    for name, lists_sparse in (("mlp_only_layers", False), ("moe_layers", True)):
        listed = fields.table.get(name)
        if isinstance(listed, list) and (lists_sparse or layer in listed):
            return (layer in listed) == lists_sparse
    period = fields.find_number("expert_layer_period")
    if period is not None:  # Jamba
        return layer % period == fields.find_number("expert_layer_offset", minimum=0)
    step = fields.find_number("decoder_sparse_step", "interleave_moe_layer_step") or 1
    return (
        layer >= (fields.find_number(*FIELD_NAMES["dense_layers"], minimum=0) or 0)
        and (layer + 1) % step == 0
    )


def _match_total(
    tensors: dict[str, Tensor], names: tuple[str, ...], index: Mapping[str, Any], parts: Collection[str]
) -> dict[str, Tensor]:
    """Return tensors with the index's total: the rest goes to a vision tower or a draft, else to layers."""
    total = read_total_bytes(index)
    if total is None:
        return tensors
    layers = {name: tensor for name, tensor in tensors.items() if ".layers." in name}
    layer_bytes = sum(tensor.size_bytes for tensor in layers.values())
    rest = total - sum(tensor.size_bytes for tensor in tensors.values())
    other_part = None
    if any("vis" in name for name in names):
        other_part = "model.visual.weight"
    elif "draft" in parts:
        other_part = "mtp.weight"
    if rest > 0 and other_part:
        return tensors | {other_part: Tensor("BF16", (rest // 2,), rest)}
    share = 1 + rest / layer_bytes
    if share <= 0:
        return tensors
    scaled = {
        name: Tensor(tensor.dtype, tensor.shape, round(tensor.size_bytes * share))
        for name, tensor in layers.items()
    }
    return tensors | scaled


def read_total_bytes(index: Mapping[str, Any]) -> int | None:
    """Return the bytes of all weights from the index; None if it gives no sensible number."""
    metadata = index.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if isinstance(total, bool) or not isinstance(total, int | float) or not 0 < total < _MAX_TOTAL_BYTES:
        return None
    return int(total)


def _build_tensor(weights: int, bytes_each: float) -> Tensor:
    """Return a tensor whose dtype counts each number as one weight."""
    return Tensor("BF16", (weights,), round(weights * bytes_each))
