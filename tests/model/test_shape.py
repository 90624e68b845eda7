import contextlib
import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medley import config
from medley.errors import Problem
from medley.model import demo
from medley.model.checkpoint import Checkpoint, Tensor
from medley.model.resolve import Weights, resolve_weights
from medley.model.shape import compute_feed_forward_width, compute_shape, find_shape
from medley.schema import DemoSpec, Model, Shape
from tests.model.checkpoints import checkpoint
from tests.model.published import PUBLISHED
from tests.model.weight_formats import Headers, bf16, nvfp4, plain
from tests.problems import raises_problem

MADE = DemoSpec(
    layers=2,
    hidden=64,
    heads=2,
    kv_heads=1,
    head_dim=16,
    intermediate=64,
    vocabulary=2048,
    context=128,
    seed=0,
)


def test_the_table_comes_first(tmp_path: Path) -> None:
    known = PUBLISHED["qwen3-8b"]
    found = find_shape(resolve_weights("Qwen/Qwen3-8B", config.load_models(), tmp_path))
    assert found.layers == known.config["num_hidden_layers"]


def test_the_demo_has_the_shape_of_what_is_written(tmp_path: Path) -> None:
    model = config.load_models()["demo"]
    assert model.made is not None
    written = demo.make_model(model.made, tmp_path / "demo")
    found = find_shape(resolve_weights("demo", config.load_models(), tmp_path / "cache"))
    assert found == find_shape(resolve_weights(str(written), {}, tmp_path))
    assert not (tmp_path / "cache").exists()
    assert found.parameters == sum(tensor_size(size) for size in demo.list_tensor_shapes(model.made).values())


def tensor_size(size: tuple[int, ...]) -> int:
    return Tensor("U8", size, 0).elements


@pytest.mark.parametrize(
    ("broken", "file", "cause"),
    [
        pytest.param({"config.json": "{"}, "config.json", "line 1 column 2", id="config is no JSON"),
        pytest.param({"config.json": "[" * 100_000}, "config.json", "recursion", id="a deep config"),
        pytest.param({"config.json": "[]"}, "config.json", "something else", id="config is a list"),
        pytest.param(
            {"model.safetensors.index.json": "{}"},
            "model.safetensors.index.json",
            "'weight_map'",
            id="an empty index",
        ),
        pytest.param(
            {"model.safetensors.index.json": json.dumps({"weight_map": {"a": "a.safetensors"}})},
            "",
            "1 of 1 files are missing: a.safetensors",
            id="a file is missing",
        ),
        pytest.param({"config.json": None}, "config.json", "No such file", id="no config"),
        pytest.param(
            {"model.safetensors": None, "pytorch_model.bin": ""},
            "",
            "*.safetensors",
            id="weights of another form",
        ),
    ],
)
def test_a_broken_folder_is_a_problem(
    tmp_path: Path, broken: dict[str, str | None], file: str, cause: str
) -> None:
    demo.write_model(MADE, tmp_path)
    for name, text in broken.items():
        (tmp_path / name).write_text(text) if text is not None else (tmp_path / name).unlink()
    with raises_problem(f"{tmp_path / file} ", cause=cause):
        find_shape(Weights("x", str(tmp_path), None))


def test_several_files_are_one_model(tmp_path: Path) -> None:
    demo.write_model(MADE, tmp_path)
    whole = find_shape(Weights("x", str(tmp_path), Model(title="x", repository="a/b")))
    (tmp_path / "model.safetensors").rename(tmp_path / "part-1.safetensors")
    (tmp_path / "consolidated.safetensors").touch()  # would be a broken header
    assert find_shape(Weights("x", str(tmp_path), None)) == whole
    index = {"weight_map": dict.fromkeys(demo.list_tensor_shapes(MADE), "part-1.safetensors")}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "other.safetensors").touch()
    assert find_shape(Weights("x", str(tmp_path), None)) == whole


SMALL: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 100,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}
HYBRID: Mapping[str, Any] = {
    **{f"linear_num_{kind}_heads": 2 for kind in ("key", "value")},
    **{f"linear_{kind}_head_dim": 8 for kind in ("key", "value")},
    "linear_conv_kernel_dim": 4,
}


