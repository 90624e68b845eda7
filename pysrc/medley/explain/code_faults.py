"""Describe errors that are probably a defect of the engine's version, and sizes that do not match."""

import re

_ENGINE_PACKAGE = re.compile(
    r"(?:vllm|sglang|tensorrt_llm|flashinfer|sgl_kernel|lmcache|transformers|compressed_tensors)(?=/)"
)
# Errors of Python's own that correct code does not raise, whatever the model and the flags are.
_CODE_ERROR = re.compile(
    r"(?:Attribute|Type|Name|UnboundLocal|Import|Recursion|Key|Index)Error\b|AssertionError(?:: assert\b|$)|"
    # Sizes of two of its own tensors that do not fit
    r"RuntimeError: (?:mat1 and mat2 shapes|a and b must have same reduction dim|The size of tensor a \(|"
    r"The expanded size of the tensor|shape '\[|Sizes of tensors must match|split_with_sizes expects|"
    r"output with shape)"
)
# Code that keeps account of requests and of the cache, whose assertions no setting explains.
_BOOKKEEPING = re.compile(r"sglang/srt/(?:mem_cache|managers)/|vllm/v1/core/")
_USAGE_ERROR = re.compile(r"cannot open shared object|undefined symbol|must be str, bytes or os.PathLike")
_SIZE_PAIR = re.compile(r"(?:tensor a|size|length) \((\d+)\).{0,60}?(?:tensor b|size) \((\d+)\)")
_TENSOR_SHAPE = re.compile(r"torch\.Size\(\[(\d+(?:, \d+)*)\]\)")
_COMPARED_SHAPES = 2
_MAX_LINE_CHARS = 400


def explain_version_fault(text: str, last_call: str | None) -> str | None:
    """Return what to do about an error of Python in a call of the engine's own package."""
    own = last_call and _ENGINE_PACKAGE.match(last_call)
    if not last_call or not own or _USAGE_ERROR.search(text):
        return None
    is_account = text.startswith("AssertionError: ") and _BOOKKEEPING.match(last_call)
    if not is_account and not _CODE_ERROR.match(text):
        return None
    return (
        f"such an error in the code of {own[0]} itself is mostly a defect of this version, for a combination "
        "of flags, or a package that does not match it: try a newer version, or the one before "
        "(medley env build, medley serve MODEL --image IMAGE)"
    )


def explain_halved_size(text: str) -> str | None:
    """Return what it shows if one size of an error of shapes is twice the other."""
    sizes = _SIZE_PAIR.search(text)
    one, other = sorted(map(int, sizes.groups())) if sizes else _find_unlike_sizes(text)
    if one == 0 or other != 2 * one:
        return None
    return (
        f"{other} is twice {one}, as where one side has two 4-bit values in a byte and the other one value, "
        "or where two parts are fused: this tensor and the engine's layer are of different quantization"
    )


def _find_unlike_sizes(text: str) -> tuple[int, int]:
    """Return the only two sizes in which two shapes of a line differ, the smaller one first, else 0 and 1."""
    shapes = [
        [int(size) for size in shape.split(",")] for shape in _TENSOR_SHAPE.findall(text[:_MAX_LINE_CHARS])
    ]
    if len(shapes) != _COMPARED_SHAPES or len(shapes[0]) != len(shapes[1]):
        return 0, 1
    unlike = [(min(pair), max(pair)) for pair in zip(*shapes, strict=True) if pair[0] != pair[1]]
    return unlike[0] if len(unlike) == 1 else (0, 1)
