"""Estimate a model's bytes from config.json: only matrices, as norms and biases are below 1%."""

from collections.abc import Collection, Mapping
from typing import Any

from medley.model.checkpoint import Tensor, part_of
from medley.model.compressed_attention import ATTENTION_BYTES, attention_weights, compressor_weights
from medley.model.config_fields import (
    NAMES,
    NEITHER,
    PARALLEL,
    RECURRENT,
    WINDOWED,
    Fields,
    layer_count,
    layer_kinds,
)
from medley.model.kv_cache import compression_ratios, head_dim, kv_heads, query_heads
from medley.model.recurrent_state import FIRST_MAMBA
from medley.schema import Weights as Format

_EMBEDDING_BYTES = 2.0
"""Of a weight of embedding, head and routers: quantized models too keep most of these in 16 bits."""

_WIDE_ERROR, _NARROW_ERROR = 0.04, 0.2
# Their feed-forward has no gate beside its up projection (transformers 5.19, models/*/modeling_*.py), nor has
# Nemotron's, which its activation says.
_UNGATED = {"gpt2", "gptj", "bloom", "opt", "falcon", "apertus", "starcoder2", "gpt_neox", "phi", "mpt"}
# Their attention has a gate as wide as its queries (the same modules of transformers).
_GATED = ("afmoe", "muse_glimmer", "hrm_text")
# A layer of theirs is Mamba and nothing else.
_BARE = {"mamba", "mamba2", "falcon_mamba"}
_LARGEST_BYTES = 1 << 50
_MOST_LAYERS = 4096
"""More than any model has: each layer takes memory here."""


def weights_error(weights: Format) -> float:
    """Return the share by which an estimate without the index's total may be too high.

    tests/model/test_estimate.py compares it with all models whose sizes are known. In 4 bits config.json does
    not say which layers stay wider.
    """
    return _NARROW_ERROR if weights in {"nvfp4", "mxfp4", "awq", "int4"} else _WIDE_ERROR


def estimated(fields: Fields, index: Mapping[str, Any], bytes_each: float) -> dict[str, Tensor]:
    """Return a tensor for each part of each layer; a Problem for an entry that config.json lacks."""
    layers = layer_count(fields)
    if layers > _MOST_LAYERS:
        raise fields.problem("num_hidden_layers", f"it is {layers}; the limit is {_MOST_LAYERS}")
    names = index.get("weight_map")
    names = tuple(names) if isinstance(names, dict) else ()
    ends = fields.whole("vocab_size") * fields.whole(*NAMES["hidden"])
    found = {"model.embed_tokens.weight": _tensor(ends, _EMBEDDING_BYTES)}
    parts = {part_of(name, layers)[0] for name in names}
    if not fields.flag("tie_word_embeddings") and ("head" in parts or not names):
        found["lm_head.weight"] = _tensor(ends, _EMBEDDING_BYTES)
    beside = _per_layer(fields)
    if beside:
        words = fields.optional("vocab_size_per_layer_input") or fields.whole("vocab_size")
        found["model.embed_tokens_per_layer.weight"] = _tensor(words * layers * beside, _EMBEDDING_BYTES)
    if fields.word("model_type") == "deepseek_v4":
        found |= _compressed_layers(fields, layers, bytes_each)
        return _corrected(found, names, index, parts)
    kinds = layer_kinds(fields, layers)
    # Nemotron-H counts a bare feed-forward as a layer: then attention has none of its own.
    apart = bool(NEITHER & set(kinds))
    # Beside experts in 4 bits attention is mostly kept in 16 (gpt-oss), or in 8: the larger is safer.
    mixed = bytes_each < 1 and bool(fields.optional(*NAMES["experts"], least=0))
    plain_bytes = _EMBEDDING_BYTES if mixed else bytes_each
    for layer, kind in enumerate(kinds):
        at = f"model.layers.{layer}"
        plain, routed = _layer(fields, layer, kind, apart=apart)
        found[f"{at}.weight"] = _tensor(plain, plain_bytes)
        if routed:
            found[f"{at}.mlp.experts.weight"] = _tensor(routed, bytes_each)
    return _corrected(found, names, index, parts)


def _compressed_layers(fields: Fields, layers: int, bytes_each: float) -> dict[str, Tensor]:
    """Return DeepSeek V4's layers, whose kinds are their compression ratios."""
    found = {}
    for layer, ratio in enumerate(compression_ratios(fields, layers)):
        at = f"model.layers.{layer}"
        plain, routed = _feed_forward(fields, layer, "full_attention")
        found[f"{at}.weight"] = _tensor(attention_weights(fields, ratio) + plain, ATTENTION_BYTES)
        found[f"{at}.compressor.weight"] = _tensor(compressor_weights(fields, ratio), _EMBEDDING_BYTES)
        found[f"{at}.mlp.experts.weight"] = _tensor(routed, bytes_each)
    return found


