"""Headers as published checkpoints have them, from the sizes in their config.json.

All experts of a layer stand as one tensor: it changes no sum, and there are tens of thousands of them.
"""

from collections.abc import Mapping
from typing import Any

from medley.model.checkpoint import Checkpoint
from tests.model.weight_formats import Headers, Scheme, bf16, fp8, nvfp4, plain

Config = Mapping[str, Any]


def checkpoint(config: Config, *, dense: Scheme = bf16, routed: Scheme | None = None) -> Checkpoint:
    """A model whose linear layers are stored in one way and its routed experts perhaps in another."""
    text = config.get("text_config", config)
    family = {
        "gpt_oss": _gpt_oss,
        "nemotron_h": _nemotron,
        "qwen3_5_moe": _qwen3_5,
        "qwen3_5": _qwen3_5,
        "qwen3_next": _qwen3_next,
        "minimax_m2": _minimax_m2,
        "minimax_m3_vl": _minimax_m3,
        "mimo_v2_flash": _mimo,
        "deepseek_v3": _deepseek,
        "glm4_moe": _glm,
    }.get(config["model_type"], _decoder)
    headers = family(text, dense, routed or dense)
    return Checkpoint("a checkpoint", config, headers)


def _ends(config: Config, prefix: str = "model", head: str = "lm_head") -> Headers:
    hidden, words = config["hidden_size"], config["vocab_size"]
    ends = bf16(f"{prefix}.embed_tokens", words, hidden) | bf16(f"{prefix}.norm", hidden)
    return ends if config["tie_word_embeddings"] else ends | bf16(head, words, hidden)


