"""Compute from the numbers of a log whether a model's weights fit a GPU, and what would fit."""

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from medley.explain.flags import read_flags

_TENSOR_FLAGS = ("--tensor-parallel-size", "--tp-size", "--tp")
_PIPELINE_FLAGS = ("--pipeline-parallel-size", "--pp-size", "--pp")
_CAPACITY = re.compile(r"total capacity of (?P<gpu>[\d.]+) GiB of which (?P<free>[\d.]+) (?P<unit>[MG])iB")
_PROCESS_USE = re.compile(r"Process \d+ has ([\d.]+) GiB memory in use")
_OWN_USE = re.compile(r"this process has (?P<own>[\d.]+) GiB memory in use")
_FOUR_BITS = re.compile(r"(?i)awq|gptq|int4|w4a|nvfp4|mxfp4|fp4|exl[23]|4-?bit|q4_|autoround")
_EIGHT_BITS = re.compile(r"(?i)fp8|int8|w8a|8-?bit|q8_")
_CHANGED_SIZE = re.compile(
    r"--quantization\b|'quantization': '|(?<!\w)quantization='|cpu[-_]offload[-_]gb(?!['\"]?[:=] ?0\b)"
)
_USABLE_SHARE = 0.92
"""The share of a GPU's memory that weights can take at most, because each start needs some for its own."""
_PLANNED_SHARE = 0.75
"""The share that they can take with room for context."""
_FILLED_SHARE = 0.85
_OTHERS_SHARE, _OTHERS_GIB = 0.08, 1.0
_UNIFIED_GIB = (110.0, 128.0)
"""The capacity of GB10 and Thor, which is the memory of the host, and which no other GPU has."""
_UNIFIED_OWN_SHARE = 0.6
# 4 bits and their scales against 16 bits, and against 8.
_SHARE_OF_SIXTEEN_BITS, _SHARE_OF_EIGHT_BITS = 0.31, 0.58
_MAX_OFFLOADED_SHARE = 0.5
_SMALL_CACHE_GIB, _MAX_SHARE = 2.0, 0.95
_PERHAPS_OTHERS = "another program took some meanwhile"


class MemoryFit(NamedTuple):
    """Sentences about memory, each None if the log does not have its numbers."""

    weights: str | None = None
    """The weights' size, and the GPU's."""
    exceeds: str | None = None
    """Why no share or context makes the weights fit."""
    filled: str | None = None
    """How much of the GPU this process alone has filled."""
    others: str | None = None
    """How much other processes hold."""
    smaller: str | None = None
    """What would fit, to type."""
    larger_share: str | None = None
    """The least share of the GPU that leaves room for a small KV cache."""
    perhaps_others: str | None = _PERHAPS_OTHERS
    """A clause for other programs that may hold memory, unless the error excludes them."""


def explain_fit(message: str, figures: Mapping[str, str], arguments: str) -> MemoryFit:
    """Return what the error `message` and the figures `figures` of its log show.

    The figures: `weights` and `gpu` of one rank, and `checkpoint` of the whole model, in GiB.
    """
    ranks = count_ranks(arguments, figures)
    capacity = _CAPACITY.search(message)
    gpu = float(capacity["gpu"]) if capacity else _read_number(figures, "gpu")
    # An engine that quantizes or offloads while it loads places less than the files have.
    checkpoint = None if _CHANGED_SIZE.search(arguments) else _read_number(figures, "checkpoint")
    weights = _read_number(figures, "weights") or (checkpoint / ranks if checkpoint else None)
    own_use = _OWN_USE.search(message)
    filled, others = _describe_use(capacity, float(own_use["own"]) if own_use else None)
    if own_use is None and len(sizes := _PROCESS_USE.findall(message)) > 1:
        others = f"{len(sizes)} processes hold {' and '.join(sizes)} GiB of this GPU's memory"
    smaller = _list_alternatives(
        weights or (gpu if filled else None), gpu, ranks, arguments, is_least=weights is None
    )
    perhaps_others = None if filled else _PERHAPS_OTHERS
    if weights is None:
        return MemoryFit(perhaps_others=perhaps_others, filled=filled, others=others, smaller=smaller)
    size = f"the weights take {weights:.1f} GiB"
    if ranks > 1:
        size += f" on each of {ranks} GPUs"
    if gpu is None:
        return MemoryFit(
            perhaps_others=perhaps_others, weights=size, filled=filled, others=others, smaller=smaller
        )
    exceeds = f"{size}, and a GPU has {gpu:.1f} GiB" if weights > gpu * _USABLE_SHARE else None
    share = math.ceil((weights + _SMALL_CACHE_GIB) / gpu * 100) / 100
    larger = f"{share:.2f}" if share <= _MAX_SHARE else None
    return MemoryFit(
        f"{size}, and a GPU has {gpu:.1f} GiB", exceeds, filled, others, smaller, larger, perhaps_others
    )


