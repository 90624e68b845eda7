"""Name the loader of weights that a log chose instead of the engine's default."""

import re
from collections.abc import Mapping

from medley.explain.flags import read_flags

_FLAG = "--load-format"
_FAST_LOADER = re.compile(r"(?i)instant_?tensor|run_?ai_?streamer\w*|fastsafetensors?|tensorizer")


def find_loader(figures: Mapping[str, str], settings: str) -> str | None:
    """Return the loader by the log's --load-format, or by the line that it prints."""
    value = read_flags(settings, (_FLAG,)).get(_FLAG, "").rpartition(" ")[2]
    return value if _FAST_LOADER.fullmatch(value) else figures.get("loader")
