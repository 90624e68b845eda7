"""Small config.json's of architectures that tiny_models cannot write, and what it leaves out of others.

transformers has no class for many architectures that vLLM registers, and some of its classes leave entries
out that the published config.json has. The names of the entries are those that vLLM's class reads
(vllm/model_executor/models and vllm/models, 0.32.0); the sizes are small and differ from each other.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Table = dict[str, Any]

PLAIN: Table = {
    "hidden_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 192,
    "vocab_size": 256,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
}
EXPERTS: Table = {
    "moe_intermediate_size": 64,
    "num_experts": 8,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "num_shared_experts": 1,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    "routed_scaling_factor": 1.0,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
}
LATENT: Table = {
    "q_lora_rank": 48,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
INDEX: Table = {"index_topk": 256, "index_n_heads": 32, "index_head_dim": 128}
DELTA: Table = {
    "num_heads": 4,
    "head_dim": 32,
    "short_conv_kernel_size": 4,
    "full_attn_layers": [4],
    "kda_layers": [1, 2, 3],
}
BAILING: Table = {
    "use_bias": False,
    "use_qkv_bias": False,
    "use_qk_norm": True,
    "head_dim": 32,
    "moe_shared_expert_intermediate_size": 64,
    "embedding_dropout": 0.0,
    "score_function": "sigmoid",
    "moe_router_enable_expert_bias": True,
    "no_kda_lora": True,
    "rope_theta": 10_000.0,
}
MIMO: Table = {
    "head_dim": 192,
    "v_head_dim": 128,
    "swa_num_attention_heads": 4,
    "swa_num_key_value_heads": 4,
    "swa_head_dim": 192,
    "swa_v_head_dim": 128,
    "sliding_window": 128,
    "sliding_window_size": 128,
    "hybrid_layer_pattern": [0, 1, 1, 0],
    "moe_layer_freq": [0, 1, 1, 1],
    "layernorm_epsilon": 1e-5,
    "attention_bias": False,
    "rope_theta": 10_000.0,
    "swa_rope_theta": 10_000.0,
    "partial_rotary_factor": 0.334,
}

HYPER: Table = {"hc_mult": 4, "hc_eps": 1e-6, "hc_sinkhorn_iters": 20}
COMPRESSED: Table = (
    INDEX
    | HYPER
    | {
        "num_key_value_heads": 1,
        "head_dim": 512,
        "qk_rope_head_dim": 64,
        "q_lora_rank": 64,
        "o_lora_rank": 32,
        "o_groups": 2,
        "sliding_window": 128,
        "compress_ratios": [0, 4, 128, 4],
        "compress_rope_theta": 160_000.0,
        "num_hash_layers": 1,
        "scoring_func": "sqrtsoftplus",
        "swiglu_limit": 10.0,
        "rope_theta": 10_000.0,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10_000.0,
            "factor": 16,
            "beta_fast": 32,
            "beta_slow": 1,
            "original_max_position_embeddings": 65_536,
        },
    }
)
# DeepSeek V4.1: few layers keep compressed keys and values, which the others read.
SOURCES: Table = {
    "compress_ratios": [2, 2, 1, 1],
    "kv_source_layer_ids": [0, 0, 2, 2],
    "index_source_layer_ids": [0, 0, 2, 2],
    "engram_layer_ids": [],
}
LINEAR: Table = {
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 48,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
}

# What the published config.json has and transformers' class leaves out, or writes otherwise.
ADDED: Mapping[str, Table] = {
    "AfmoeForCausalLM": {
        "score_func": "sigmoid",
        "route_norm": True,
        "route_scale": 1.0,
        "mup_enabled": True,
        "n_group": 1,
        "topk_group": 1,
    },
    "GPTJForCausalLM": {"rotary_dim": 8},
    "Glm4MoeForCausalLM": {"head_dim": 16},
    "Glm4vMoeForConditionalGeneration": {"head_dim": 16, "use_qk_norm": False},
    "Glm4MoeLiteForCausalLM": {"first_k_dense_replace": 1},
    "HYV3ForCausalLM": {
        "first_k_dense_replace": 1,
        "expert_hidden_dim": 32,
        "route_norm": True,
        "router_scaling_factor": 1.0,
    },
    "Lfm2ForCausalLM": {
        "block_dim": 64,
        "conv_dim": 64,
        "block_ffn_dim_multiplier": 1.0,
        "block_multiple_of": 32,
        "block_auto_adjust_ff_dim": True,
    },
    "LongcatFlashForCausalLM": {
        "mla_scale_q_lora": 1.0,
        "mla_scale_kv_lora": 1.0,
        "zero_expert_type": "identity",
        "zero_expert_num": 2,
    },
    "MiMoV2FlashForCausalLM": {
        "hybrid_layer_pattern": [0, 1, 1, 1, 1, 0],
        "moe_layer_freq": [0, 1, 1, 1, 1, 1],
        "swa_num_attention_heads": 4,
        "swa_num_key_value_heads": 4,
        "swa_head_dim": 16,
        "swa_v_head_dim": 16,
        "sliding_window_size": 128,
        "layernorm_epsilon": 1e-5,
    },
    "MiniMaxM2ForCausalLM": {"rotary_dim": 8, "scoring_func": "sigmoid"},
    "Qwen3VLMoeForConditionalGeneration": {"norm_topk_prob": True},
}

# Entries of a config.json that only names its kind: the rest is what the configuration's class gives.
NAMED = 2
# Whole ones: `model_type` first, then what differs from PLAIN.
WRITTEN: Mapping[str, tuple[str, Table]] = {
    "AXK1ForCausalLM": ("axk1", EXPERTS | LATENT),
    "BailingMoeForCausalLM": ("bailing_moe", EXPERTS | BAILING),
    "BailingMoeV2ForCausalLM": ("bailing_moe_v2", EXPERTS | BAILING),
    "BailingMoeV2_5ForCausalLM": (
        "bailing_hybrid",
        EXPERTS | BAILING | LATENT | {"layer_group_size": 2, "num_key_value_heads": 4, "group_norm_size": 1},
    ),
    "BailingMoeV3ForCausalLM": (
        "bailing_hybrid",
        EXPERTS | BAILING | LATENT | {"layer_group_size": 2, "short_conv_kernel_size": 4},
    ),
    "ChatGLMModel": (
        "chatglm",
        {
            "num_layers": 4,
            "kv_channels": 32,
            "ffn_hidden_size": 192,
            "padded_vocab_size": 256,
            "seq_length": 4096,
            "multi_query_attention": True,
            "multi_query_group_num": 2,
            "rmsnorm": True,
            "original_rope": True,
            "add_qkv_bias": True,
            "layernorm_epsilon": 1e-5,
        },
    ),
    "InklingForCausalLM": (
        "inkling_model",
        {
            "head_dim": 32,
            "swa_num_attention_heads": 4,
            "swa_num_key_value_heads": 4,
            "swa_head_dim": 16,
            "sliding_window_size": 64,
            "local_layer_ids": [0, 1, 2],
            "sconv_kernel_size": 4,
            "dense_intermediate_size": 192,
            "n_routed_experts": 8,
            "n_shared_experts": 2,
            "num_experts_per_tok": 2,
            "unpadded_vocab_size": 256,
            "use_embed_norm": True,
            "shared_expert_sink": True,
        },
    ),
    "DeepseekForCausalLM": ("deepseek", EXPERTS | {"moe_layer_freq": 1, "scoring_func": "softmax"}),
    "DeepseekV41ForCausalLM": ("deepseek_v41", EXPERTS | COMPRESSED | SOURCES),
    "DeepseekV4ForCausalLM": ("deepseek_v4", EXPERTS | COMPRESSED),
    "Dots3NoteForCausalLM": ("dots3_note", {}),
    "ExaoneForCausalLM": (
        "exaone",
        {"activation_function": "silu", "layer_norm_epsilon": 1e-5, "num_layers": 4},
    ),
    "Gemma3nForCausalLM": ("gemma3n_text", {}),
    "Gemma4ForCausalLM": ("gemma4_text", {}),
    "Glm5NextForCausalLM": (
        "glm5_next_text",
        EXPERTS
        | LATENT
        | INDEX
        | HYPER
        | {
            "num_key_value_heads": 4,
            "mhc": True,
            "mla_use_nope": True,
            "indexer_rope_interleave": True,
            "qk_rope_head_dim": 0,
            "index_kpool": 4,
            "index_kpool_always_select_tail": True,
            "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
            "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
            "linear_attn_config": DELTA,
            "swiglu_limit": 10.0,
        },
    ),
    "GraniteMoeHybridForCausalLM": (
        "granitemoehybrid",
        {
            "layer_types": ["mamba", "mamba", "attention", "mamba"],
            "mamba_n_heads": 8,
            "mamba_d_head": 32,
            "mamba_expand": 2,
            "mamba_d_state": 24,
            "mamba_d_conv": 4,
            "mamba_n_groups": 1,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "shared_intermediate_size": 64,
        },
    ),
    "HYV4ForCausalLM": ("hy_v4", {}),
    "IQuestCoderForCausalLM": ("iquestcoder", {"head_dim": 32, "attention_bias": False}),
    "IQuestLoopCoderForCausalLM": (
        "iquestloopcoder",
        {"head_dim": 32, "attention_bias": False, "loop_num": 3, "loop_window_size": 64},
    ),
    "InternLM2ForCausalLM": ("internlm2", {"bias": False}),
    "InternLM3ForCausalLM": ("internlm3", {"bias": False, "qkv_bias": False, "head_dim": 32}),
    "KimiLinearForCausalLM": (
        "kimi_linear",
        EXPERTS
        | LATENT
        | {
            "linear_attn_config": DELTA,
            "num_experts_per_token": 2,
            "moe_renormalize": True,
            "moe_router_activation_func": "sigmoid",
            "num_expert_group": 1,
            "use_grouped_topk": True,
            "moe_layer_freq": 1,
            "mla_use_nope": True,
            "head_dim": 192,
        },
    ),
    "LLaMAForCausalLM": ("llama", {}),
    "Lfm2MoeForCausalLM": (
        "lfm2_moe",
        EXPERTS
        | {
            "layer_types": ["conv", "conv", "full_attention", "conv"],
            "conv_L_cache": 3,
            "conv_bias": False,
            "num_dense_layers": 1,
            "use_expert_bias": True,
            "norm_eps": 1e-5,
        },
    ),
    "Mamba2ForCausalLM": (
        "mamba2",
        {
            "num_heads": 8,
            "head_dim": 32,
            "state_size": 24,
            "n_groups": 2,
            "expand": 2,
            "intermediate_size": 256,
            "conv_kernel": 4,
            "layer_norm_epsilon": 1e-5,
        },
    ),
    "MiMoForCausalLM": ("mimo", {"attention_bias": True, "head_dim": 32, "num_nextn_predict_layers": 1}),
    "MiMoV2ForCausalLM": ("mimo_v2", EXPERTS | MIMO),
    "MiMoV2FlashForCausalLM": ("mimo_v2_flash", EXPERTS | MIMO),
    "MiniCPMForCausalLM": (
        "minicpm",
        {"scale_emb": 12, "dim_model_base": 64, "scale_depth": 1.4, "num_experts": 0},
    ),
    "MiniMaxM3SparseForCausalLM": (
        "minimax_m3_text",
        {
            "head_dim": 128,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "dense_intermediate_size": 192,
            "shared_intermediate_size": 64,
            "n_shared_experts": 1,
            "moe_layer_freq": [0, 1, 1, 1],
            "partial_rotary_factor": 0.5,
            "rope_theta": 5_000_000.0,
            "scoring_func": "sigmoid",
            "use_routing_bias": True,
            "use_gemma_norm": True,
            "hidden_act": "swigluoai",
            "swiglu_alpha": 1.702,
            "swiglu_beta": 1.0,
            "swiglu_limit": 7.0,
            "sparse_attention_config": {
                "use_sparse_attention": True,
                "sparse_attention_freq": [0, 1, 1, 1],
                "sparse_disable_index_value": [0, 1, 1, 1],
                "sparse_num_index_heads": 2,
                "sparse_index_dim": 128,
                "sparse_topk_blocks": 16,
                "sparse_block_size": 128,
            },
        },
    ),
    "MuseGlimmerForCausalLM": ("muse_glimmer", {}),
    "NemotronForCausalLM": (
        "nemotron",
        {"head_dim": 32, "norm_eps": 1e-5, "hidden_act": "relu2", "partial_rotary_factor": 0.5},
    ),
    "NemotronHForCausalLM": (
        "nemotron_h",
        EXPERTS
        | {
            "hybrid_override_pattern": "ME*-",
            "head_dim": 32,
            "mamba_num_heads": 8,
            "mamba_head_dim": 16,
            "ssm_state_size": 24,
            "n_groups": 2,
            "conv_kernel": 4,
            "chunk_size": 16,
            "moe_shared_expert_intermediate_size": 64,
            "mlp_hidden_act": "relu2",
            "layer_norm_epsilon": 1e-5,
        },
    ),
    "OrionForCausalLM": ("orion", {}),
    "PanguEmbeddedForCausalLM": ("PanguEmbedded", {"bias": True, "rope_theta": 10_000.0}),
    "PanguUltraMoEForCausalLM": ("pangu_ultra_moe", EXPERTS | LATENT),
    "Param2MoEForCausalLM": ("param2moe", EXPERTS | BAILING),
    "PhiMoEForCausalLM": ("phimoe", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "Plamo3ForCausalLM": (
        "plamo3",
        {
            "head_dim": 32,
            "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"],
            "interleaved_sliding_window": [128, 128, 128, None],
            "sliding_window": 128,
            "sliding_window_pattern": 4,
            "rope_local_theta": 10_000.0,
        },
    ),
    "Qwen4ExpForCausalLM": (
        "qwen4_exp_text",
        EXPERTS
        | LINEAR
        | {
            "head_dim": 256,
            "partial_rotary_factor": 0.25,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10_000.0,
                "partial_rotary_factor": 0.25,
            },
            "hc_count": 4,
            "hc_lowrank": 32,
            "ple_layer_ids": [],
            "indexer_n_heads": 4,
            "indexer_kv_heads": 1,
            "indexer_head_dim": 128,
            "indexer_budget": 2048,
            "indexer_compress_ratio": 4,
            "output_gate_type": "sigmoid",
            "shared_expert_intermediate_size": 64,
        },
    ),
    "Rnj1ForCausalLM": ("gemma3_text", {"head_dim": 32, "sliding_window": 128, "sliding_window_pattern": 1}),
    "SarvamMLAForCausalLM": ("sarvam_mla", EXPERTS | LATENT | BAILING | {"head_dim": 576}),
    "SarvamMoEForCausalLM": ("sarvam_moe", EXPERTS | BAILING),
    "SolarForCausalLM": (
        "solar",
        {"bskcn_1": [1], "bskcn_2": [2], "bskcn_3": [1], "bskcn_4": [2], "bskcn_tv": [0.9, 0.8]},
    ),
    "Step1ForCausalLM": ("step1", {"num_attention_groups": 2}),
    "Step3TextForCausalLM": (
        "step3_text",
        {
            "head_dim": 64,
            "share_q_dim": 96,
            "moe_num_experts": 8,
            "moe_top_k": 2,
            "moe_intermediate_size": 64,
            "share_expert_dim": 64,
            "norm_expert_weight": True,
            "max_position_embedding": 4096,
            "moe_layers_enum": "1,2,3",
        },
    ),
    "Step3p5ForCausalLM": (
        "step3p5",
        {
            "head_dim": 32,
            "num_attention_groups": 2,
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "sliding_attention"],
            "sliding_window": 128,
            "attention_other_setting": {
                "attention_type": "sliding_attention",
                "num_attention_heads": 6,
                "num_attention_groups": 3,
                "head_dim": 32,
            },
            "moe_num_experts": 8,
            "moe_top_k": 2,
            "moe_intermediate_size": 64,
            "share_expert_dim": 64,
            "norm_expert_weight": True,
            "moe_layers_enum": "1,2,3",
            "moe_router_scaling_factor": 1.0,
            "rope_theta": 10_000.0,
            "use_head_wise_attn_gate": True,
        },
    ),
    "TeleChat2ForCausalLM": (
        "telechat",
        {
            "n_head": 4,
            "n_layer": 4,
            "ffn_hidden_size": 192,
            "layer_norm_epsilon": 1e-5,
            "num_key_value_heads": 2,
        },
    ),
    "TeleChat3ForCausalLM": ("telechat3", {"head_dim": 32}),
    "TeleFLMForCausalLM": (
        "teleflm",
        {"use_mup": True, "mup_scale_factor": 1.0, "output_mult": 1.0, "input_mult": 1.0},
    ),
    "Zamba2ForCausalLM": (
        "zamba2",
        {
            "hidden_act": "gelu",
            "num_key_value_heads": 4,
            "attention_head_dim": 64,
            "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"],
            "hybrid_layer_ids": [1, 3],
            "num_mem_blocks": 1,
            "n_mamba_heads": 8,
            "mamba_headdim": 32,
            "mamba_expand": 2,
            "mamba_d_state": 24,
            "mamba_d_conv": 4,
            "mamba_ngroups": 1,
            "adapter_rank": 16,
        },
    ),
}


def write(out: Path, tiny: Path) -> list[Path]:
    """Write config.json's into `out`: those written here, and those in `tiny` with what is added to them."""
    tables = {each.parent.name: json.loads(each.read_text()) for each in tiny.glob("*/config.json")}
    for name, more in ADDED.items():
        if name in tables:
            inner = tables[name].get("text_config", tables[name])
            inner.update(more)
    for name, (kind, more) in WRITTEN.items():
        # Nothing but its type: the configuration's own class has the sizes of a published model.
        sizes = PLAIN | more if more or kind in {"llama", "orion"} else {}
        tables[name] = {"architectures": [name], "model_type": kind} | sizes
    for name, table in tables.items():
        (out / name).mkdir(parents=True, exist_ok=True)
        (out / name / "config.json").write_text(json.dumps(table, indent=1))
    return sorted(out / name for name in tables)
