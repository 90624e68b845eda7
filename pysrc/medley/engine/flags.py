"""Refuse flags that the engine's release would refuse; convert flags to Python arguments."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from medley.command import Flag
from medley.engine.parser import EngineParser
from medley.errors import Problem
from medley.schema import EngineName


def require_taken(
    parser: EngineParser | None, made: Iterable[Flag], extra: Sequence[str], *, table: str | None = None
) -> None:
    """Raise a Problem that names what the engine would refuse: of medley's flags, a table's, or the user's.

    `parser` is that of the release that will run, if known; `table` is the file of the model's table.
    """
    if parser is None:
        return
    own = list(parser.faults([word for flag in made for word in flag.argv()]))
    faults = [*own, *parser.faults(extra)]
    if not faults:
        return
    words = [f"{each.word} {each.value}" if each.value else each.word for each in faults]
    where = [f"in {table}" if each in own and table else "" for each in faults]
    raise Problem(
        f"{parser.title} does not take {', '.join(words)}",
        cause="\n".join((*(f"{each.word}: {each.cause}" for each in faults), f"its parser: {parser.source}")),
        fix="\n".join(
            f"{each.word}: {each.advice} {place}".rstrip() for each, place in zip(faults, where, strict=True)
        ),
    )


def require_not_ours(extra: Sequence[str]) -> None:
    """Raise a Problem for flags after -- that medley sets itself, because it asks the server there."""
    for word, after in zip(extra, (*extra, "")[1:], strict=True):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") in _LISTENS:
            option = f"{name} {value if equals else after}".rstrip()
            raise Problem(
                f"{name} after -- would hide the server from medley",
                cause="medley sets it, and asks the server by that name at that address until it is ready",
                fix=f"say it before the --: medley serve MODEL {option}",
            )


@dataclass(frozen=True)
class Argument:
    name: str
    value: Any
    why: str


_LISTENS = ("--port", "--host", "--served-model-name")
# The argument that names the model.
_WEIGHTS: Mapping[EngineName, str] = {"vllm": "model", "sglang": "model_path"}
# Flags that only a server uses.
_SERVER = {
    *("host", "port", "served_model_name", "tool_call_parser", "reasoning_parser", "reasoning_parser_plugin"),
    *("enable_auto_tool_choice", "headless", "api_server_count", "enable_metrics"),
}
_SHORT = {"cc": "compilation_config"}
# Text, whatever it looks like.
_TEXT = {"revision", "tokenizer_revision", "code_revision"}
# `vllm serve` reads "auto" as this number; its class takes only the number (vLLM 0.32.0).
_WORDS: Mapping[tuple[str, str], int] = {("max_model_len", "auto"): -1}


def arguments(engine: EngineName, target: str, flags: Iterable[Flag]) -> tuple[Argument, ...]:
    """Return the arguments of the engine's class; `-cc.mode 2 -cc.backend eager` becomes one table."""
    weights = _WEIGHTS[engine]
    found = {weights: Argument(weights, target, "the model")}
    for flag in flags:
        name, value = _keyword(flag)
        first, *inner = name.split(".")
        if first not in _SERVER:
            before = found[first].value if first in found else {}
            found[first] = Argument(first, _merged(before, inner, value), flag.why)
    return tuple(found.values())


def table(found: Iterable[Argument]) -> dict[str, Any]:
    return {each.name: each.value for each in found}


def why(found: Iterable[Argument]) -> Iterator[tuple[str, str]]:
    return ((f"{each.name}={each.value!r}", each.why) for each in found)


def _keyword(flag: Flag) -> tuple[str, Any]:
    name = flag.names[0].lstrip("-").replace("-", "_")
    first, dot, rest = name.partition(".")
    name = f"{_SHORT.get(first, first)}{dot}{rest}"
    if flag.value is None:
        return (name.removeprefix("no_"), False) if name.startswith("no_") else (name, True)
    if name in _TEXT:
        return name, flag.value
    try:
        # JSON where it parses; else text.
        return name, _WORDS.get((name, flag.value)) or json.loads(flag.value)
    except ValueError:
        return name, flag.value


def _merged(before: Any, names: list[str], value: Any) -> Any:  # noqa: ANN401 - whatever JSON has
    if not names:
        return value
    kept = dict(before) if isinstance(before, dict) else {}
    return kept | {names[0]: _merged(kept.get(names[0]), names[1:], value)}
