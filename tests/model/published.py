"""Published models: the sizes in config.json, how their weights are stored, their total where known."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from medley.schema import LongContext
from tests.model.weight_formats import Scheme, awq, bf16, fp8, fp8_blocks, fp8_blocks_f32, mxfp4, mxfp8, nvfp4


@dataclass(frozen=True)
class Published:
    config: Mapping[str, Any]
    dense: Scheme = bf16
    routed: Scheme | None = None
    total_bytes: int | None = None
    """What model.safetensors.index.json says, or the repository's size on disk; drafts included."""
    otherwise: Mapping[str, Any] = field(default_factory=dict)
    """What its table says otherwise, because no entry of config.json tells medley."""


def _config(kind: str, layers: int, hidden: int, heads: tuple[int, int, int], **more: Any) -> dict[str, Any]:
    return {
        "model_type": kind,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "head_dim": heads[2],
        "tie_word_embeddings": False,
    } | more


def _qwen3(layers: int, hidden: int, heads: tuple[int, int, int], wide: int, **more: Any) -> dict[str, Any]:
    told = {"vocab_size": 151_936, "max_position_embeddings": 40_960, "intermediate_size": wide}
    return _config("qwen3", layers, hidden, heads, **(told | more))


def _moe(layers: int, hidden: int, heads: tuple[int, int, int], wide: int, context: int) -> dict[str, Any]:
    return _config(
        "qwen3_moe",
        layers,
        hidden,
        heads,
        vocab_size=151_936,
        max_position_embeddings=context,
        moe_intermediate_size=wide,
        num_experts=128,
        num_experts_per_tok=8,
    )


def _llama(layers: int, hidden: int, heads: tuple[int, int, int], wide: int) -> dict[str, Any]:
    told = {"vocab_size": 128_256, "max_position_embeddings": 131_072, "intermediate_size": wide}
    return _config("llama", layers, hidden, heads, **told)


