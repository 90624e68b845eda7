"""Headers as published checkpoints have them, from the sizes in their config.json.

All experts of a layer stand as one tensor: it changes no sum, and there are tens of thousands of them.
"""

from collections.abc import Mapping
from typing import Any

from medley.model.checkpoint import Checkpoint
from tests.model.weight_formats import Headers, Scheme, bf16, fp8, plain

Config = Mapping[str, Any]


def checkpoint(config: Config, *, dense: Scheme = bf16, routed: Scheme | None = None) -> Checkpoint:
    """A model whose linear layers are stored in one way and its routed experts perhaps in another."""
    text = config.get("text_config", config)
    family = {
        "gpt_oss": _gpt_oss,
        "nemotron_h": _nemotron,
        "qwen3_5_moe": _qwen3_5,
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
    hidden = config["hidden_size"]
    found = _ends(config, "model.language_model")
    for layer in range(config["num_hidden_layers"]):
        at = f"model.language_model.layers.{layer}"
        full = (layer + 1) % config["full_attention_interval"] == 0
        found |= _attention(at, config, dense, gated=True) if full else _gated_delta(at, config, dense)
        found |= _qwen3_5_experts(at, config, dense, routed)
    found |= _vision(config["vision"])
    # The draft is stored in 16 bits but for its experts.
    found |= _attention("mtp.layers.0", config, dense, gated=True) | bf16("mtp.fc", hidden, 2 * hidden)
    return found | _qwen3_5_experts("mtp.layers.0", config, dense, routed)


def _qwen3_5_experts(at: str, config: Config, dense: Scheme, routed: Scheme) -> Headers:
    hidden, count = config["hidden_size"], config["num_experts"]
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
    """Nemotron-H: each layer one of Mamba, attention, experts. `eight` names what is stored in 8 bits."""
    hidden, eight = config["hidden_size"], config.get("eight", {})
    found = bf16("backbone.embeddings", config["vocab_size"], hidden) | bf16("backbone.norm_f", hidden)
    found |= bf16("lm_head", config["vocab_size"], hidden)
    for layer, letter in enumerate(config["hybrid_override_pattern"]):
        at = f"backbone.layers.{layer}"

        def narrow(name: str, *shape: int, layer: int = layer) -> Headers:
            return (fp8 if layer in eight.get(name.split("mixer.")[1], ()) else dense)(name, *shape)

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
