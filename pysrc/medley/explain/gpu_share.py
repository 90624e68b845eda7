"""Read the share of GPU memory that a log sets, and propose a smaller one."""

import re
from typing import NamedTuple

from medley.explain.flags import read_flags
from medley.explain.lines import SGLANG

_VLLM_FLAG, _SGLANG_FLAG = "--gpu-memory-utilization", "--mem-fraction-static"
# vLLM 0.33.0, vllm/config/cache.py: 0.92; it was 0.9 before.
_DEFAULT = 0.9
# A step of 0.01 was enough in github.com/vllm-project/vllm/issues/57475.
_HIGH, _SMALL_STEP, _STEP = 0.9, 0.03, 0.05
# vLLM 0.33.0, vllm/v1/worker/utils.py
_FREE = re.compile(r"Free memory on device(?: \S+)? \((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\)")


class Share(NamedTuple):
    """`said`: the flag and its value in words; `less`: the flag with a smaller value, to type."""

    said: str
    less: str


def read_share(said: str, arguments: str, engine: str | None) -> Share:
    """Return the share that the engine's printed arguments set, or the default of the engine.

    `said`: the error; if it has the free memory, the smaller share fits into that.
    """
    flags = read_flags(arguments, (_VLLM_FLAG, _SGLANG_FLAG))
    own = _SGLANG_FLAG if engine == SGLANG or _SGLANG_FLAG in flags else _VLLM_FLAG
    value = _number(flags.get(own, "").rpartition(" ")[2])
    if free := _FREE.search(said):
        value = float(free["free"]) / max(float(free["total"]), 1.0)
        return Share(f"{own} must be less than {value:.2f}", f"{own} {max(value - 0.01, 0.01):.2f}")
    if value is not None:
        return Share(f"{own} is {value:g}", f"{own} {_less(value)}")
    if own == _SGLANG_FLAG:
        return Share(f"SGLang chose {own} itself", f"{own} 0.05 lower than its log prints")
    return Share(f"{own} has its default (0.9, in newer versions 0.92)", f"{own} {_less(_DEFAULT)}")


def _less(share: float) -> str:
    return f"{share - (_SMALL_STEP if share > _HIGH else _STEP):.2f}"


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if _STEP < value <= 1 else None
