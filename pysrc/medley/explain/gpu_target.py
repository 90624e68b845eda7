"""Compare the architecture that a compiler refuses with that of the GPU in the log."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from medley.explain.lines import decode

_REFUSED = re.compile(r"\b(?:compute|sm)_(\d{2,3})([af]?)|CUDA arch \((\d{1,2}\.\d)([af]?)")
_SOURCE_FILE = re.compile(r"\s-c (?P<file>[\w./+-]{1,200}\.(?:cu|cc|cpp))\b")
_COMMAND_LINES = 4
_MAX_COMMAND_BYTES = 8000
_JETPACK_6, _ORIN = "36", 87
"""The L4T that runs on Orin only, and Orin's architecture."""
_FIRST_OF_CUDA_13 = 75
"""CUDA 13 dropped older architectures, so a refusal of one does not show that nvcc is old."""
_THOR = frozenset({101, 110})
"""Thor's numbers: of CUDA 12, and since CUDA 13."""


class TargetGpu(NamedTuple):
    """The GPU of the log, where the refused architecture is its own or another one's."""

    own_target: str | None = None
    other_target: str | None = None
    compiled_file: str | None = None
    """The source file whose build asks for the architecture."""


def compare_target(error: str, figures: Mapping[str, str], before: Sequence[bytes]) -> TargetGpu:
    """Return whose architecture the line `error` refuses; nothing if the log shows no GPU."""
    refused = _REFUSED.search(error)
    if refused is None:
        return TargetGpu()
    file = _find_source_file(before)
    number = int((refused[1] or refused[3]).replace(".", ""))
    gpu = _read_gpu(figures)
    if gpu is None:
        return TargetGpu(compiled_file=file)
    # Code of an architecture without "a" runs on later GPUs of its family too.
    is_family = number // 10 == gpu // 10 and "a" not in (refused[2], refused[4])
    if number == gpu or is_family or {number, gpu} == _THOR:
        return TargetGpu(f"sm_{gpu}" if number >= _FIRST_OF_CUDA_13 else None, None, file)
    return TargetGpu(None, f"sm_{gpu}", file)


def _read_gpu(figures: Mapping[str, str]) -> int | None:
    if capability := figures.get("gpu_capability"):
        return int(capability.replace(".", ""))
    return _ORIN if figures.get("host_l4t", "").partition(".")[0] == _JETPACK_6 else None


def _find_source_file(before: Sequence[bytes]) -> str | None:
    """Return the source file of the last compiler's command before the error."""
    commands = (decode(raw[:_MAX_COMMAND_BYTES]) for raw in reversed(before[-_COMMAND_LINES:]))
    return next((match["file"] for text in commands if (match := _SOURCE_FILE.search(text))), None)