def _attention(at: str, config: Config, scheme: Scheme, *, gated: bool = False) -> Headers:
    hidden, size = (
        config["hidden_size"],
        config.get("head_dim", config["hidden_size"] // config["num_attention_heads"]),
    )
    wide, slim = config["num_attention_heads"] * size, config["num_key_value_heads"] * size
    found = scheme(f"{at}.self_attn.q_proj", wide * (2 if gated else 1), hidden)
    found |= scheme(f"{at}.self_attn.k_proj", slim, hidden) | scheme(f"{at}.self_attn.v_proj", slim, hidden)
    found |= scheme(f"{at}.self_attn.o_proj", hidden, wide)
    if config.get("attention_bias") or config["model_type"] == "qwen2":
        found |= plain(f"{at}.self_attn.q_proj.bias", wide) | plain(f"{at}.self_attn.k_proj.bias", slim)
        found |= plain(f"{at}.self_attn.v_proj.bias", slim)
    if config["model_type"].startswith("qwen3"):
        found |= bf16(f"{at}.self_attn.q_norm", size) | bf16(f"{at}.self_attn.k_norm", size)
    return found | _norms(at, hidden)


def _norms(at: str, hidden: int) -> Headers:
    return bf16(f"{at}.input_layernorm", hidden) | bf16(f"{at}.post_attention_layernorm", hidden)


def _feed_forward(
    at: str, hidden: int, wide: int, scheme: Scheme, *, experts: tuple[int, ...] = ()
) -> Headers:
    found = scheme(f"{at}.gate_proj", *experts, wide, hidden) | scheme(
        f"{at}.up_proj", *experts, wide, hidden
    )
    return found | scheme(f"{at}.down_proj", *experts, hidden, wide)


def _decoder(config: Config, dense: Scheme, routed: Scheme) -> Headers:
    """Llama, Qwen2, Qwen3, Qwen3-MoE."""
    found, hidden = _ends(config), config["hidden_size"]
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        found |= _attention(at, config, dense)
        count = config.get("num_experts")
        if count:
            wide = config["moe_intermediate_size"]
            found |= bf16(f"{at}.mlp.gate", count, hidden)
            found |= _feed_forward(f"{at}.mlp.experts", hidden, wide, routed, experts=(count,))
        else:
            found |= _feed_forward(f"{at}.mlp", hidden, config["intermediate_size"], dense)
    return found


def _glm(config: Config, dense: Scheme, routed: Scheme) -> Headers:
    """GLM-4.5: the first layer dense, the last one more than there are a draft with embeddings of its own.

    In the AWQ repository the first layer with experts stays in 16 bits, which an engine's error names.
    """
    found, hidden, last = _ends(config), config["hidden_size"], config["num_hidden_layers"]
    wide, count = config["moe_intermediate_size"], config["n_routed_experts"]
    for layer in range(last + 1):
        at = f"model.layers.{layer}"
        found |= _attention(at, config, dense)
        if layer == 0:
            found |= _feed_forward(f"{at}.mlp", hidden, config["intermediate_size"], dense)
            continue
        scheme = dense if layer == 1 else routed
        found |= bf16(f"{at}.mlp.gate", count, hidden) | plain(
            f"{at}.mlp.gate.e_score_correction_bias", count, dtype="F32"
        )
        found |= _feed_forward(f"{at}.mlp.experts", hidden, wide, scheme, experts=(count,))
        found |= _feed_forward(f"{at}.mlp.shared_experts", hidden, wide * config["n_shared_experts"], dense)
    draft = f"model.layers.{last}"
    found |= bf16(f"{draft}.embed_tokens", config["vocab_size"], hidden) | bf16(
        f"{draft}.eh_proj", hidden, 2 * hidden
    )
    return found | bf16(f"{draft}.shared_head.head", config["vocab_size"], hidden)


def _gpt_oss(config: Config, dense: Scheme, routed: Scheme) -> Headers:
    """Attention in 16 bits with biases and sinks; experts in 4."""
    found, hidden, wide, count = (
        _ends(config),
        config["hidden_size"],
        config["intermediate_size"],
        config["num_local_experts"],
    )
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        found |= _attention(at, config, dense) | plain(f"{at}.self_attn.sinks", config["num_attention_heads"])
        found |= plain(f"{at}.self_attn.o_proj.bias", hidden)
        found |= bf16(f"{at}.mlp.router", count, hidden) | plain(f"{at}.mlp.router.bias", count)
        found |= routed(f"{at}.mlp.experts.gate_up_proj", count, 2 * wide, hidden)
        found |= plain(f"{at}.mlp.experts.gate_up_proj_bias", count, 2 * wide)
        found |= routed(f"{at}.mlp.experts.down_proj", count, hidden, wide)
        found |= plain(f"{at}.mlp.experts.down_proj_bias", count, hidden)
    return found


def _deepseek(config: Config, dense: Scheme, routed: Scheme) -> Headers:
    """DeepSeek-V3: latent attention, the first layers dense, a draft layer with embeddings of its own."""
    found, hidden, last = _ends(config), config["hidden_size"], config["num_hidden_layers"]
    heads, rope, nope = (
        config[key] for key in ("num_attention_heads", "qk_rope_head_dim", "qk_nope_head_dim")
    )
    query, latent, value = (config[key] for key in ("q_lora_rank", "kv_lora_rank", "v_head_dim"))
    wide, count = config["moe_intermediate_size"], config["n_routed_experts"]
    for layer in range(last + 1):
        at = f"model.layers.{layer}"
        found |= dense(f"{at}.self_attn.q_a_proj", query, hidden) | bf16(
            f"{at}.self_attn.q_a_layernorm", query
        )
        found |= dense(f"{at}.self_attn.q_b_proj", heads * (nope + rope), query)
        found |= dense(f"{at}.self_attn.kv_a_proj_with_mqa", latent + rope, hidden)
        found |= bf16(f"{at}.self_attn.kv_a_layernorm", latent)
        found |= dense(f"{at}.self_attn.kv_b_proj", heads * (nope + value), latent)
        found |= dense(f"{at}.self_attn.o_proj", hidden, heads * value) | _norms(at, hidden)
        if layer < config["first_k_dense_replace"]:
            found |= _feed_forward(f"{at}.mlp", hidden, config["intermediate_size"], dense)
            continue
        found |= bf16(f"{at}.mlp.gate", count, hidden) | plain(
            f"{at}.mlp.gate.e_score_correction_bias", count, dtype="F32"
        )
        found |= _feed_forward(f"{at}.mlp.experts", hidden, wide, routed, experts=(count,))
        found |= _feed_forward(f"{at}.mlp.shared_experts", hidden, wide * config["n_shared_experts"], dense)
    draft = f"model.layers.{last}"
    found |= bf16(f"{draft}.embed_tokens", config["vocab_size"], hidden) | bf16(
        f"{draft}.eh_proj", hidden, 2 * hidden
    )
    return found | bf16(f"{draft}.shared_head.head", config["vocab_size"], hidden)


def _qwen3_5(config: Config, dense: Scheme, routed: Scheme) -> Headers:
    """Qwen3.5: of four layers three have a recurrent state; a vision tower beside; a draft layer."""
    hidden, prefix = config["hidden_size"], "model.language_model"
    found = _ends(config, prefix) | _qwen3_5_layers(prefix, config, dense, routed)
    if "narrow_layers" in config:
        found |= fp8("lm_head", config["vocab_size"], hidden)
    found |= _vision(config["vision"])
    # The draft is stored in 16 bits but for its experts, and for all but fc where blocks of 8 bits are.
    draft = bf16 if "narrow_layers" in config else dense
    found |= _attention("mtp.layers.0", config, draft, gated=True) | bf16("mtp.fc", hidden, 2 * hidden)
    return found | _qwen3_5_inner("mtp.layers.0", config, draft, routed)


def _qwen3_next(config: Config, dense: Scheme, routed: Scheme) -> Headers:
    """The same layers with no tower and no draft."""
    return _ends(config) | _qwen3_5_layers("model", config, dense, routed)


def _qwen3_5_layers(prefix: str, config: Config, dense: Scheme, routed: Scheme) -> Headers:
    found: Headers = {}
    for layer in range(config["num_hidden_layers"]):
        at = f"{prefix}.layers.{layer}"
        full = (layer + 1) % config["full_attention_interval"] == 0
        found |= _attention(at, config, dense, gated=True) if full else _gated_delta(at, config, dense)
        inner = nvfp4 if layer < config.get("narrow_layers", 0) else dense
        found |= _qwen3_5_inner(at, config, inner, routed)
    return found


def _qwen3_5_inner(at: str, config: Config, dense: Scheme, routed: Scheme) -> Headers:
    hidden, count = config["hidden_size"], config.get("num_experts")
    if not count:
        return _feed_forward(f"{at}.mlp", hidden, config["intermediate_size"], dense)
    found = bf16(f"{at}.mlp.gate", count, hidden) | bf16(f"{at}.mlp.shared_expert_gate", 1, hidden)
    found |= _feed_forward(
        f"{at}.mlp.shared_expert", hidden, config["shared_expert_intermediate_size"], dense
    )
    return found | _feed_forward(
        f"{at}.mlp.experts", hidden, config["moe_intermediate_size"], routed, experts=(count,)
    )


def _gated_delta(at: str, config: Config, dense: Scheme) -> Headers:
    hidden, heads = config["hidden_size"], config["linear_num_value_heads"]
    values = heads * config["linear_value_head_dim"]
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    found = dense(f"{at}.linear_attn.in_proj_qkv", 2 * keys + values, hidden)
    found |= dense(f"{at}.linear_attn.in_proj_z", values, hidden) | dense(
        f"{at}.linear_attn.out_proj", hidden, values
    )
    found |= bf16(f"{at}.linear_attn.in_proj_a", heads, hidden) | bf16(
        f"{at}.linear_attn.in_proj_b", heads, hidden
    )
    kernel = config["linear_conv_kernel_dim"]
    found |= plain(f"{at}.linear_attn.conv1d.weight", 2 * keys + values, 1, kernel)
    found |= plain(f"{at}.linear_attn.A_log", heads, dtype="F32") | plain(f"{at}.linear_attn.dt_bias", heads)
    return found | _norms(at, hidden)


def _minimax_m2(config: Config, dense: Scheme, routed: Scheme) -> Headers:
    """MiniMax-M2: experts in every layer; one norm over all heads' queries, one over all keys."""
    found, hidden, count = _ends(config), config["hidden_size"], config["num_local_experts"]
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        found |= _attention(at, config, dense)
        found |= bf16(f"{at}.self_attn.q_norm", config["num_attention_heads"] * config["head_dim"])
        found |= bf16(f"{at}.self_attn.k_norm", config["num_key_value_heads"] * config["head_dim"])
        found |= _routed(f"{at}.block_sparse_moe", (count, config["intermediate_size"], hidden), routed)
    return found


def _routed(at: str, sizes: tuple[int, int, int], routed: Scheme, gate: str = "BF16") -> Headers:
    count, wide, hidden = sizes
    found = plain(f"{at}.gate.weight", count, hidden, dtype=gate)
    found |= plain(f"{at}.e_score_correction_bias", count, dtype="F32")
    return found | _feed_forward(f"{at}.experts", hidden, wide, routed, experts=(count,))


def _minimax_m3(config: Config, dense: Scheme, routed: Scheme) -> Headers:
    """MiniMax-M3: the first layers dense, the others with experts and an index of their keys; a tower."""
    hidden, wide, size = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    prefix = "language_model.model"
    found = _ends(config, prefix, "language_model.lm_head")
    for layer in range(config["num_hidden_layers"]):
        at = f"{prefix}.layers.{layer}"
        found |= _attention(at, config, dense)
        found |= bf16(f"{at}.self_attn.q_norm", size) | bf16(f"{at}.self_attn.k_norm", size)
        if layer < config["dense_layers"]:
            found |= _feed_forward(f"{at}.mlp", hidden, config["dense_intermediate_size"], dense)
            continue
        sparse = config["sparse_attention_config"]
        heads, index = sparse["sparse_num_index_heads"], sparse["sparse_index_dim"]
        found |= dense(f"{at}.self_attn.index_q_proj", heads * index, hidden)
        found |= dense(f"{at}.self_attn.index_k_proj", index, hidden)
        found |= bf16(f"{at}.self_attn.index_q_norm", index) | bf16(f"{at}.self_attn.index_k_norm", index)
        moe = f"{at}.block_sparse_moe"
        found |= _routed(moe, (config["num_local_experts"], wide, hidden), routed, "F32")
        found |= _feed_forward(f"{moe}.shared_experts", hidden, config["shared_intermediate_size"], dense)
    tower = config["tower"]
    inner, outer = tower["hidden_size"], tower["intermediate_size"]
    found |= bf16("vision_tower.patch_embedding", inner, 2 * 3 * tower["patch_size"] ** 2)
    for block in range(tower["num_hidden_layers"]):
        at = f"vision_tower.blocks.{block}"
        found |= bf16(f"{at}.qkv", 3 * inner, inner) | bf16(f"{at}.out_proj", inner, inner)
        found |= bf16(f"{at}.fc1", outer, inner) | bf16(f"{at}.fc2", inner, outer)
    found |= bf16("multi_modal_projector.linear_1", hidden, inner)
    found |= bf16("multi_modal_projector.linear_2", hidden, hidden)
    found |= bf16("patch_merge_mlp.linear_1", hidden, 4 * hidden)
    return found | bf16("patch_merge_mlp.linear_2", hidden, hidden)


def _mimo(config: Config, dense: Scheme, routed: Scheme) -> Headers:
    """MiMo-V2-Flash: the first layer dense, more KV heads where a window is kept, three dense drafts."""
    found, hidden, layers = _ends(config), config["hidden_size"], config["num_hidden_layers"]
    for layer, windowed in enumerate(config["hybrid_layer_pattern"]):
        at = f"model.layers.{layer}"
        found |= _mimo_attention(at, config, windowed=bool(windowed))
        if layer == 0:
            found |= _feed_forward(f"{at}.mlp", hidden, config["intermediate_size"], dense)
            continue
        count, wide = config["n_routed_experts"], config["moe_intermediate_size"]
        found |= _routed(f"{at}.mlp", (count, wide, hidden), routed, "F32")
    for draft in range(config["drafts"]):
        at = f"model.mtp.layers.{draft}"
        found |= _mimo_attention(at, config, windowed=True) | bf16(f"{at}.eh_proj", hidden, 2 * hidden)
        found |= _feed_forward(f"{at}.mlp", hidden, config["intermediate_size"], bf16)
    assert layers == len(config["hybrid_layer_pattern"])
    return found


def _mimo_attention(at: str, config: Config, *, windowed: bool) -> Headers:
    """In 16 bits: which of it the repository stores in 8 was not seen."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    keys = config["swa_num_key_value_heads" if windowed else "num_key_value_heads"]
    found = bf16(f"{at}.self_attn.q_proj", heads * config["head_dim"], hidden)
    found |= bf16(f"{at}.self_attn.k_proj", keys * config["head_dim"], hidden)
    found |= bf16(f"{at}.self_attn.v_proj", keys * config["v_head_dim"], hidden)
    found |= bf16(f"{at}.self_attn.o_proj", hidden, heads * config["v_head_dim"])
    if windowed:
        found |= plain(f"{at}.self_attn.attention_sink_bias", heads)
    return found | _norms(at, hidden)


def _vision(vision: Config) -> Headers:
    hidden, wide, out = vision["hidden_size"], vision["intermediate_size"], vision["out_hidden_size"]
    patch = vision["in_channels"] * vision["temporal_patch_size"] * vision["patch_size"] ** 2
    found = bf16("model.visual.patch_embed.proj", hidden, patch)
    found |= bf16("model.visual.pos_embed", vision["num_position_embeddings"], hidden)
    for block in range(vision["depth"]):
        at = f"model.visual.blocks.{block}"
        found |= bf16(f"{at}.attn.qkv", 3 * hidden, hidden) | bf16(f"{at}.attn.proj", hidden, hidden)
        found |= bf16(f"{at}.mlp.linear_fc1", wide, hidden) | bf16(f"{at}.mlp.linear_fc2", hidden, wide)
    merged = hidden * vision["spatial_merge_size"] ** 2
    return (
        found
        | bf16("model.visual.merger.linear_fc1", merged, merged)
        | bf16("model.visual.merger.linear_fc2", out, merged)
    )


def _nemotron(config: Config, dense: Scheme, routed: Scheme) -> Headers:
    """Nemotron-H: each layer one of Mamba, attention, experts. `eight`, `sixteen`: what is in these bits."""
    hidden, eight, sixteen = config["hidden_size"], config.get("eight", {}), config.get("sixteen", {})
    found = bf16("backbone.embeddings", config["vocab_size"], hidden) | bf16("backbone.norm_f", hidden)
    found |= bf16("lm_head", config["vocab_size"], hidden)
    for layer, letter in enumerate(config["hybrid_override_pattern"]):
        at = f"backbone.layers.{layer}"

        def narrow(name: str, *shape: int, layer: int = layer) -> Headers:
            part = name.split("mixer.")[1]
            wide = bf16 if layer in sixteen.get(part, ()) else dense
            return (fp8 if layer in eight.get(part, ()) else wide)(name, *shape)

        found |= _NEMOTRON[letter](f"{at}.mixer", config, narrow, routed) | bf16(f"{at}.norm", hidden)
    for letter, layer in zip(config.get("mtp_hybrid_override_pattern", ""), range(9), strict=False):
        found |= _NEMOTRON[letter](f"mtp.layers.{layer}.mixer", config, bf16, bf16)
    if config.get("mtp_hybrid_override_pattern"):
        found |= bf16("mtp.layers.0.eh_proj", hidden, 2 * hidden)
    return found


def _mamba(at: str, config: Config, dense: Scheme, _: Scheme) -> Headers:
    hidden, heads = config["hidden_size"], config["mamba_num_heads"]
    wide, groups = heads * config["mamba_head_dim"], 2 * config["n_groups"] * config["ssm_state_size"]
    found = dense(f"{at}.in_proj", 2 * wide + groups + heads, hidden) | dense(f"{at}.out_proj", hidden, wide)
    found |= plain(f"{at}.conv1d.weight", wide + groups, 1, config["conv_kernel"]) | plain(
        f"{at}.conv1d.bias", wide + groups
    )
    return found | bf16(f"{at}.norm", wide) | plain(f"{at}.A_log", heads) | plain(f"{at}.D", heads)


def _nemotron_attention(at: str, config: Config, dense: Scheme, _: Scheme) -> Headers:
    hidden, size = config["hidden_size"], config["head_dim"]
    wide, slim = config["num_attention_heads"] * size, config["num_key_value_heads"] * size
    found = dense(f"{at}.q_proj", wide, hidden) | dense(f"{at}.o_proj", hidden, wide)
    return found | dense(f"{at}.k_proj", slim, hidden) | dense(f"{at}.v_proj", slim, hidden)


def _latent_experts(at: str, config: Config, dense: Scheme, routed: Scheme) -> Headers:
    hidden, count, wide = config["hidden_size"], config["n_routed_experts"], config["moe_intermediate_size"]
    inner = config.get("moe_latent_size", hidden)
    found = bf16(f"{at}.gate", count, hidden) | plain(
        f"{at}.gate.e_score_correction_bias", count, dtype="F32"
    )
    if "moe_latent_size" in config:
        found |= dense(f"{at}.fc1_latent_proj", inner, hidden) | dense(f"{at}.fc2_latent_proj", hidden, inner)
    shared = config["moe_shared_expert_intermediate_size"]
    found |= dense(f"{at}.shared_experts.up_proj", shared, hidden)
    found |= dense(f"{at}.shared_experts.down_proj", hidden, shared)
    return (
        found
        | routed(f"{at}.experts.up_proj", count, wide, inner)
        | routed(f"{at}.experts.down_proj", count, inner, wide)
    )


_NEMOTRON = {"M": _mamba, "*": _nemotron_attention, "E": _latent_experts}
