"""What stands before an error: the component of its traceback, and warnings that repeat."""

import pytest

from medley.explain import patterns
from tests.explain.test_explain import names, of

ERROR = "(EngineCore pid=9) ERROR 11-22 08:01:33 [core.py:1109] "
SITE = "/opt/venv/lib/python3.12/site-packages/"


def traced(*calls: str, error: str = "FooError: odd") -> str:
    frames = "".join(f'{ERROR}  File "{SITE}{call}", line 9, in run\n{ERROR}    x()\n' for call in calls)
    return f"{ERROR}Traceback (most recent call last):\n{frames}{ERROR}{error}\n"


@pytest.mark.parametrize(
    ("calls", "component", "flag"),
    [
        (["vllm/v1/worker/gpu_worker.py", "flashinfer/sampling.py"], "FlashInfer's sampler", "SAMPLER=0"),
        (["flashinfer/fused_moe/core.py", "flashinfer/jit/core.py"], "FlashInfer's experts", "--moe-backend"),
        (["vllm/utils/deep_gemm.py", "torch/_ops.py"], "DeepGEMM", "VLLM_USE_DEEP_GEMM=0"),
        (["sglang/srt/speculative/eagle_worker.py"], "speculative decoding", "--speculative-algorithm"),
        (["vllm/layers/quantization/mxfp4.py", "flashinfer/utils.py"], "FlashInfer", "--moe-backend"),
        (
            ["vllm/compilation/cuda_graph.py", "vllm/v1/attention/backends/triton_attn.py"],
            "Triton",
            "FLASHINFER",
        ),
    ],
)
def test_an_unknown_error_names_the_component_and_its_alternative(
    calls: list[str], component: str, flag: str
) -> None:
    (found,) = of(traced(*calls)).problems
    assert names(of(traced(*calls))) == ["unknown-error"]
    assert component in found.problem().what
    assert flag in found.problem().fix
    assert found.confidence == "low"


def test_a_draft_is_named_beside_the_component_inside_it() -> None:
    (found,) = of(traced("vllm/v1/spec_decode/eagle.py", "vllm/v1/attention/flash_attn.py")).problems
    assert "FlashAttention, inside speculative decoding" in found.problem().what
    assert "--attention-backend TRITON_ATTN" in found.problem().fix
    assert "without --speculative-config" in found.problem().fix


def test_the_layer_whose_kernel_is_compiled_is_named_instead_of_the_compiler() -> None:
    (found,) = of(traced("vllm/model_executor/layers/fused_moe/moe.py", "triton/runtime/jit.py")).problems
    assert "the experts (MoE)" in found.problem().what
    (alone,) = of(traced("triton/runtime/jit.py")).problems
    assert "Triton's compiler" in alone.problem().what


def test_the_innermost_call_of_the_engine_is_named() -> None:
    text = traced("vllm/model_executor/layers/linear.py", "torch/nn/modules/module.py")
    (found,) = of(text).problems
    assert "vllm/model_executor/layers/linear.py, run" in found.problem().cause


def test_calls_of_another_rank_are_not_those_of_the_error() -> None:
    other = f'(Worker_TP1 pid=3)   File "{SITE}flashinfer/sampling.py", line 9, in run\n'
    (found,) = of(other + "(Worker_TP0 pid=2) FooError: odd\n").problems
    assert "FlashInfer" not in found.problem().what


def test_a_warning_that_repeats_before_an_error_is_named() -> None:
    (found,) = of("the gemm cannot use tile 7\n" * 3 + traced("x/y.py")).problems
    assert "the gemm cannot use tile 7 (3 times)" in found.problem().cause


def test_the_report_of_a_worker_s_error_is_its_error() -> None:
    """Its calls are those of the process that reports it, and so they are not named."""
    report = "RuntimeError: Worker failed with error 'kv_size was 8', please check the stack trace above"
    (found,) = of(traced("flashinfer/sampling.py", error=report)).problems
    assert found.problem().cause == "its message: RuntimeError: kv_size was 8"
    assert "FlashInfer" not in found.problem().what


def test_a_worker_s_own_traceback_comes_before_its_report() -> None:
    report = f"{ERROR}RuntimeError: Worker failed with error 'odd', please check the stack trace above\n"
    (found,) = of(report + traced("x/y.py")).problems
    assert found.match.line.text == "FooError: odd"


def test_a_known_failure_in_such_a_report_is_named() -> None:
    inner = "CUDA out of memory. Tried to allocate 2.00 GiB."
    assert names(of(f"{ERROR}RuntimeError: Worker failed with error '{inner}', please check\n")) == [
        "cuda-out-of-memory"
    ]


