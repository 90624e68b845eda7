"""Explain a flag that an engine does not know, by the flags that the releases of medley's locks have."""

import difflib
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from medley import config, json_shape
from medley.explain.engine_advice import EngineFlag
from medley.explain.lines import SGLANG, VLLM

_REFUSED_ARGUMENTS = re.compile(
    r"(?P<program>[\w./-]+(?: serve)?): error: unrecognized arguments: (?P<words>.+)"
)
_FLAG = re.compile(r"(?<!\S)--[A-Za-z][\w-]{1,60}(?=[\s=]|$)")
_MAX_FLAGS = 3
_MIN_SIMILARITY = 0.8
"""Below it, difflib's nearest name is another word."""


def explain_flags(text: str, engine: str | None, flags: tuple[EngineFlag, ...]) -> str | None:
    """Return what medley knows about the flags that argparse refused in this line, or None."""
    refused = _REFUSED_ARGUMENTS.search(text)
    if refused is None:
        return None
    program = refused["program"]
    flag_engine = SGLANG if "sglang" in program or "launch_server" in program else engine or VLLM
    names = dict.fromkeys(name.replace("_", "-") for name in _FLAG.findall(refused["words"]))
    return (
        "; ".join(filter(None, (_explain_flag(name, flag_engine, flags) for name in [*names][:_MAX_FLAGS])))
        or None
    )


def _explain_flag(name: str, engine: str, flags: tuple[EngineFlag, ...]) -> str | None:
    known = _read_flag_names()
    other = VLLM if engine == SGLANG else SGLANG
    if name in known.get(engine, {}):
        return (
            f"{name} is a flag of {engine} {known[engine][name]}, so this one is older, "
            "or flag and value are one word (in a list of YAML or Python, each is an entry of its own)"
        )
    if counterpart := next(_list_counterparts(name, engine, flags), None):
        return f"{name} is a flag of {other}: {engine} has {counterpart}"
    if name in known.get(other, {}):
        return f"{name} is a flag of {other}, and {engine} has none of that name"
    close_names = difflib.get_close_matches(name, known.get(engine, {}), n=2, cutoff=_MIN_SIMILARITY)
    return f"the nearest flag of {engine} is {' or '.join(close_names)}" if close_names else None


def _list_counterparts(name: str, engine: str, flags: tuple[EngineFlag, ...]) -> Iterator[str]:
    for flag in flags:
        own, other = (flag.sglang, flag.vllm) if engine == SGLANG else (flag.vllm, flag.sglang)
        if other == name and own.startswith("--"):
            yield own


@lru_cache(maxsize=1)
def _read_flag_names() -> Mapping[str, Mapping[str, str]]:
    """Return the flags of each engine, each with the newest release that has it."""
    names: dict[str, dict[str, str]] = {VLLM: {}, SGLANG: {}}
    for file_name, path in sorted(config.find_table_files("locks/parsers", ".json").items()):
        table = json_shape.parse_object(path.read_text(encoding="utf-8")) or {}
        release = {flag: str(table.get("version")) for row in table.get("flags", ()) for flag in row["names"]}
        names[SGLANG if file_name.startswith("sglang") else VLLM].update(release)
    return names