def _gpt_oss(layers: int, experts: int) -> dict[str, Any]:
    return _config(
        "gpt_oss",
        layers,
        2880,
        (64, 8, 64),
        vocab_size=201_088,
        max_position_embeddings=131_072,
        intermediate_size=2880,
        attention_bias=True,
        num_local_experts=experts,
        num_experts_per_tok=4,
        sliding_window=128,
        layer_types=["sliding_attention", "full_attention"] * (layers // 2),
        quantization_config={"quant_method": "mxfp4"},
    )


_SMOLLM2 = _llama(30, 576, (9, 3, 64), 1536) | {
    "vocab_size": 49_152,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "architectures": ["LlamaForCausalLM"],
}
_LONG_NEMOTRON = {"long_context": LongContext(tokens=1_048_576, vllm=(), sglang=())}
_YARN = (
    '{"text_config": {"rope_parameters": {"mrope_interleaved": true, "mrope_section": [11, 11, 10], '
    '"rope_type": "yarn", "rope_theta": 10000000, "partial_rotary_factor": 0.25, "factor": 4.0, '
    '"original_max_position_embeddings": 262144}}}'
)
_LONG_QWEN = {"long_context": LongContext(tokens=1_000_000, vllm=("--hf-overrides", _YARN))}
_FP8 = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
_QWEN3_4B = _qwen3(36, 2560, (32, 8, 128), 9728, tie_word_embeddings=True, max_position_embeddings=262_144)
_QWEN3_30B = _moe(48, 2048, (32, 4, 128), 768, 262_144)
_GLM_AIR = _config(
    "glm4_moe",
    46,
    4096,
    (96, 8, 128),
    vocab_size=151_552,
    max_position_embeddings=131_072,
    intermediate_size=10_944,
    moe_intermediate_size=1408,
    n_routed_experts=128,
    n_shared_experts=1,
    num_experts_per_tok=8,
    attention_bias=True,
)
_TOWER = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "depth": 27,
    "in_channels": 3,
    "patch_size": 16,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
    "num_position_embeddings": 2304,
}
_QWEN3_5_122B = {
    "model_type": "qwen3_5_moe",
    "tie_word_embeddings": False,
    "text_config": _config(
        "qwen3_5_moe_text",
        48,
        3072,
        (32, 2, 256),
        vocab_size=248_320,
        max_position_embeddings=262_144,
        full_attention_interval=4,
        linear_conv_kernel_dim=4,
        linear_key_head_dim=128,
        linear_num_key_heads=16,
        linear_num_value_heads=64,
        linear_value_head_dim=128,
        mamba_ssm_dtype="float32",
        moe_intermediate_size=1024,
        shared_expert_intermediate_size=1024,
        num_experts=256,
        num_experts_per_tok=8,
        vision=_TOWER | {"out_hidden_size": 3072},
    ),
}
# quantization_config.quantized_layers: the layers of which each part is in 8 bits; the rest stays in 16.
_IN = (0, 2, 4, 6, 9, 11, 15, 18, 20, 27, 29, 40, 49, 51, 53, 55, 60, 62, 66, 68, 71, 73, 82, 84, 86)
_OUT = (
    0,
    2,
    4,
    9,
    11,
    18,
    38,
    40,
    42,
    44,
    49,
    51,
    53,
    55,
    57,
    62,
    64,
    66,
    68,
    71,
    73,
    75,
    77,
    80,
    82,
    84,
    86,
)
_PATTERN = "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME"
_EXPERTS = tuple(layer for layer, letter in enumerate(_PATTERN) if letter == "E")
_NEMOTRON = _config(
    "nemotron_h",
    88,
    4096,
    (32, 2, 128),
    vocab_size=131_072,
    max_position_embeddings=262_144,
    hybrid_override_pattern=_PATTERN,
    mtp_hybrid_override_pattern="*E",
    mamba_num_heads=128,
    mamba_head_dim=64,
    ssm_state_size=128,
    n_groups=8,
    conv_kernel=4,
    mamba_ssm_cache_dtype="float32",
    n_routed_experts=512,
    num_experts_per_tok=22,
    moe_intermediate_size=2688,
    moe_latent_size=1024,
    moe_shared_expert_intermediate_size=5376,
    quantization_config={"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"},
    eight={
        "in_proj": _IN,
        "out_proj": _OUT,
        "o_proj": (69, 78),
        "shared_experts.up_proj": tuple(layer for layer in _EXPERTS if layer != 41),
        "shared_experts.down_proj": tuple(layer for layer in _EXPERTS if layer not in {8, 76}),
        "fc1_latent_proj": (1, 3, 5),
        "fc2_latent_proj": (3,),
    },
)
_DEEPSEEK = _config(
    "deepseek_v3",
    61,
    7168,
    (128, 128, 128),
    vocab_size=129_280,
    max_position_embeddings=163_840,
    intermediate_size=18_432,
    moe_intermediate_size=2048,
    n_routed_experts=256,
    n_shared_experts=1,
    num_experts_per_tok=8,
    first_k_dense_replace=3,
    kv_lora_rank=512,
    q_lora_rank=1536,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
)
_QWEN2_5_72B = _config(
    "qwen2",
    80,
    8192,
    (64, 8, 128),
    vocab_size=152_064,
    max_position_embeddings=32_768,
    intermediate_size=29_568,
    use_sliding_window=False,
    sliding_window=131_072,
)
_AWQ = {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}

