"""Read the share of GPU memory that a log sets, and propose a smaller one."""

import re
from typing import NamedTuple

from medley.explain.flags import read_flags
from medley.explain.lines import SGLANG

_VLLM_FLAG, _SGLANG_FLAG = "--gpu-memory-utilization", "--mem-fraction-static"
# vLLM 0.33.0, vllm/config/cache.py: 0.92; it was 0.9 before.
_DEFAULT_SHARE = 0.9
# A step of 0.01 was enough in github.com/vllm-project/vllm/issues/57475.
_HIGH_SHARE, _SMALL_SHARE_STEP, _SHARE_STEP = 0.9, 0.03, 0.05
# vLLM 0.33.0, vllm/v1/worker/utils.py
# Variables of a launcher, such as GPU_UTIL=0.97 or GPU_MEMORY_UTILIZATION=0.9
_LAUNCHER_SHARE = re.compile(
    r"(?i)(?<![\w$-])(?P<name>\w*(?:GPU_UTIL|GPU_MEM(?:ORY)?_UTIL|UTILIZATION|MEM_FRACTION)\w*)=['\"]?(?P<value>0?\.\d+)"
)
_PRINTED_ARGUMENTS = re.compile(r"non-default args:|server_args=|ServerArgs\(")
_FREE_MEMORY = re.compile(r"Free memory on device(?: \S+)? \((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\)")


class Share(NamedTuple):
    """`description`: the flag and its value in words; `smaller`: the flag with a smaller value, to type."""

    description: str
    smaller: str


def read_share(message: str, arguments: str, engine: str | None) -> Share:
    """Return the share that the engine's printed arguments set, or the default of the engine.

    `message`: the error; if it has the free memory, the smaller share fits into that.
    """
    flags = read_flags(arguments, (_VLLM_FLAG, _SGLANG_FLAG))
    flag = _SGLANG_FLAG if engine == SGLANG or _SGLANG_FLAG in flags else _VLLM_FLAG
    value = _parse_share(flags.get(flag, "").rpartition(" ")[2])
    if free_memory := _FREE_MEMORY.search(message):
        value = float(free_memory["free"]) / max(float(free_memory["total"]), 1.0)
        return Share(f"{flag} must be less than {value:.2f}", f"{flag} {max(value - 0.01, 0.01):.2f}")
    launched = None if value is not None else _LAUNCHER_SHARE.search(arguments)
    if launched and (value := _parse_share(launched["value"])) is not None:
        return Share(
            f"{launched['name'].upper()} is {value:g}, which sets {flag}", f"{flag} {_format_smaller(value)}"
        )
    if value is not None:
        return Share(f"{flag} is {value:g}", f"{flag} {_format_smaller(value)}")
    if flag == _SGLANG_FLAG:
        return Share(f"SGLang chose {flag} itself", f"{flag} 0.05 lower than its log prints")
    if not _PRINTED_ARGUMENTS.search(arguments):
        return Share(
            f"the log does not show {flag}", f"{flag} 0.85 (it must be lower than that of the start)"
        )
    return Share(
        f"{flag} has its default (0.9, in newer versions 0.92)", f"{flag} {_format_smaller(_DEFAULT_SHARE)}"
    )


def _format_smaller(share: float) -> str:
    return f"{share - (_SMALL_SHARE_STEP if share > _HIGH_SHARE else _SHARE_STEP):.2f}"


def _parse_share(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if _SHARE_STEP < value <= 1 else None