def of(tensors: Mapping[str, Tensor] | None = None, **changed: Any) -> Shape:
    table = {name: value for name, value in (SMALL | changed).items() if value is not None}
    held = checkpoint(SMALL).tensors if tensors is None else tensors
    return compute_shape(Checkpoint("x", table, held))


def renamed(old: str, new: str) -> dict[str, Tensor]:
    return {name.replace(old, new): tensor for name, tensor in checkpoint(SMALL).tensors.items()}


def test_a_plain_model() -> None:
    found = of()
    attention, wide = 64 * (64 + 32 + 32 + 64), 3 * 64 * 128
    assert found.layer_bytes == 2 * (attention + wide + 2 * 64) == found.active_layer_bytes
    assert (found.embedding_bytes, found.head_bytes) == (2 * 100 * 64 + 2 * 64, 2 * 100 * 64)
    assert 2 * found.parameters == 2 * found.layer_bytes + found.embedding_bytes + found.head_bytes
    assert (found.heads, found.kv_heads, found.head_dim, found.attention_layers) == (4, 2, 16, None)


@pytest.mark.parametrize(
    "prefix", ["language_model.model.", "model.language_model.", "backbone.", "transformer."]
)
def test_a_prefix_changes_nothing(prefix: str) -> None:
    assert of(renamed("model.", prefix)) == of()


def test_one_embedding_for_both_ends() -> None:
    tied = {name: tensor for name, tensor in checkpoint(SMALL).tensors.items() if "lm_head" not in name}
    assert of(tied).head_bytes == 0
    assert of(tie_word_embeddings=True).head_bytes == 0, "a head that is stored and not used"


def test_experts_by_number_and_all_in_one_are_the_same() -> None:
    told = {"num_experts": 4, "num_experts_per_tok": 1, "moe_intermediate_size": 32}
    dense = checkpoint(SMALL).tensors
    one, many = dict(dense), dict(dense)
    for layer in range(2):
        at = f"model.layers.{layer}.mlp.experts"
        one |= plain(f"{at}.down_proj", 4, 64, 32)
        for expert in range(4):
            many |= bf16(f"{at}.{expert}.down_proj", 64, 32)
    assert of(one, **told) == of(many, **told)
    found = of(many, **told)
    assert (found.expert_bytes, found.experts_per_token) == (2 * 64 * 32, 1)
    assert found.layer_bytes - found.active_layer_bytes == 3 * found.expert_bytes
    assert found.parameters - found.active_parameters == 2 * 3 * 64 * 32


def stacked(names: tuple[str, ...], at: str = "moe") -> Headers:
    """Routed experts of both layers, each matrix stacked for all four."""
    found: Headers = {}
    for layer in range(2):
        for name in names:
            found |= plain(f"model.layers.{layer}.{at}.{name}.weight", 4, 64, 32)
    return found


def test_a_stack_of_experts_needs_no_name() -> None:
    """Granite MoE's input_linear, Step 3's moe.gate_proj; the router's bias is not the experts'."""
    told = {"num_experts": 4, "num_experts_per_tok": 1}
    dense = dict(checkpoint(SMALL).tensors)
    router = plain("model.layers.0.mlp.experts.e_score_correction_bias", 4, dtype="F32")
    router |= plain("model.layers.0.mlp.conv1d.weight", 4, 1, 4)
    found = of(dense | router | stacked(("input_linear", "output_linear")), **told)
    assert (found.experts, found.expert_bytes) == (4, 2 * 2 * 64 * 32)


@pytest.mark.parametrize(
    "name",
    ["head", "output", "language_model.output", "transformer.output_layer", "embed_out", "llm.unembed"],
)
def test_a_head_of_another_name(name: str) -> None:
    """DeepSeek V4, InternLM2 alone and in InternVL, ChatGLM, GPT-NeoX, Inkling."""
    assert of(renamed("lm_head", name)) == of()


@pytest.mark.parametrize("at", ["transformer.encoder.layers", "language_model.model.encoder.layers"])
def test_a_decoder_called_encoder(at: str) -> None:
    """ChatGLM and Qianfan-OCR."""
    assert of(renamed("model.layers", at)) == of()


