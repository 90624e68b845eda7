"""Compute from the numbers of a log whether a model's weights fit a GPU, and what would fit."""

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from medley.explain.flags import read_flags

_RANKS = ("--tensor-parallel-size", "--pipeline-parallel-size", "--tp-size", "--pp-size", "--tp")
_CAPACITY = re.compile(r"total capacity of (?P<gpu>[\d.]+) GiB of which (?P<free>[\d.]+) (?P<unit>[MG])iB")
_PROCESS = re.compile(r"Process \d+ has ([\d.]+) GiB memory in use")
_IN_USE = re.compile(r"this process has (?P<own>[\d.]+) GiB memory in use")
_FOUR_BITS = re.compile(r"(?i)awq|gptq|int4|w4a|nvfp4|mxfp4|fp4|4-?bit|q4_|autoround")
_EIGHT_BITS = re.compile(r"(?i)fp8|int8|w8a|8-?bit|q8_")
_CHANGED = re.compile(
    r"--quantization\b|'quantization': '|(?<!\w)quantization='|cpu[-_]offload[-_]gb(?!['\"]?[:=] ?0\b)"
)
_USABLE = 0.92
"""The share of a GPU's memory that weights can take at most, because each start needs some for its own."""
_PLANNED = 0.75
"""The share that they can take with room for context."""
_FILLED = 0.85
_OTHERS_SHARE, _OTHERS_GIB = 0.08, 1.0
_UNIFIED_GIB = (110.0, 128.0)
"""The capacity of GB10 and Thor, which is the memory of the host, and which no other GPU has."""
_OWN_OF_UNIFIED = 0.6
# 4 bits and their scales against 16 bits, and against 8.
_OF_SIXTEEN, _OF_EIGHT = 0.31, 0.58
_MOST_OFFLOADED = 0.5
_SMALL_CACHE_GIB, _MOST_SHARE = 2.0, 0.95


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


def explain_fit(said: str, facts: Mapping[str, str], arguments: str) -> MemoryFit:
    """Return what the error `said` and the figures `facts` of its log show.

    The facts: `weights` and `gpu` of one rank, and `checkpoint` of the whole model, in GiB.
    """
    ranks = _ranks(arguments)
    capacity = _CAPACITY.search(said)
    gpu = float(capacity["gpu"]) if capacity else _number(facts, "gpu")
    # An engine that quantizes or offloads while it loads places less than the files have.
    checkpoint = None if _CHANGED.search(arguments) else _number(facts, "checkpoint")
    weights = _number(facts, "weights") or (checkpoint / ranks if checkpoint else None)
    own = _IN_USE.search(said)
    filled, others = _held(capacity, float(own["own"]) if own else None)
    if own is None and len(each := _PROCESS.findall(said)) > 1:
        others = f"{len(each)} processes hold {' and '.join(each)} GiB of this GPU's memory"
    smaller = _smaller(weights or (gpu if filled else None), gpu, ranks, arguments, is_least=weights is None)
    if weights is None:
        return MemoryFit(filled=filled, others=others, smaller=smaller)
    size = f"the weights take {weights:.1f} GiB"
    if ranks > 1:
        size += f" on each of {ranks} GPUs"
    if gpu is None:
        return MemoryFit(weights=size, filled=filled, others=others, smaller=smaller)
    exceeds = f"{size}, and a GPU has {gpu:.1f} GiB" if weights > gpu * _USABLE else None
    share = math.ceil((weights + _SMALL_CACHE_GIB) / gpu * 100) / 100
    larger = f"{share:.2f}" if share <= _MOST_SHARE else None
    return MemoryFit(f"{size}, and a GPU has {gpu:.1f} GiB", exceeds, filled, others, smaller, larger)


def _held(capacity: re.Match[str] | None, own: float | None) -> tuple[str | None, str | None]:
    """Return what this process has filled, and what others hold, if that is much."""
    if capacity is None or own is None:
        return None, None
    gpu = float(capacity["gpu"])
    free = float(capacity["free"]) / (1024 if capacity["unit"] == "M" else 1)
    others = gpu - free - own
    if _UNIFIED_GIB[0] < gpu < _UNIFIED_GIB[1] and own > gpu * _OWN_OF_UNIFIED:
        return None, None
    if others > max(gpu * _OTHERS_SHARE, _OTHERS_GIB):
        return None, f"{others:.1f} of {gpu:.1f} GiB are held by others than this process"
    return (
        f"this process alone has filled {own:.1f} of {gpu:.1f} GiB" if own > gpu * _FILLED else None
    ), None


def _smaller(
    weights: float | None, gpu: float | None, ranks: int, arguments: str, *, is_least: bool
) -> str | None:
    """Return the ways to fit these weights of a rank; `is_least`: whether they may be larger."""
    if weights is None:
        return None
    total = weights * ranks
    ways = []
    if (share := _of_four_bits(arguments)) < 1:
        about = "" if is_least else f", about {total * share:.0f} GiB instead of {total:.0f}"
        ways.append(f"a 4-bit build of the model (AWQ, GPTQ or NVFP4{about}): medley plan MODEL")
    if gpu is None:
        ways.append(f"{ranks * 2} such GPUs, in one host or in several: medley serve MODEL --tp {ranks * 2}")
    else:
        count = max(ranks * 2, 1 << math.ceil(math.log2(max(total / (gpu * _PLANNED), 1))))
        least = "at least " if is_least else ""
        ways.append(f"{least}{count} such GPUs, in one host or in several: medley serve MODEL --tp {count}")
        rest = math.ceil(weights - gpu * _PLANNED)
        if 0 < rest <= weights * _MOST_OFFLOADED and not is_least:
            ways.append(
                f"slower, with the rest in the host's memory (not on Spark or Jetson, where both are one): "
                f"medley serve MODEL -- --cpu-offload-gb {rest}"
            )
    return "; or ".join(ways) or None


def _of_four_bits(arguments: str) -> float:
    """Return the size of a 4-bit build, as a share of this one; 1 if it has 4 bits already."""
    if _FOUR_BITS.search(arguments):
        return 1.0
    return _OF_EIGHT if _EIGHT_BITS.search(arguments) else _OF_SIXTEEN


def _ranks(arguments: str) -> int:
    """Return the number of GPUs that share the weights."""
    flags = read_flags(arguments, _RANKS)
    counts = (typed.rpartition(" ")[2] for typed in flags.values())
    return math.prod(int(each) for each in counts if each.isdigit() and int(each)) or 1


def _number(facts: Mapping[str, str], name: str) -> float | None:
    try:
        return float(facts[name])
    except (KeyError, ValueError):
        return None