def test_a_warning_of_nccl_before_an_error_is_named() -> None:
    """NCCL names a GPU where the engine names a rank."""
    warning = "spark-1:811:990 [0] proxy.cc:1716 NCCL WARN Error encountered progressing operation=Connect\n"
    (found,) = of(f"{warning}[2026-08-27 08:12:05 TP1] RuntimeError: NCCL error: internal error\n").problems
    assert found.match.failure.name == "nccl-lost"
    assert "proxy.cc:1716 Error encountered progressing operation=Connect" in found.problem().cause


def test_a_missing_kernel_s_name_is_no_component() -> None:
    """An import failed, so no flag chooses another kernel."""
    (found,) = of(traced("torch/library.py", error="FooError: marlin_gemm is unknown")).problems
    assert "Marlin" not in found.problem().what


def test_a_warning_counts_only_before_the_error_that_it_explains() -> None:
    warning = "This kernel only supports sm100f.\n"
    fails = f"{ERROR}RuntimeError: CUDA error: unspecified launch failure\n"
    assert names(of(warning + fails)) == ["kernel-sm100-family"]
    assert names(of(fails + warning)) == ["cuda-failed"]
    assert names(of(warning + traced("x/y.py"))) == ["unknown-error"]


def test_the_version_and_what_the_engine_switched_on_are_named() -> None:
    start = (
        "(APIServer pid=1) INFO 11-22 08:01:33 [utils.py:344] vLLM API server version 0.33.0\n"
        "INFO 11-22 08:01:33 [x.py:1] Odd fusion optimization enabled.\n"
    )
    (found,) = of(start + traced("vllm/model_executor/layers/linear.py")).problems
    assert "this is vLLM 0.33.0" in found.problem().cause
    assert "switched on by itself: Odd fusion optimization enabled" in found.problem().cause


def test_sizes_of_which_one_is_twice_the_other_are_explained() -> None:
    def cause(one: int, other: int) -> str:
        error = f"RuntimeError: The size of tensor a ({one}) must match the size of tensor b ({other}) at 1"
        (found,) = of(traced("vllm/model_executor/model_loader/base.py", error=error)).problems
        return found.problem().cause

    assert "6144 is twice 3072" in cause(3072, 6144)
    assert "twice" not in cause(3072, 6143)


def test_each_component_has_a_pattern_that_compiles_and_precise_ones_come_first() -> None:
    components = patterns.load(user=False).components
    assert len({each.name for each in components}) == len(components)
    for path, name in (
        ("flashinfer/gemm/gemm_base.py", "FlashInfer's matrix multiplication"),
        ("vllm/model_executor/layers/fused_moe/layer.py", "the experts (MoE)"),
        ("vllm/model_executor/models/qwen3.py", "the model's code"),
    ):
        assert next(each.name for each in components if each.expression.search(path)) == name


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("6144, 2560", "6144, 5120", "5120 is twice 2560"),
        ("6144, 2560", "6144, 2561", None),
        ("12, 2560", "6, 5120", None),
        ("7", "6, 5120", None),
    ],
)
def test_a_weight_of_half_the_size_is_of_another_quantization(
    one: str, other: str, expected: str | None
) -> None:
    error = f"Tried to load weights of size torch.Size([{one}])to a parameter of size torch.Size([{other}])"
    code = "    assert param_data.shape == loaded_weight.shape\n"
    (found,) = of(
        f'  File "/v/vllm/x.py", line 1, in weight_loader\n{code}AssertionError: {error}\n'
    ).problems
    assert error in found.problem().cause
    assert ("is twice" in found.problem().cause) is bool(expected)
    assert (expected or "") in found.problem().cause


def test_advice_in_a_further_line_of_the_message_is_named() -> None:
    more = f"{ERROR}Piecewise graphs are on by default.\n{ERROR}To work around this error, add --odd-flag.\n"
    (found,) = of(traced("vllm/x.py", error="FooError: graph failed\n" + more)).problems
    assert "To work around this error, add --odd-flag" in found.problem().fix
    other = "(APIServer pid=1) INFO 11-22 08:01:33 [x.py:1] To work around this error, add --odd-flag.\n"
    (alone,) = of(traced("vllm/x.py") + other).problems
    assert "--odd-flag" not in alone.problem().fix


@pytest.mark.parametrize(
    "call",
    [
        "sglang/srt/managers/scheduler_components/batch_result_processor.py",
        "vllm/model_executor/layers/logits_processor.py",
        "vllm/v1/engine/output_processor.py",
    ],
)
def test_a_processor_of_results_is_no_encoder_of_images(call: str) -> None:
    (failure,) = of(traced(call)).problems
    assert "vision" not in failure.problem().what
    assert "mm-encoder" not in failure.problem().fix


def test_a_processor_of_images_is_one() -> None:
    (failure,) = of(traced("vllm/transformers_utils/processor.py")).problems
    assert "the vision or audio encoder" in failure.problem().what