def _layer(fields: Fields, layer: int, kind: str, *, apart: bool) -> tuple[int, int]:
    """Count a layer's weights: those that every token uses, and routed experts."""
    mixer = 0 if kind in NEITHER else _mixer(fields, kind)
    plain, routed = _feed_forward(fields, layer, kind) if kind in NEITHER or not apart else (0, 0)
    return mixer + plain + 2 * fields.whole(*NAMES["hidden"]) * _per_layer(fields), routed


def _per_layer(fields: Fields) -> int:
    """Return the width of per-layer embeddings (Gemma 3n and 4), through two matrices."""
    return fields.optional("hidden_size_per_layer_input", least=0) or 0


def _mixer(fields: Fields, kind: str) -> int:
    """Count the weights of a layer's attention, or of its replacement."""
    hidden = fields.whole(*NAMES["hidden"])
    if kind == "conv":
        # LFM2: three gates in, one out.
        return 4 * hidden * hidden
    if kind in PARALLEL:
        return _mixer(fields, "mamba") + _mixer(fields, "attention")
    if kind in RECURRENT:
        return _recurrent(fields, kind, hidden)
    heads = query_heads(fields)
    latent = fields.optional("kv_lora_rank")
    if latent is not None:
        return _latent_attention(fields, hidden, heads, latent) + _index(fields, hidden)
    # Where some layers are recurrent, those with attention have a gate as wide as the queries (Qwen3-Next).
    gated = fields.optional("linear_num_value_heads") or (fields.word("model_type") or "").startswith(_GATED)
    queries = 3 if gated else 2
    own, size, keys = heads, head_dim(fields), kv_heads(fields)
    value = fields.optional("v_head_dim") or size
    if kind not in WINDOWED:
        size = fields.optional("global_head_dim") or size  # Gemma 4
        value = fields.optional("v_head_dim") or size
    else:
        own = fields.optional("swa_num_attention_heads") or heads
        size = fields.optional("swa_head_dim") or size
        value = fields.optional("swa_v_head_dim") or value
        keys = fields.optional("swa_num_key_value_heads") or keys
    return hidden * (own * (size * (queries - 1) + value) + keys * (size + value))