_QWEN3_8_TEXT = _config(
    "qwen3_5_text",
    64,
    5120,
    (24, 4, 256),
    vocab_size=248_320,
    max_position_embeddings=262_144,
    intermediate_size=17_408,
    full_attention_interval=4,
    linear_conv_kernel_dim=4,
    linear_key_head_dim=128,
    linear_num_key_heads=16,
    linear_num_value_heads=48,
    linear_value_head_dim=128,
    mamba_ssm_dtype="float32",
    vision=_TOWER | {"out_hidden_size": 5120},
)
_QWEN3_8_27B = {"model_type": "qwen3_5", "tie_word_embeddings": False, "text_config": _QWEN3_8_TEXT}
# Where the feed-forward of 56 layers is in 4 bits, and the head in 8.
_QWEN3_8_27B_NVFP4 = _QWEN3_8_27B | {
    "text_config": _QWEN3_8_TEXT | {"narrow_layers": 56},
    "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"},
}
_QWEN3_CODER_NEXT = _config(
    "qwen3_next",
    48,
    2048,
    (16, 2, 256),
    vocab_size=151_936,
    max_position_embeddings=262_144,
    full_attention_interval=4,
    linear_conv_kernel_dim=4,
    linear_key_head_dim=128,
    linear_num_key_heads=16,
    linear_num_value_heads=32,
    linear_value_head_dim=128,
    moe_intermediate_size=512,
    shared_expert_intermediate_size=512,
    num_experts=512,
    num_experts_per_tok=10,
)
_MINIMAX_M2 = _config(
    "minimax_m2",
    62,
    3072,
    (48, 8, 128),
    vocab_size=200_064,
    max_position_embeddings=204_800,
    intermediate_size=1536,
    num_local_experts=256,
    num_experts_per_tok=8,
)
_MINIMAX_M3 = _config(
    "minimax_m3_vl",
    60,
    6144,
    (64, 4, 128),
    vocab_size=200_064,
    max_position_embeddings=524_288,
    intermediate_size=3072,
    dense_intermediate_size=12_288,
    shared_intermediate_size=3072,
    dense_layers=3,
    sparse_attention_config={
        "sparse_attention_freq": [0] * 3 + [1] * 57,
        "sparse_num_index_heads": 4,
        "sparse_index_dim": 128,
    },
    num_local_experts=128,
    num_experts_per_tok=4,
    tower={"hidden_size": 1280, "num_hidden_layers": 32, "intermediate_size": 5120, "patch_size": 14},
)
_MIMO = _config(
    "mimo_v2_flash",
    48,
    4096,
    (64, 4, 192),
    vocab_size=152_576,
    max_position_embeddings=262_144,
    v_head_dim=128,
    swa_num_key_value_heads=8,
    sliding_window=128,
    hybrid_layer_pattern=[int(layer not in {0, 5, 11, 17, 23, 29, 35, 41, 47}) for layer in range(48)],
    intermediate_size=16_384,
    moe_intermediate_size=2048,
    n_routed_experts=256,
    num_experts_per_tok=8,
    drafts=3,
)
_NANO = _config(
    "nemotron_h",
    52,
    2688,
    (32, 2, 128),
    vocab_size=131_072,
    max_position_embeddings=262_144,
    hybrid_override_pattern="MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    mamba_num_heads=64,
    mamba_head_dim=64,
    ssm_state_size=128,
    n_groups=8,
    conv_kernel=4,
    mamba_ssm_cache_dtype="float32",
    n_routed_experts=128,
    num_experts_per_tok=6,
    moe_intermediate_size=1856,
    moe_shared_expert_intermediate_size=3712,
)
# exclude_modules of its hf_quant_config.json.
_NANO_NVFP4 = _NANO | {
    "sixteen": dict.fromkeys(("in_proj", "out_proj"), (4, 11, 18, 25, 32, 41))
    | dict.fromkeys(("q_proj", "k_proj", "v_proj", "o_proj"), (5, 12, 19, 26, 33, 42)),
    "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"},
}

