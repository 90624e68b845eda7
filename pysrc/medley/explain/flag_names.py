"""Explain a flag that an engine does not know, by the flags that the releases of medley's locks have."""

import difflib
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from medley import config, json_shape
from medley.explain.engine_advice import EngineFlag
from medley.explain.lines import SGLANG, VLLM

_REFUSED = re.compile(r"(?P<program>[\w./-]+(?: serve)?): error: unrecognized arguments: (?P<words>.+)")
_FLAG = re.compile(r"(?<!\S)--[A-Za-z][\w-]{1,60}(?=[\s=]|$)")
_MOST = 3
_ALIKE = 0.8
"""Below it, difflib's nearest name is another word."""


def explain_flags(text: str, engine: str | None, flags: tuple[EngineFlag, ...]) -> str | None:
    """Return what medley knows about the flags that argparse refused in this line, or None."""
    refused = _REFUSED.search(text)
    if refused is None:
        return None
    program = refused["program"]
    own = SGLANG if "sglang" in program or "launch_server" in program else engine or VLLM
    named = dict.fromkeys(each.replace("_", "-") for each in _FLAG.findall(refused["words"]))
    return "; ".join(filter(None, (_explained(each, own, flags) for each in [*named][:_MOST]))) or None


def _explained(name: str, engine: str, flags: tuple[EngineFlag, ...]) -> str | None:
    known = _names()
    other = VLLM if engine == SGLANG else SGLANG
    if name in known.get(engine, {}):
        return (
            f"{name} is a flag of {engine} {known[engine][name]}, so this one is older, "
            "or flag and value are one word (in a list of YAML or Python, each is an entry of its own)"
        )
    if same := next(_counterparts(name, engine, flags), None):
        return f"{name} is a flag of {other}: {engine} has {same}"
    if name in known.get(other, {}):
        return f"{name} is a flag of {other}, and {engine} has none of that name"
    near = difflib.get_close_matches(name, known.get(engine, {}), n=2, cutoff=_ALIKE)
    return f"the nearest flag of {engine} is {' or '.join(near)}" if near else None


def _counterparts(name: str, engine: str, flags: tuple[EngineFlag, ...]) -> Iterator[str]:
    for each in flags:
        mine, theirs = (each.sglang, each.vllm) if engine == SGLANG else (each.vllm, each.sglang)
        if theirs == name and mine.startswith("--"):
            yield mine


@lru_cache(maxsize=1)
def _names() -> Mapping[str, Mapping[str, str]]:
    """Return the flags of each engine, each with the newest release that has it."""
    found: dict[str, dict[str, str]] = {VLLM: {}, SGLANG: {}}
    for name, path in sorted(config.files("locks/parsers", ".json").items()):
        table = json_shape.table(path.read_text(encoding="utf-8")) or {}
        release = {flag: str(table.get("version")) for row in table.get("flags", ()) for flag in row["names"]}
        found[SGLANG if name.startswith("sglang") else VLLM].update(release)
    return found
