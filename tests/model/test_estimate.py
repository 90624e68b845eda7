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
from medley.model.shape import shape, shape_of_config
from medley.schema import Shape
from tests.model.checkpoints import checkpoint
from tests.model.published import PUBLISHED

FOUR_BITS = {name for name in PUBLISHED if "nvfp4" in name or "awq" in name}


def total_bytes(found: Shape) -> int:
    return found.layers * found.layer_bytes + found.embedding_bytes + found.head_bytes + found.draft_bytes


def known(name: str) -> Shape:
    found = config.models()[name].shape
    assert found is not None
    return found


def estimate(name: str, index: Mapping[str, Any] | None = None) -> Shape:
    return shape_of_config(Checkpoint("x", PUBLISHED[name].config, {}, index or {}))


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
    found = shape_of_config(Checkpoint("x", told | {"tie_word_embeddings": True}, {}, {}))
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
    found = shape_of_config(Checkpoint("x", table | {"intermediate_size": 96} | told, {}, {}))
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
    assert (shape_of_config(Checkpoint("x", told, {}, index)).head_bytes > 0) == head


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
        shape_of_config(Checkpoint("x", {**PUBLISHED["qwen3-8b"].config, **changed}, {}, {}))
    assert entry in str(caught.value)


@pytest.mark.parametrize("total", [float("inf"), float("nan"), -1, 0, True, "16 GB", 1, None, 1e300])
def test_a_total_that_cannot_be_changes_nothing_or_little(total: object) -> None:
    found = estimate("qwen3-8b", {"metadata": {"total_size": total}})
    assert found.model_copy(update={"weights_source": "config"}) == estimate("qwen3-8b")


def test_a_folder_of_two_small_files_has_a_shape(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED["qwen3-8b"].config))
    index = {"metadata": {"total_size": 16_381_470_720}, "weight_map": {"lm_head.weight": "1.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert not read_checkpoint(tmp_path).tensors
    assert total_bytes(shape(Weights("x", str(tmp_path), None))) == pytest.approx(16_381_470_720, abs=99)