PUBLISHED = {
    "qwen3-4b-instruct-2507": Published(_QWEN3_4B, total_bytes=8_044_936_192),
    "qwen3-4b-instruct-2507-fp8": Published(_QWEN3_4B | _FP8, fp8_blocks),
    "qwen3-8b": Published(_qwen3(36, 4096, (32, 8, 128), 12_288), total_bytes=16_381_470_720),
    "qwen3-32b": Published(_qwen3(64, 5120, (64, 8, 128), 25_600), total_bytes=65_524_246_528),
    "qwen3-30b-a3b-thinking-2507": Published(_QWEN3_30B, total_bytes=61_064_245_248),
    "qwen3-30b-a3b-thinking-2507-fp8": Published(_QWEN3_30B | _FP8, fp8_blocks),
    "qwen3-235b-a22b-instruct-2507": Published(_moe(94, 4096, (64, 4, 128), 1536, 262_144)),
    "qwen2.5-72b-instruct": Published(_QWEN2_5_72B, total_bytes=145_412_407_296),
    "llama-3.1-8b-instruct": Published(_llama(32, 4096, (32, 8, 128), 14_336), total_bytes=16_060_522_496),
    "smollm2": Published(_SMOLLM2, total_bytes=269_030_016),
    "llama-3.3-70b-instruct": Published(_llama(80, 8192, (64, 8, 128), 28_672), total_bytes=141_107_412_992),
    "gpt-oss-20b": Published(_gpt_oss(24, 32), routed=mxfp4, total_bytes=13_761_264_768),
    "gpt-oss-120b": Published(_gpt_oss(36, 128), routed=mxfp4, total_bytes=65_248_815_744),
    "glm-4.5-air": Published(_GLM_AIR),
    "glm-4.5-air-awq-fp16mix": Published(_GLM_AIR | _AWQ, routed=awq, total_bytes=73_100_000_000),
    "nemotron-3-super-120b-a12b-nvfp4": Published(
        _NEMOTRON, routed=nvfp4, total_bytes=80_530_000_000, otherwise=_LONG_NEMOTRON
    ),
    "qwen3.5-122b-a10b": Published(_QWEN3_5_122B),
    "qwen3.5-122b-a10b-fp8": Published(_QWEN3_5_122B | _FP8, fp8_blocks),
    "deepseek-v3": Published(_DEEPSEEK | _FP8, fp8_blocks_f32),
    "qwen3.8-27b": Published(_QWEN3_8_27B, total_bytes=55_563_006_776, otherwise=_LONG_QWEN),
    "qwen3.8-27b-fp8": Published(
        _QWEN3_8_27B | _FP8, fp8_blocks, total_bytes=30_866_866_928, otherwise=_LONG_QWEN
    ),
    "qwen3.8-27b-nvfp4": Published(_QWEN3_8_27B_NVFP4, fp8, total_bytes=23_417_339_744, otherwise=_LONG_QWEN),
    "qwen3-coder-next": Published(_QWEN3_CODER_NEXT, total_bytes=159_000_000_000),
    "qwen3-coder-next-fp8": Published(_QWEN3_CODER_NEXT | _FP8, fp8_blocks, total_bytes=80_000_000_000),
    "minimax-m2.7": Published(_MINIMAX_M2 | _FP8, fp8_blocks_f32, total_bytes=230_100_000_000),
    "minimax-m2.7-nvfp4": Published(
        _MINIMAX_M2 | {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}},
        routed=nvfp4,
    ),
    "minimax-m3": Published(_MINIMAX_M3, total_bytes=854_165_200_000),
    "minimax-m3-nvfp4": Published(
        _MINIMAX_M3
        | {
            "max_position_embeddings": 1_048_576,
            "quantization_config": {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"},
        },
        mxfp8,
        nvfp4,
    ),
    "mimo-v2-flash": Published(_MIMO | _FP8, fp8_blocks_f32, total_bytes=320_000_000_000),
    "nemotron-3-nano-30b-a3b": Published(_NANO),
    "nemotron-3-nano-30b-a3b-nvfp4": Published(_NANO_NVFP4, nvfp4, total_bytes=19_400_000_000),
}
