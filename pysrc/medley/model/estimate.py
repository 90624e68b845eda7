"""Estimate the bytes of a model from config.json alone, where the headers of its weights are not there.

Only matrices count: norms and biases are below one part in a hundred. The total of an index corrects the sum.
"""

from collections.abc import Collection, Mapping
from typing import Any

from medley.model.checkpoint import Tensor, part_of
from medley.model.config_fields import EXPERTS, NEITHER, Fields, layer_count, layer_kinds

_EMBEDDING_BYTES = 2.0
"""Of a weight of embedding, head and routers: quantized models too keep most of these in 16 bits."""


def estimated(fields: Fields, index: Mapping[str, Any], bytes_each: float) -> dict[str, Tensor]:
    """Return a tensor for each part of each layer; `bytes_each` is what a weight of a layer takes.

    `index` is model.safetensors.index.json, or empty. Raises a Problem for an entry that config.json lacks.
    """
    names = index.get("weight_map")
    names = tuple(names) if isinstance(names, dict) else ()
    ends = fields.whole("vocab_size") * fields.whole("hidden_size", "n_embd")
    found = {"model.embed_tokens.weight": _tensor(ends, _EMBEDDING_BYTES)}
    parts = {part_of(name, layer_count(fields))[0] for name in names}
    if not fields.flag("tie_word_embeddings") and ("head" in parts or not names):
        found["lm_head.weight"] = _tensor(ends, _EMBEDDING_BYTES)
    kinds = layer_kinds(fields, layer_count(fields))
    # Nemotron-H counts a bare feed-forward as a layer: then attention has none of its own.
    apart = bool(NEITHER & set(kinds))
    # Beside experts in 4 bits attention is mostly kept in 16 (gpt-oss), or in 8: the larger is safer.
    mixed = bytes_each < 1 and bool(fields.optional(*EXPERTS, least=0))
    plain_bytes = _EMBEDDING_BYTES if mixed else bytes_each
    for layer, kind in enumerate(kinds):
        at = f"model.layers.{layer}"
        plain, routed = _layer(fields, layer, kind, apart=apart)
        found[f"{at}.weight"] = _tensor(plain, plain_bytes)
        if routed:
            found[f"{at}.mlp.experts.weight"] = _tensor(routed, bytes_each)
    return _corrected(found, names, index, parts)


def _layer(fields: Fields, layer: int, kind: str, *, apart: bool) -> tuple[int, int]:
    """Weights of a layer that every token meets, and those of its routed experts."""
    mixer = 0 if kind in NEITHER else _mixer(fields, kind)
    plain, routed = _feed_forward(fields, layer, kind) if kind in NEITHER or not apart else (0, 0)
    return mixer + plain, routed


def _mixer(fields: Fields, kind: str) -> int:
    """Weights of the attention of a layer, or of what it has instead."""
    hidden = fields.whole("hidden_size", "n_embd")
    if kind == "linear_attention":
        values = fields.whole("linear_num_value_heads") * fields.whole("linear_value_head_dim")
        keys = fields.whole("linear_num_key_heads") * fields.whole("linear_key_head_dim")
        return hidden * (2 * keys + 3 * values)
    if kind == "mamba":
        inner = fields.whole("mamba_num_heads", "mamba_n_heads") * fields.whole(
            "mamba_head_dim", "mamba_d_head"
        )
        groups = fields.whole("n_groups", "mamba_n_groups")
        return hidden * (3 * inner + 2 * groups * fields.whole("ssm_state_size", "mamba_d_state"))
    heads = fields.whole("num_attention_heads", "n_head")
    latent = fields.optional("kv_lora_rank")
    if latent is not None:
        return _latent_attention(fields, hidden, heads, latent)
    size = fields.optional("head_dim") or hidden // heads
    kv_heads = fields.optional("num_key_value_heads") or heads
    # Where some layers are recurrent, those with attention have a gate as wide as the queries (Qwen3-Next).
    queries = 3 if fields.optional("linear_num_value_heads") else 2
    return hidden * size * (queries * heads + 2 * kv_heads)


def _latent_attention(fields: Fields, hidden: int, heads: int, latent: int) -> int:
    """Weights of MLA: queries, keys and values through a narrow middle, as DeepSeek-V2 describes it."""
    rope, nope = fields.whole("qk_rope_head_dim", least=0), fields.whole("qk_nope_head_dim")
    value = fields.optional("v_head_dim") or nope
    narrow = fields.optional("q_lora_rank")
    queries = heads * (nope + rope)
    asked = narrow * (hidden + queries) if narrow else hidden * queries
    return asked + hidden * (latent + rope) + latent * heads * (nope + value) + heads * value * hidden


def _feed_forward(fields: Fields, layer: int, kind: str) -> tuple[int, int]:
    """Weights of a layer's feed-forward that every token meets, and those of its routed experts."""
    hidden = fields.whole("hidden_size", "n_embd")
    # Nemotron-H's has no gate beside its up projection.
    matrices = 2 if fields.table.get("mlp_hidden_act") == "relu2" or kind in NEITHER else 3
    count = fields.optional(*EXPERTS, least=0) or 0
    if not count or not _is_sparse(fields, layer, kind):
        # MiniMax-M3 names the width of its experts intermediate_size.
        return matrices * hidden * fields.whole("dense_intermediate_size", "intermediate_size"), 0
    wide = fields.whole("moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size")
    shared = fields.optional(
        "moe_shared_expert_intermediate_size",
        "shared_expert_intermediate_size",
        "shared_intermediate_size",
        least=0,
    )
    shared = (fields.optional("n_shared_experts", least=0) or 0) * wide if shared is None else shared
    narrow = fields.optional("moe_latent_size")
    around = 2 * hidden * narrow if narrow else 0
    return matrices * hidden * shared + around, count * matrices * (narrow or hidden) * wide


def _is_sparse(fields: Fields, layer: int, kind: str) -> bool:
    """Whether this layer has experts: the first ones, or every other, may have none."""
    if kind in NEITHER:
        return kind == "moe"
    each = fields.table.get("moe_layer_freq")
    if isinstance(each, list):
        return layer < len(each) and bool(each[layer])
    dense = fields.table.get("mlp_only_layers")
    if isinstance(dense, list) and layer in dense:
        return False
    step = fields.optional("decoder_sparse_step") or 1
    first = fields.optional("first_k_dense_replace", "dense_layers", least=0) or 0
    return layer >= first and (layer + 1) % step == 0


def _corrected(
    found: dict[str, Tensor], names: tuple[str, ...], index: Mapping[str, Any], parts: Collection[str]
) -> dict[str, Tensor]:
    """Make the sum what the index says: a vision tower or a draft has what is over, else the layers."""
    told = index.get("metadata")
    total = told.get("total_size") if isinstance(told, dict) else None
    if isinstance(total, bool) or not isinstance(total, int | float):
        return found
    layers = {name: tensor for name, tensor in found.items() if ".layers." in name}
    layer_bytes = sum(tensor.size_bytes for tensor in layers.values())
    rest = int(total) - sum(tensor.size_bytes for tensor in found.values())
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


def _tensor(weights: int, bytes_each: float) -> Tensor:
    """Its dtype is one that counts each number as a weight, however many bytes these take."""
    return Tensor("BF16", (weights,), round(weights * bytes_each))