def _recurrent(fields: Fields, kind: str, hidden: int) -> int:
    """Weights of a gated delta net, of Kimi's (KDA), or of Mamba 1 or 2."""
    if kind == "linear_attention" and fields.optional("linear_num_value_heads") is not None:
        values = fields.whole("linear_num_value_heads") * fields.whole("linear_value_head_dim")
        keys = fields.whole("linear_num_key_heads") * fields.whole("linear_key_head_dim")
        return hidden * (2 * keys + 3 * values)
    delta = fields.inner("linear_attn_config") or fields
    heads = delta.optional("linear_num_heads", "num_heads") if kind == "linear_attention" else None
    if heads is not None:
        # Queries, keys, values and output; the decay and the gate go through one head's width.
        size = delta.whole("linear_head_dim", "head_dim")
        return 4 * hidden * heads * size + 2 * size * (hidden + heads * size)
    state = fields.whole(*NAMES["mamba_state"])
    if fields.word("model_type") in FIRST_MAMBA:
        expanded = fields.optional("mamba_expand")
        inner = expanded * hidden if expanded else fields.whole("intermediate_size")
        rank = fields.optional("mamba_dt_rank", "time_step_rank") or -(-hidden // 16)
        return inner * (3 * hidden + 2 * rank + 3 * state)
    wide = fields.optional("mamba_d_ssm")
    if wide is None:
        wide = fields.whole(*NAMES["mamba_heads"]) * fields.whole(*NAMES["mamba_head_dim"])
    return hidden * (3 * wide + 2 * fields.whole(*NAMES["mamba_groups"]) * state)


def _index(fields: Fields, hidden: int) -> int:
    """Count the index weights of DeepSeek's sparse attention."""
    size = fields.optional("index_head_dim")
    if size is None:
        return 0
    heads = fields.whole("index_n_heads")
    return size * (heads * (fields.optional("q_lora_rank") or hidden) + hidden) + hidden * heads


def _latent_attention(fields: Fields, hidden: int, heads: int, latent: int) -> int:
    """Count the weights of MLA, by the description of DeepSeek-V2."""
    rope, nope = fields.whole("qk_rope_head_dim", least=0), fields.whole("qk_nope_head_dim")
    value = fields.optional("v_head_dim") or nope
    narrow = fields.optional("q_lora_rank")
    queries = heads * (nope + rope)
    asked = narrow * (hidden + queries) if narrow else hidden * queries
    return asked + hidden * (latent + rope) + latent * heads * (nope + value) + heads * value * hidden


def _feed_forward(fields: Fields, layer: int, kind: str) -> tuple[int, int]:
    """Count feed-forward weights: those that every token uses, and routed experts."""
    hidden, model = fields.whole(*NAMES["hidden"]), fields.word("model_type") or ""
    if model in _BARE:
        return 0, 0
    act = fields.table.get("mlp_hidden_act") or fields.table.get("hidden_act")
    matrices = 2 if act == "relu2" or kind in NEITHER or model in _UNGATED else 3
    count = fields.optional(*NAMES["experts"], least=0) or 0
    if not count or not _is_sparse(fields, layer, kind):
        return matrices * hidden * _dense_width(fields, layer, hidden), 0
    wide = fields.whole(*NAMES["expert_width"])
    shared = fields.optional(*NAMES["shared_width"], least=0)
    if shared is None:
        # Llama 4 has one beside its routed experts and says so nowhere.
        always = 1 if model.startswith("llama4") else 0
        shared = (fields.optional(*NAMES["shared_experts"], least=0) or always) * wide
    narrow = fields.optional("moe_latent_size")
    around = 2 * hidden * narrow if narrow else 0
    return matrices * hidden * shared + around, count * matrices * (narrow or hidden) * wide


def feed_forward_width(fields: Fields) -> int | None:
    """Return the inner width of a routed expert, else of the dense feed-forward; None where layers differ."""
    if fields.optional(*NAMES["experts"], least=0):
        return fields.optional(*NAMES["expert_width"])
    if (
        isinstance(fields.table.get("intermediate_size"), list)
        or fields.optional(*NAMES["dense_width"]) is None
    ):
        return None
    return _dense_width(fields, 0, fields.whole(*NAMES["hidden"]))


def _dense_width(fields: Fields, layer: int, hidden: int) -> int:
    """Return a dense feed-forward's inner width; by default four times the model's (GPT-2)."""
    listed = fields.table.get("intermediate_size")
    if isinstance(listed, list) and layer < len(listed):  # Gemma 3n
        return Fields({"intermediate_size": listed[layer]}, fields.where).whole("intermediate_size")
    said = fields.optional(*NAMES["dense_width"])
    if said is None and fields.word("model_type") not in _UNGATED:
        raise fields.problem("intermediate_size", "it is missing")
    if said is not None and fields.optional("block_multiple_of") is not None:
        # LFM2 (transformers 5.19, models/lfm2/modeling_lfm2.py, Lfm2MLP).
        adjusted = said if fields.flag("block_auto_adjust_ff_dim") is False else 2 * said // 3
        block = fields.whole("block_multiple_of")
        return -(-adjusted // block) * block
    return said or 4 * hidden


def _is_sparse(fields: Fields, layer: int, kind: str) -> bool:
    """Whether this layer has experts: the first ones, or every other, may have none."""
    if kind in NEITHER:
        return kind == "moe"
    each, kinds = fields.table.get("moe_layer_freq"), fields.words("mlp_layer_types")
    if kinds is not None:
        return layer < len(kinds) and kinds[layer] != "dense"
    if isinstance(each, list):
        return layer < len(each) and bool(each[layer])
    for name, there in (("mlp_only_layers", False), ("moe_layers", True)):
        listed = fields.table.get(name)
        if isinstance(listed, list) and (there or layer in listed):
            return (layer in listed) == there
    period = fields.optional("expert_layer_period")
    if period is not None:  # Jamba
        return layer % period == fields.optional("expert_layer_offset", least=0)
    step = fields.optional("decoder_sparse_step", "interleave_moe_layer_step") or 1
    return layer >= (fields.optional(*NAMES["dense_layers"], least=0) or 0) and (layer + 1) % step == 0


def _corrected(
    found: dict[str, Tensor], names: tuple[str, ...], index: Mapping[str, Any], parts: Collection[str]
) -> dict[str, Tensor]:
    """Match the index's total: the rest goes to a vision tower or a draft, else to the layers."""
    total = total_bytes(index)
    if total is None:
        return found
    layers = {name: tensor for name, tensor in found.items() if ".layers." in name}
    layer_bytes = sum(tensor.size_bytes for tensor in layers.values())
    rest = total - sum(tensor.size_bytes for tensor in found.values())
    beside = {"model.visual.weight": any("vis" in name for name in names), "mtp.weight": "draft" in parts}
    taker = next((name for name, there in beside.items() if there), None)
    if rest > 0 and taker:
        return found | {taker: Tensor("BF16", (rest // 2,), rest)}
    share = 1 + rest / layer_bytes
    if share <= 0:
        return found
    scaled = {
        name: Tensor(tensor.dtype, tensor.shape, round(tensor.size_bytes * share))
        for name, tensor in layers.items()
    }
    return found | scaled


def total_bytes(index: Mapping[str, Any]) -> int | None:
    """Return the bytes of all weights by the index; None if it gives no sensible number."""
    told = index.get("metadata")
    total = told.get("total_size") if isinstance(told, dict) else None
    if isinstance(total, bool) or not isinstance(total, int | float) or not 0 < total < _LARGEST_BYTES:
        return None
    return int(total)


def _tensor(weights: int, bytes_each: float) -> Tensor:
    """Make a tensor whose dtype counts each number as one weight."""
    return Tensor("BF16", (weights,), round(weights * bytes_each))
