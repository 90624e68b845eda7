"""Estimates beside what the tables have, which come from the headers of the very weights."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from medley import config
from medley.errors import Problem
from medley.model.checkpoint import Checkpoint, read_checkpoint
from medley.model.resolve import Weights
from medley.model.shape import compute_shape, find_shape
from medley.schema import Shape
from tests.model.checkpoints import checkpoint
from tests.model.published import PUBLISHED

FOUR_BITS = {name for name in PUBLISHED if "nvfp4" in name or "awq" in name}


def total_bytes(found: Shape) -> int:
    return found.layers * found.layer_bytes + found.embedding_bytes + found.head_bytes + found.draft_bytes


def known(name: str) -> Shape:
    found = config.load_models()[name].shape
    assert found is not None
    return found


def estimate(name: str, index: Mapping[str, Any] | None = None) -> Shape:
    return compute_shape(Checkpoint("x", PUBLISHED[name].config, {}, index or {}))


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_sum_is_near_what_the_weights_have(name: str) -> None:
    """Not counted are drafts and towers; in 4 bits config.json does not say which layers stay wider."""
    found, exact = estimate(name), known(name)
    assert found.parameters == pytest.approx(exact.parameters, rel=0.03)
    assert found.active_parameters == pytest.approx(exact.active_parameters, rel=0.06)
    without = total_bytes(exact) - exact.draft_bytes
    assert total_bytes(found) == pytest.approx(without, rel=0.2 if name in FOUR_BITS else 0.04)


@pytest.mark.parametrize("name", ["qwen3-8b", "gpt-oss-20b", "glm-4.5-air-awq-fp16mix", "qwen3.8-27b"])
def test_an_index_says_the_total(name: str) -> None:
    model = PUBLISHED[name]
    whole = checkpoint(model.config, dense=model.dense, routed=model.routed)
    total = sum(tensor.size_bytes for tensor in whole.tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict.fromkeys(whole.tensors, "a.safetensors")}
    found = estimate(name, index)
    assert total_bytes(found) == pytest.approx(total, rel=1e-6)
    assert found.layer_bytes == pytest.approx(known(name).layer_bytes, rel=0.04)


_CONVOLUTIONS = tuple("full_attention" if n in {2, 5, 8, 10, 12, 14} else "conv" for n in range(16))


@pytest.mark.parametrize(
    ("told", "parameters"),
    [
        pytest.param(
            {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257},
            124_439_808,
            id="gpt2",
        ),
        pytest.param(
            {"model_type": "opt", "num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12}
            | {"ffn_dim": 3072, "vocab_size": 50272},
            125_239_296,
            id="facebook/opt-125m",
        ),
        pytest.param(
            {"model_type": "falcon", "num_hidden_layers": 32, "hidden_size": 4544, "vocab_size": 65024}
            | {"num_attention_heads": 71, "multi_query": True},
            6_921_720_704,
            id="tiiuae/falcon-7b",
        ),
        pytest.param(
            {"model_type": "mamba", "num_hidden_layers": 64, "hidden_size": 2560, "vocab_size": 50280}
            | {"state_size": 16, "conv_kernel": 4, "intermediate_size": 5120, "time_step_rank": 160},
            2_768_345_600,
            id="state-spaces/mamba-2.8b-hf",
        ),
        pytest.param(
            {"model_type": "lfm2", "num_hidden_layers": 16, "hidden_size": 2048, "vocab_size": 65536}
            | {"num_attention_heads": 32, "num_key_value_heads": 8, "block_ff_dim": 12288}
            | {"block_multiple_of": 256, "conv_L_cache": 3, "layer_types": list(_CONVOLUTIONS)},
            1_170_340_608,
            id="LiquidAI/LFM2-1.2B",
        ),
    ],
)
def test_parameters_that_a_models_page_gives(told: dict[str, Any], parameters: int) -> None:
    """Feed-forwards without a gate or of an adjusted width, one key for all heads, layers of Mamba alone."""
    found = compute_shape(Checkpoint("x", told | {"tie_word_embeddings": True}, {}, {}))
    assert found.parameters == pytest.approx(parameters, rel=0.02)


@pytest.mark.parametrize(
    ("told", "sparse"),
    [
        ({"mlp_layer_types": ["dense", "sparse", "sparse", "sparse"]}, 3),
        ({"num_dense_layers": 2}, 2),
        ({"moe_layers": [1, 3]}, 2),
        ({"expert_layer_period": 2, "expert_layer_offset": 1}, 2),
        ({"mlp_only_layers": [0]}, 3),
        ({"decoder_sparse_step": 2}, 2),
    ],
)
def test_which_layers_have_experts(told: dict[str, Any], sparse: int) -> None:
    table = {"num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100}
    table |= {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 16}
    found = compute_shape(Checkpoint("x", table | {"intermediate_size": 96} | told, {}, {}))
    assert found.expert_bytes == sparse * 3 * 64 * 32 * 2 // 4


@pytest.mark.parametrize(
    ("tied", "names", "head"),
    [
        pytest.param(True, ("lm_head.weight",), False, id="tied, though it is stored"),
        pytest.param(None, ("lm_head.weight",), True, id="stored"),
        pytest.param(None, ("model.embed_tokens.weight",), False, id="not stored"),
        pytest.param(None, (), True, id="nobody says"),
    ],
)
def test_a_head(tied: bool | None, names: tuple[str, ...], head: bool) -> None:  # noqa: FBT001
    told = {**PUBLISHED["qwen3-8b"].config, "tie_word_embeddings": tied}
    index = {"weight_map": dict.fromkeys(names, "1.safetensors")}
    assert (compute_shape(Checkpoint("x", told, {}, index)).head_bytes > 0) == head


@pytest.mark.parametrize(
    ("changed", "entry"),
    [
        pytest.param({"intermediate_size": None}, "intermediate_size", id="no width"),
        pytest.param({"vocab_size": None}, "vocab_size", id="no vocabulary"),
        pytest.param({"layer_types": ["rwkv"] * 36}, "rwkv", id="layers that nobody knows"),
        pytest.param({"num_hidden_layers": 1 << 30}, "the limit is 4096", id="more layers than memory holds"),
    ],
)
def test_what_cannot_be_estimated_names_the_entry(changed: dict[str, Any], entry: str) -> None:
    with pytest.raises(Problem) as caught:
        compute_shape(Checkpoint("x", {**PUBLISHED["qwen3-8b"].config, **changed}, {}, {}))
    assert entry in str(caught.value)


@pytest.mark.parametrize("total", [float("inf"), float("nan"), -1, 0, True, "16 GB", 1, None, 1e300])
def test_a_total_that_cannot_be_changes_nothing_or_little(total: object) -> None:
    found = estimate("qwen3-8b", {"metadata": {"total_size": total}})
    assert found.replace(weights_source="config") == estimate("qwen3-8b")


def test_a_folder_of_two_small_files_has_a_shape(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED["qwen3-8b"].config))
    index = {"metadata": {"total_size": 16_381_470_720}, "weight_map": {"lm_head.weight": "1.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert not read_checkpoint(tmp_path).tensors
    assert total_bytes(find_shape(Weights("x", str(tmp_path), None))) == pytest.approx(16_381_470_720, abs=99)


# deepseek-ai/DeepSeek-V4-Flash, config.json (ai-dynamo/aiconfigurator's copy). It has one ratio more than
# layers, that of the draft.
DEEPSEEK_V4: dict[str, Any] = {
    "architectures": ["DeepseekV4ForCausalLM"],
    "model_type": "deepseek_v4",
    "compress_ratios": [0, 0, *(4, 128) * 20, 4, 0],
    "expert_dtype": "fp4",
    "head_dim": 512,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "index_head_dim": 128,
    "index_n_heads": 64,
    "max_position_embeddings": 1_048_576,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_attention_heads": 64,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 43,
    "num_key_value_heads": 1,
    "o_groups": 8,
    "o_lora_rank": 1024,
    "q_lora_rank": 1024,
    "qk_rope_head_dim": 64,
    "sliding_window": 128,
    "tie_word_embeddings": False,
    "vocab_size": 129_280,
}
FP8_BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def test_deepseek_v4_from_its_own_config() -> None:
    """As its table, which comes from the headers; that counts the weights of what routes, too."""
    told = DEEPSEEK_V4 | {"quantization_config": FP8_BLOCKS}
    found, exact = compute_shape(Checkpoint("x", told, {}, {})), known("deepseek-v4-flash")
    assert (found.weights, found.block, found.kv_bits) == ("mxfp4", None, 8)
    assert total_bytes(found) == pytest.approx(exact.weights_bytes, rel=0.005)
    assert found.active_layer_bytes == pytest.approx(exact.active_layer_bytes, rel=0.03)
    kept = ("attention_layers", "windowed_layers", "window", "kv_bytes_per_token", "state_bytes")
    assert {name: getattr(found, name) for name in kept} == {name: getattr(exact, name) for name in kept}


_BLOCKS = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}
_FOUR_BITS = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(
            {"quantization": {"quant_algo": "MIXED_PRECISION", "group_size": 16}},
            id="NVIDIA, ModelOpt's own file",
        ),
        pytest.param(
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"a": {"weights": _BLOCKS}, "b": {"weights": _FOUR_BITS}},
            },
            id="Red Hat, its experts' blocks are not those of attention",
        ),
    ],
)
def test_builds_of_deepseek_v4_with_experts_in_nvfp4(told: dict[str, Any]) -> None:
    """NVIDIA's takes 175.5 GB with its draft layer (T0mSIlver/working-set, research/nvfp4_2026-09.md)."""
    found = compute_shape(Checkpoint("x", DEEPSEEK_V4 | {"quantization_config": told}, {}, {}))
    assert (found.weights, found.block) == ("nvfp4", 16)
    assert total_bytes(found) == pytest.approx(165e9, rel=0.01)