def test_speech_of_an_omni_model_is_not_loaded() -> None:
    speech = bf16("talker.model.layers.0.mlp", 8, 8) | bf16("talker.codec_head", 8, 8)
    speech |= bf16("talker.code_predictor.lm_head.0", 8, 8) | bf16("token2wav.decoder.1", 8, 8)
    thinker = {f"thinker.{name}": tensor for name, tensor in checkpoint(SMALL).tensors.items()}
    assert of(thinker | speech) == of()


@pytest.mark.parametrize(("top", "part", "head"), [(False, True, 12800), (True, False, 0), (None, True, 0)])
def test_the_whole_says_whether_the_head_is_the_embedding(top: object, part: object, head: int) -> None:
    table = {"tie_word_embeddings": top, "text_config": SMALL | {"tie_word_embeddings": part}}
    assert compute_shape(Checkpoint("x", table, checkpoint(SMALL).tensors)).head_bytes == head


def test_dbrx_keeps_its_sizes_in_two_tables() -> None:
    table: dict[str, Any] = {"n_layers": 2, "d_model": 64, "n_heads": 4, "max_seq_len": 99, "vocab_size": 100}
    table |= {"attn_config": {"kv_n_heads": 2}, "ffn_config": {"moe_num_experts": 4, "moe_top_k": 2}}
    held = dict(checkpoint(SMALL).tensors) | stacked(("w1", "v1"), at="ffn.experts.mlp")
    found = compute_shape(Checkpoint("x", table, held))
    assert (found.heads, found.kv_heads, found.context) == (4, 2, 99)
    assert (found.experts, found.experts_per_token) == (4, 2)


def test_two_stacks_of_layers() -> None:
    """HRM counts the turns of its stacks as layers, and names layers by their number in a stack."""
    low, high = renamed("model.layers", "model.L.layers"), renamed("model.layers", "model.H.layers")
    found = of(low | high, num_hidden_layers=16, num_layers_per_stack=2)
    assert (found.layers, found.layer_bytes) == (2, 2 * of().layer_bytes)


@pytest.mark.parametrize(
    ("rope", "context"),
    [
        pytest.param(
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}, 8192, id="yarn"
        ),
        pytest.param(
            {"type": "yarn", "factor": 2, "original_max_position_embeddings": 2048}, 4096, id="the same"
        ),
        pytest.param(
            {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 2048}, 4096, id="no"
        ),
        pytest.param({"rope_type": "yarn", "factor": "x"}, 4096, id="no number"),
    ],
)
def test_yarn_counts_from_the_length_before_it(rope: dict[str, Any], context: int) -> None:
    assert of(rope_scaling=rope).context == context
    assert of(rope_parameters=rope).context == context


def test_a_context_that_is_not_given() -> None:
    """vLLM takes 2,048 (BLOOM, Mamba)."""
    assert of(max_position_embeddings=None).context == 2048


@pytest.mark.parametrize(
    ("told", "full", "windowed", "window"),
    [
        pytest.param({"sliding_window": 1024}, 0, 2, 1024, id="all of them"),
        pytest.param({"sliding_window": 4096}, 0, 2, 4096, id="a window as long as the context"),
        pytest.param({"sliding_window": 1024, "use_sliding_window": False}, None, 0, None, id="switched off"),
        pytest.param({"sliding_window": None}, None, 0, None, id="none"),
        pytest.param(
            {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]},
            1,
            1,
            8,
            id="a list",
        ),
        pytest.param({"attention_chunk_size": 8}, 0, 2, 8, id="every fourth is full"),
        pytest.param({"sliding_window": 8, "sliding_window_pattern": 2}, 1, 1, 8, id="every second is full"),
    ],
)
def test_windows(told: dict[str, Any], full: int | None, windowed: int, window: int | None) -> None:
    found = of(**told)
    assert (found.attention_layers, found.windowed_layers, found.window) == (full, windowed, window)


def test_a_recurrent_state() -> None:
    found = of(**HYBRID, full_attention_interval=2)
    assert found.attention_layers == 1
    assert found.state_bytes == (2 * 16 + 16) * 3 * 2 + 2 * 8 * 8 * 2
    whole = of(**HYBRID, layer_types=["linear_attention"] * 2, mamba_ssm_dtype="float32")
    assert (whole.attention_layers, whole.state_bytes) == (0, 2 * (48 * 3 * 2 + 2 * 8 * 8 * 4))