def _describe_use(capacity: re.Match[str] | None, own: float | None) -> tuple[str | None, str | None]:
    """Return what this process has filled, and what others hold, if that is much."""
    if capacity is None or own is None:
        return None, None
    gpu = float(capacity["gpu"])
    free = float(capacity["free"]) / (1024 if capacity["unit"] == "M" else 1)
    others = gpu - free - own
    if _UNIFIED_GIB[0] < gpu < _UNIFIED_GIB[1] and own > gpu * _UNIFIED_OWN_SHARE:
        return None, None
    if others > max(gpu * _OTHERS_SHARE, _OTHERS_GIB):
        return None, f"{others:.1f} of {gpu:.1f} GiB are held by others than this process"
    if own > gpu * _FILLED_SHARE:
        return f"this process alone has filled {own:.1f} of {gpu:.1f} GiB", None
    return None, None


def _list_alternatives(
    weights: float | None, gpu: float | None, ranks: int, arguments: str, *, is_least: bool
) -> str | None:
    """Return the ways to fit these weights of a rank; `is_least`: whether they may be larger."""
    if weights is None:
        return None
    total = weights * ranks
    alternatives = []
    if (share := _compute_four_bit_share(arguments)) < 1:
        about = "" if is_least else f", about {total * share:.0f} GiB instead of {total:.0f}"
        alternatives.append(f"a 4-bit build of the model (AWQ, GPTQ or NVFP4{about}): medley plan MODEL")
    if gpu is None:
        alternatives.append(
            f"{ranks * 2} such GPUs, in one host or in several: medley serve MODEL --tp {ranks * 2}"
        )
    else:
        count = max(ranks * 2, 1 << math.ceil(math.log2(max(total / (gpu * _PLANNED_SHARE), 1))))
        at_least = "at least " if is_least else ""
        alternatives.append(
            f"{at_least}{count} such GPUs, in one host or in several: medley serve MODEL --tp {count}"
        )
        rest = math.ceil(weights - gpu * _PLANNED_SHARE)
        if 0 < rest <= weights * _MAX_OFFLOADED_SHARE and not is_least:
            alternatives.append(
                f"slower, with the rest in the host's memory (not on Spark or Jetson, where both are one): "
                f"medley serve MODEL -- --cpu-offload-gb {rest}"
            )
    return "; or ".join(alternatives) or None


def _compute_four_bit_share(arguments: str) -> float:
    """Return the size of a 4-bit build, as a share of this one; 1 if it has 4 bits already."""
    if _FOUR_BITS.search(arguments):
        return 1.0
    return _SHARE_OF_EIGHT_BITS if _EIGHT_BITS.search(arguments) else _SHARE_OF_SIXTEEN_BITS


def count_ranks(arguments: str, figures: Mapping[str, str]) -> int:
    """Return the number of GPUs that share the weights: by the arguments, else by the size of the world."""
    tensor, pipeline = (_read_count(arguments, names) for names in (_TENSOR_FLAGS, _PIPELINE_FLAGS))
    if tensor is None and pipeline is None:
        return int(_read_number(figures, "world") or 1)
    return (tensor or 1) * (pipeline or 1)


def _read_count(arguments: str, names: tuple[str, ...]) -> int | None:
    """Return the count that one of these names of a flag sets; a command and its program print it twice."""
    values = (flag.rpartition(" ")[2] for flag in read_flags(arguments, names).values())
    return max((int(value) for value in values if value.isdecimal() and int(value)), default=None)


def _read_number(figures: Mapping[str, str], name: str) -> float | None:
    try:
        return float(figures[name])
    except (KeyError, ValueError):
        return None