@pytest.mark.parametrize("told", [{"q_lora_rank": None}, {"compress_ratios": [0, 4]}])
def test_deepseek_v4_without_a_size_names_it(told: dict[str, Any]) -> None:
    with pytest.raises(Problem) as caught:
        compute_shape(Checkpoint("x", DEEPSEEK_V4 | told, {}, {}))
    assert next(iter(told)) in caught.value.what


def test_modelopts_own_file_says_the_format(tmp_path: Path) -> None:
    """Nemotron 3 in NVFP4 without it counts as 16 bits, three and a half times as much."""
    told = dict(PUBLISHED["nemotron-3-super-120b-a12b-nvfp4"].config)
    beside = {"producer": {"name": "modelopt"}, "quantization": told.pop("quantization_config")}
    (tmp_path / "config.json").write_text(json.dumps(told))
    wide = find_shape(Weights("x", str(tmp_path), None))
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(beside))
    found = find_shape(Weights("x", str(tmp_path), None))
    assert (wide.weights, found.weights) == ("bf16", "nvfp4")
    assert found == compute_shape(
        Checkpoint("x", PUBLISHED["nemotron-3-super-120b-a12b-nvfp4"].config, {}, {})
    )
    assert found.weights_bytes < 0.4 * wide.weights_bytes
    (tmp_path / "config.json").write_text(json.dumps(told | {"quantization_config": {"quant_method": "fp8"}}))
    assert find_shape(Weights("x", str(tmp_path), None)).weights == "fp8", "what config.json says comes first"