def test_layers_that_are_only_listed() -> None:
    found = of(num_hidden_layers=None, layers_block_type=["attention", "moe"])
    assert (found.layers, found.attention_layers) == (2, 1)
    assert of(num_hidden_layers=None, hybrid_override_pattern="*E") == found


@pytest.mark.parametrize(("more", "kept"), [({}, 2 * 24), ({"index_head_dim": 128}, 2 * 24 + 132)])
def test_latent_attention(more: dict[str, Any], kept: int) -> None:
    found = of(kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=16, **more)
    assert (found.kv_heads, found.head_dim, found.kv_bytes_per_token) == (1, 24, kept)


def test_a_format_that_only_the_weights_tell() -> None:
    held = checkpoint(SMALL, dense=nvfp4).tensors
    found = of(held)
    assert (found.weights, found.parameters) == ("nvfp4", of().parameters)


def test_what_lies_beside_and_what_guesses_ahead() -> None:
    more = bf16("model.visual.blocks.0.attn.qkv", 8, 8) | bf16("vision_tower.layers.7.mlp", 8, 8)
    draft = bf16("mtp.layers.0.mlp", 8, 8) | bf16("model.layers.2.mlp", 8, 8)
    found, plain_one = of(dict(checkpoint(SMALL).tensors) | more | draft), of()
    assert found.embedding_bytes == plain_one.embedding_bytes + 2 * 128
    assert (found.draft_bytes, found.layer_bytes) == (2 * 128, plain_one.layer_bytes)


@pytest.mark.parametrize(
    ("quantised", "format_"),
    [
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        ({"quant_method": "gptq", "bits": 4}, "int4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_algo": "FP8"}, "fp8"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}},
            },
            "nvfp4",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"a": {"weights": {"num_bits": 4, "type": "int"}}, "b": {"weights": None}},
            },
            "int4",
        ),
    ],
)
def test_how_weights_are_stored(quantised: dict[str, Any], format_: str) -> None:
    assert of(quantization_config=quantised).weights == format_


def test_the_width_is_that_of_config_not_of_the_bytes() -> None:
    """Gates and states of recurrent layers take bytes that no attention of this size has."""
    hybrid = of(**HYBRID, full_attention_interval=2)
    assert (hybrid.feed_forward, compute_feed_forward_width(hybrid)) == (128, 128)
    assert of(intermediate_size=None).feed_forward is None
    assert of(intermediate_size=[128, 256]).feed_forward is None


@pytest.mark.parametrize(
    ("quantised", "block"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 128),
        ({"quant_method": "fp8"}, None),
        ({"quant_method": "fbgemm_fp8"}, None),
        ({"quant_method": "gptq", "bits": 4, "group_size": 64}, 64),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, None),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "a": {"weights": {"num_bits": 8, "type": "float", "block_structure": [128, 128]}}
                },
            },
            128,
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"a": {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}},
            },
            None,
        ),
    ],
)
def test_which_weights_share_a_scale(quantised: dict[str, Any], block: int | None) -> None:
    assert of(quantization_config=quantised).block == block


