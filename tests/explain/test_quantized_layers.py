"""A tensor whose name says that its layer is quantized, and the engine's layer is not."""

import pytest

from tests.explain.test_explain import names, of

LISTED = " The available parameters belonging to {module} (Linear) are: {{'{module}.weight'}}"


@pytest.mark.parametrize("part", ["input_scale", "weight_scale_2", "qweight", "g_idx", "weight_packed"])
@pytest.mark.parametrize("module", ["lm_head", "model.layers.0.mlp.gate"])
def test_the_layer_is_named_and_no_download_is_advised(module: str, part: str) -> None:
    error = f"ValueError: There is no module or parameter named '{module}.{part}' in Glm4MoeForCausalLM."
    (report,) = of(error + LISTED.format(module=module) + "\n").problems
    assert report.match.failure.name == "quantized-layer-refused"
    problem = report.problem()
    assert f"{module} quantized" in problem.what
    assert f"only {module}.weight" in problem.cause
    assert "medley pull" not in problem.fix
    assert "--tp" not in problem.fix


def test_other_engines_name_it_in_a_key() -> None:
    load = '  File "/v/site-packages/sglang/srt/models/qwen3_moe.py", line 1011, in load_weights\n'
    assert names(of(f"{load}KeyError: 'model.layers.3.self_attn.qkv_proj.weight_scale_2'\n")) == [
        "quantized-layer-refused"
    ]


@pytest.mark.parametrize("part", ["weight", "bias", "k_conv1d"])
def test_another_tensor_is_another_failure(part: str) -> None:
    error = f"ValueError: There is no module or parameter named 'lm_head.{part}' in Glm4MoeForCausalLM.\n"
    assert "quantized-layer-refused" not in names(of(error))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("fused_moe/core.py", "get_trtllm_moe_sm100_module"),
        ("decode.py", "get_trtllm_gen_fmha_module"),
    ],
)
def test_kernels_of_tensorrt_llm_are_not_for_other_gpus(function: str, expected: str) -> None:
    call = f'  File "/v/site-packages/flashinfer/{function}", line 855, in {expected}\n'
    (report,) = of(
        f"{call}RuntimeError: No supported CUDA architectures found for major versions [10].\n"
    ).problems
    assert report.match.failure.name == "flashinfer-trtllm-gpu"
    assert "marlin" in report.problem().fix.partition("flashinfer_cutlass")[0]
    assert "TensorRT-LLM" in report.problem().what
    assert "export CUDA_HOME" not in report.problem().fix
