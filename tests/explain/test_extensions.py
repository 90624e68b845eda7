"""The compiled extension that failed is the innermost one before the error."""

import pytest

from medley.explain.extensions import find_extension
from tests.explain.test_explain import of


@pytest.mark.parametrize(
    ("before", "said", "expected"),
    [
        (
            ["torch.ops._C.gemm(", "x = torch.ops._vllm_fa2_C.varlen_fwd("],
            "odd",
            "_vllm_fa2_C (varlen_fwd)",
        ),
        (["out = flash_attn_2_cuda.varlen_fwd("], "odd", "flash_attn_2_cuda (varlen_fwd)"),
        ([], "CUDA error (/w/vllm-flash-attn-src/hopper/x.h:206): no kernel image", "_vllm_fa3_C"),
        (["torch.ops.vllm.unified_attention(", "torch.ops.aten.mm("], "odd", None),
        (["torch.ops._C.gemm("] + ["x"] * 20, "odd", None),
    ],
)
def test_it_is_named(before: list[str], said: str, expected: str | None) -> None:
    assert find_extension(said, before) == expected


def test_a_kernel_of_the_language_model_names_its_extension_too() -> None:
    log = (
        '  File "/v/site-packages/vllm/v1/attention/backends/flash_attn.py", line 909, in forward\n'
        "    out, softmax_lse = torch.ops._vllm_fa2_C.varlen_fwd(\n"
        "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device\n"
    )
    (found,) = of(log).problems
    assert found.match.failure.name == "no-kernel-image"
    assert "_vllm_fa2_C (varlen_fwd)" in found.problem().cause
    assert "--attention-backend TRITON_ATTN" in found.problem().fix