@pytest.mark.parametrize(
    ("told", "name", "cause"),
    [
        pytest.param({"num_hidden_layers": None}, "num_hidden_layers", "missing", id="no layers"),
        pytest.param({"num_hidden_layers": 3}, "num_hidden_layers", "layer 2 is not", id="too few layers"),
        pytest.param({"num_hidden_layers": 10**9}, "num_hidden_layers", "name 2 layers", id="far too few"),
        pytest.param({"hidden_size": "64"}, "hidden_size", "'64'", id="a word for a number"),
        pytest.param({"vocab_size": True}, "vocab_size", "True", id="true for a number"),
        pytest.param({"vocab_size": 0}, "vocab_size", "from 1 on", id="nothing"),
        pytest.param({"num_attention_heads": 10**30}, "num_attention_heads", "whole number", id="too much"),
        pytest.param(
            {"num_attention_heads": 99}, "head_dim", "a whole number >= 1", id="more heads than width"
        ),
        pytest.param({"layer_types": ["full_attention"]}, "layer_types", "1 layers of 2", id="a short list"),
        pytest.param({"layer_types": ["odd"] * 2}, "layer_types", "'odd'", id="an unknown kind"),
        pytest.param({"block_configs": [{}]}, "block_configs", "does not know", id="layers of their own"),
        pytest.param({"layer_types": 3}, "layer_types", "no list", id="no list"),
        pytest.param({"hybrid_override_pattern": "M*"}, "mamba_num_heads", "mamba_n_heads", id="no state"),
        pytest.param({"text_config": 3}, "text_config", "no table", id="no table"),
        pytest.param(
            {"quantization_config": {"quant_method": "odd"}}, "quant_method", "'odd'", id="odd method"
        ),
        pytest.param({"kv_lora_rank": 8}, "qk_rope_head_dim", "missing", id="half of MLA"),
    ],
)
def test_a_config_that_does_not_tell_is_a_problem_that_names_the_entry(
    told: dict[str, Any], name: str, cause: str
) -> None:
    with pytest.raises(Problem) as caught:
        of(**told)
    assert f"'{name}'" in caught.value.what
    assert cause in caught.value.cause


def test_weights_without_an_embedding_or_with_unannounced_experts() -> None:
    held = dict(checkpoint(SMALL).tensors)
    with raises_problem("'num_experts'", cause="experts"):
        of(held | bf16("model.layers.0.mlp.experts.0.down_proj", 8, 8))
    with raises_problem("'vocab_size'", cause="embedding"):
        of({name: tensor for name, tensor in held.items() if ".layers." in name})
    with raises_problem("'num_hidden_layers'", cause=" 0 layers"):
        of({})


_KEYS = sorted(
    {*SMALL, *HYBRID, "layer_types", "hybrid_override_pattern", "quantization_config", "text_config"}
)
_KEYS += ["sliding_window", "use_sliding_window", "num_experts", "num_experts_per_tok", "kv_lora_rank"]
_LEAF = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
_SOME = _LEAF | st.lists(_LEAF, max_size=3)
_VALUE = _SOME | st.dictionaries(st.sampled_from(_KEYS), _SOME, max_size=2)
_HELD = checkpoint(SMALL).tensors


@settings(max_examples=40, deadline=None, database=None)
@given(st.dictionaries(st.sampled_from(_KEYS), _VALUE, max_size=4))
def test_nothing_but_a_problem_comes_of_any_config(changed: dict[str, Any]) -> None:
    """It names the entry, or there is a shape."""
    with contextlib.suppress(Problem):
        assert compute_shape(Checkpoint("x", SMALL | changed, _HELD)).layer_bytes > 0


@pytest.mark.parametrize(
    ("architecture", "one_stage", "majors"),
    [
        ("Qwen3ForCausalLM", (), ()),
        ("Mamba2ForCausalLM", ("vllm",), ()),
        ("DeepseekV41ForConditionalGeneration", ("vllm",), ("9", "10", "12")),
        ("GlmMoeDsaForCausalLM", (), ("9", "10", "12")),
    ],
)
def test_what_engines_cannot_do_follows_from_the_architecture(
    architecture: str, one_stage: tuple[str, ...], majors: tuple[str, ...]
) -> None:
    config = demo.build_config(MADE) | {"architectures": [architecture]}
    tensors = {
        name: Tensor("BF16", size, 2 * prod(size)) for name, size in demo.list_tensor_shapes(MADE).items()
    }
    found = compute_shape(Checkpoint("x", config, tensors))
    assert (found.one_stage, found.capabilities.vllm) == (one_stage, majors)


@pytest.mark.parametrize(
    ("tied", "one_stage"),
    [pytest.param(True, ("sglang",), id="the embedding"), pytest.param(False, (), id="its own")],
)
def test_sglang_needs_a_head_on_a_llamas_last_stage(tied: bool, one_stage: tuple[str, ...]) -> None:  # noqa: FBT001
    config = demo.build_config(MADE) | {"architectures": ["LlamaForCausalLM"], "tie_word_embeddings": tied}
    tensors = {
        name: Tensor("BF16", size, 2 * prod(size)) for name, size in demo.list_tensor_shapes(MADE).items()
    }
    assert compute_shape(Checkpoint("x", config, tensors)).one_stage == one_stage
