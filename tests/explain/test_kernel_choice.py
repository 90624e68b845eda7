"""The part that failed chooses the fix, and a failed kernel's family is not offered again."""

import pytest

from medley.explain.kernel_choice import find_kernel
from tests.explain.test_explain import of

CALL = '  File "/v/site-packages/{file}", line 10, in {function}\n'
NO_IMAGE = (
    "RuntimeError: RMSNorm failed with error code no kernel image is available for execution on the device\n"
)
TOO_LARGE = (
    "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456, "
    "Hardware limit: 101376.\n"
)


def explained_fix(*calls: tuple[str, str], error: str) -> str:
    log = "".join(CALL.format(file=file, function=function) for file, function in calls)
    (found, *_) = of(f"Traceback (most recent call last):\n{log}{error}").problems
    return found.problem().fix


@pytest.mark.parametrize(
    ("file", "function", "present", "absent"),
    [
        (
            "vllm/model_executor/layers/fused_moe/fused_moe.py",
            "invoke_fused_moe_kernel",
            "benchmark_moe.py",
            "--attention-backend",
        ),
        (
            "sglang/srt/layers/moe/fused_moe_triton/fused_moe.py",
            "fused_experts_impl",
            "tuning_fused_moe_triton.py",
            "--moe-runner-backend triton",
        ),
        ("vllm/v1/attention/ops/triton_unified_attention.py", "unified_attention", "FLASHINFER", "--moe"),
        ("vllm/model_executor/layers/mamba/ops/ssd_bmm.py", "_bmm_chunk_fwd", "GDN", "--moe-backend"),
        (
            "sglang/srt/layers/quantization/fp8_kernel.py",
            "w8a8_block_fp8_matmul",
            "block_wise",
            "--attention",
        ),
    ],
)
def test_a_tile_that_is_too_large_leads_to_its_part(
    file: str, function: str, present: str, absent: str
) -> None:
    fix = explained_fix((file, function), ("triton/runtime/jit.py", "run"), error=TOO_LARGE)
    assert present in fix
    assert absent not in fix


def test_without_calls_each_kind_of_kernel_is_named() -> None:
    fix = explained_fix(error=TOO_LARGE)
    assert "attention:" in fix
    assert "experts:" in fix


@pytest.mark.parametrize(
    "calls",
    [
        [
            ("sglang/srt/model_executor/cuda_graph_runner.py", "capture"),
            ("sgl_kernel/elementwise.py", "rmsnorm"),
        ],
        [("sglang/srt/model_executor/cuda_graph_runner.py", "capture")],
        [("vllm/compilation/backends.py", "__call__")],
    ],
)
def test_eager_mode_does_not_bring_a_missing_kernel(calls: list[tuple[str, str]]) -> None:
    fix = explained_fix(*calls, error=NO_IMAGE)
    assert "--disable-cuda-graph" not in fix
    assert "--enforce-eager" not in fix
    assert "medley env build" in fix


@pytest.mark.parametrize(
    ("name", "component", "expected", "absent"),
    [
        (
            "CutlassOddLinearKernel",
            None,
            "VLLM_DISABLED_KERNELS=CutlassOddLinearKernel",
            "marlin, or cutlass",
        ),
        ("MarlinOddLinearKernel", "Marlin", "--linear-backend triton, or cutlass", "or marlin"),
    ],
)
def test_the_family_of_the_failed_kernel_is_not_offered(
    name: str, component: str | None, expected: str, absent: str
) -> None:
    choice = find_kernel({"linear_kernel": name}, component, None, "")
    assert choice.chosen_kernel == name
    assert expected in (choice.kernel_fix or "")
    assert absent not in (choice.kernel_fix or "")
    assert find_kernel({"linear_kernel": name}, "FlashAttention", None, "").chosen_kernel is None


def test_a_kernel_that_only_another_gpu_has_is_named() -> None:
    log = (
        "(EngineCore pid=9) INFO 11-21 08:01:33 [x.py:1] Selected CutlassOddKernel for OddLinearMethod\n"
        "This kernel only supports sm120.\nThis kernel only supports sm120.\n"
        "torch.AcceleratorError: CUDA error: unspecified launch failure\n"
    )
    (found, *_) = of(log).problems
    assert "CutlassOddKernel for OddLinearMethod" in found.problem().cause
    assert "VLLM_DISABLED_KERNELS=CutlassOddKernel" in found.problem().fix
    assert "cutlass, marlin" not in found.problem().fix
