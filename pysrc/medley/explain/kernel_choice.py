"""Name the kernels that an engine chose, and how to choose others of another family."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from medley.explain.engine_advice import keep_engine_parts

_FAMILIES = ("cutlass", "flashinfer", "deep_gemm", "deepgemm", "marlin", "triton", "trtllm")
_OTHERS = ("triton", "marlin", "cutlass")
"""Kernels that each engine has, the one with the widest support of GPUs first."""
_ANY_KERNEL = (
    "the calls of its traceback name the part: attention: [vLLM: --attention-backend TRITON_ATTN]"
    "[SGLang: --attention-backend triton]; experts: [vLLM: --moe-backend triton]"
    "[SGLang: --moe-runner-backend triton]; "
    "linear layers: [vLLM: --linear-backend marlin, or triton][SGLang: --fp8-gemm-backend triton]; "
    "sampling: [vLLM: VLLM_USE_FLASHINFER_SAMPLER=0][SGLang: --sampling-backend pytorch]"
)
_EXPERTS = re.compile(r"(?i)moe|expert")


class KernelChoice(NamedTuple):
    """The kernel that the log names, how to switch it off, and the choices where no call names a part."""

    chosen_kernel: str | None = None
    kernel_fix: str | None = None
    any_kernel: str | None = None


def find_kernel(
    figures: Mapping[str, str], component: str | None, engine: str | None, error: str
) -> KernelChoice:
    """Return the kernel of the part that failed; without a part, of linear layers before experts."""
    kinds: tuple[str, ...] = ("linear_kernel", "moe_kernel")
    if _EXPERTS.search(f"{component} {error}"):
        kinds = ("moe_kernel",)
    elif component and not re.search(r"(?i)linear|matrix|cutlass|marlin|deepgemm|quantization", component):
        kinds = ()
    kind = next((each for each in kinds if each in figures), None)
    any_kernel = None if component else keep_engine_parts(_ANY_KERNEL, engine)
    if kind is None:
        return KernelChoice(any_kernel=any_kernel)
    name = figures[kind]
    layer = figures.get("linear_layer") if kind == "linear_kernel" else None
    return KernelChoice(
        f"{name} for {layer}" if layer else name, _describe_fix(name, is_moe=kind == "moe_kernel"), any_kernel
    )


def _describe_fix(name: str, *, is_moe: bool) -> str:
    """Return how to take a kernel of another family."""
    lower = name.lower()
    family = next((each for each in _FAMILIES if each in lower), "")
    others = [each for each in _OTHERS if each != family and each not in lower]
    flag = "--moe-backend" if is_moe else "--linear-backend"
    by_flag = f"medley serve MODEL -- {flag} {', or '.join(others[:2])}"
    if is_moe or not name.endswith("Kernel"):
        return by_flag
    return f"switch that kernel off: VLLM_DISABLED_KERNELS={name} medley serve MODEL; or {by_flag}"
