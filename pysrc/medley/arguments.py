"""Arguments are what an engine's class takes in a script: its server's flags as keywords, with reasons."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from medley.reasoned import Flag
from medley.tables import Engine


@dataclass(frozen=True)
class Argument:
    name: str
    value: Any
    """Of JSON's types."""
    why: str


@dataclass(frozen=True)
class _Class:
    """How an engine's class differs from its server."""

    weights: str
    """The argument that names the model."""
    server: frozenset[str]
    """Names of flags that only a server has a use for."""
    short: Mapping[str, str]
    """Flags that are no names of arguments."""
    text: frozenset[str]
    """Arguments that are text, whatever they look like."""


_PARSERS = {"tool_call_parser", "reasoning_parser", "reasoning_parser_plugin"}
_LISTENING = {"host", "port", "served_model_name"}
_CLASSES: Mapping[Engine, _Class] = {
    "vllm": _Class(
        "model",
        frozenset({*_LISTENING, *_PARSERS, "enable_auto_tool_choice", "headless", "api_server_count"}),
        {"cc": "compilation_config"},
        frozenset({"revision", "tokenizer_revision", "code_revision"}),
    ),
    "sglang": _Class(
        "model_path", frozenset({*_LISTENING, *_PARSERS, "enable_metrics"}), {}, frozenset({"revision"})
    ),
}
# `vllm serve` reads "auto" as this number, its class takes the number alone (vLLM 0.32.0).
_WORDS: Mapping[tuple[str, str], int] = {("max_model_len", "auto"): -1}


def arguments(engine: Engine, target: str, flags: Iterable[Flag]) -> tuple[Argument, ...]:
    """Of the class for these weights; parts of one flag (`-cc.mode 2 -cc.backend eager`) become one table."""
    of = _CLASSES[engine]
    found: dict[str, Argument] = {of.weights: Argument(of.weights, target, "the model")}
    for flag in flags:
        name, value = _keyword(flag, of)
        first, *inner = name.split(".")
        if first in of.server:
            continue
        if inner:
            before = found[first].value if first in found else {}
            value = _merged(before, inner, value)
        found[first] = Argument(first, value, flag.why)
    return tuple(found.values())


def table(found: Iterable[Argument]) -> dict[str, Any]:
    return {each.name: each.value for each in found}


def why(found: Iterable[Argument]) -> Iterator[tuple[str, str]]:
    """Each as Python writes it, and its reason."""
    return ((f"{each.name}={each.value!r}", each.why) for each in found)


def _keyword(flag: Flag, of: _Class) -> tuple[str, Any]:
    name = flag.names[0].lstrip("-").replace("-", "_")
    first, dot, rest = name.partition(".")
    name = f"{of.short.get(first, first)}{dot}{rest}"
    if flag.value is None:
        return (name.removeprefix("no_"), False) if name.startswith("no_") else (name, True)
    if name in of.text:
        return name, flag.value
    return name, _WORDS.get((name, flag.value), _typed(flag.value))


def _typed(value: str) -> Any:  # noqa: ANN401 - whatever JSON has
    """A number, a list or a table where it reads as one; else text."""
    try:
        return json.loads(value)
    except ValueError:
        return value


def _merged(before: Any, names: list[str], value: Any) -> dict[str, Any]:  # noqa: ANN401 - the same
    first, *rest = names
    kept = dict(before) if isinstance(before, dict) else {}
    kept[first] = _merged(kept.get(first), rest, value) if rest else value
    return kept
