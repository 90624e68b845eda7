"""Find which error of CUDA a line reports: by its name, its words, or its number."""

import re
from collections.abc import Sequence

from medley.explain.patterns import CudaError

# NCCL's "Cuda failure 205", cuDNN's "err 715 != CUDA_SUCCESS", a kernel's "CUDA error (719)".
_CODE = re.compile(
    r"(?:\berr(?:or)?(?: code)?[:= ]{1,3}|\b[Ff]ailure |CUDA [Ee]rror[: ]{1,2}\(?|cudaError_t ?\(?)"
    r"(\d{1,3})\b"
)


def read_cuda_error(text: str, errors: Sequence[CudaError]) -> CudaError | None:
    """Return the error that a line reports; the longest words come first, because some contain others."""
    for error in errors:
        if re.search(rf"\b(?:{error.name}|{error.driver or error.name})\b", text):
            return error
    lower = text.lower()
    worded = [error for error in errors if error.text in lower]
    if worded:
        return max(worded, key=lambda error: len(error.text))
    codes = {int(code) for code in _CODE.findall(text)}
    return next((error for error in errors if error.code in codes), None)
