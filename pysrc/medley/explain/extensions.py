"""Name the compiled extension of Python in which a call on the GPU failed."""

import re
from collections.abc import Sequence

_NEAR_LINES = 14
"""Lines before an error that may have its call."""
# These are operators that Python defines, or PyTorch's own.
_CALL = re.compile(
    r"\btorch\.ops\.(?!vllm\b|sglang\b|aten\b|prims\b|_?higher_order)(?P<name>\w+)\.(?P<call>\w+)"
)
_MODULE = re.compile(
    r"\b(?P<name>_vllm_fa[234]_C|flash_attn_\w*cuda|_flashmla\w*_C|_moe_C|sgl_kernel|_qutlass_C|deep_ep_cpp|"
    r"selective_scan_cuda|causal_conv1d_cuda)\.(?P<call>\w+)"
)
_SOURCES = (
    ("vllm-flash-attn-src/hopper", "_vllm_fa3_C"),
    ("vllm-flash-attn-src", "_vllm_fa2_C"),
    ("flash-attention/csrc", "flash_attn_2_cuda"),
)


def find_extension(message: str, before: Sequence[str]) -> str | None:
    """Return the extension and the function of the innermost call, such as _vllm_fa2_C (varlen_fwd)."""
    if source := next((name for path, name in _SOURCES if path in message), None):
        return source
    for text in reversed([*before[-_NEAR_LINES:], message]):
        if call := _CALL.search(text) or _MODULE.search(text):
            return f"{call['name']} ({call['call']})"
    return None
