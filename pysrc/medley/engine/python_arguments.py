"""Convert an engine's flags to the arguments of its Python class."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from medley.command import Flag
from medley.schema import EngineName
from medley.values import Value

# The argument that names the model.
_MODEL_ARGUMENTS: Mapping[EngineName, str] = {"vllm": "model", "sglang": "model_path"}
# Flags that only a server uses.
_SERVER_ARGUMENTS = {
    *("host", "port", "served_model_name", "tool_call_parser", "reasoning_parser", "reasoning_parser_plugin"),
    *("enable_auto_tool_choice", "headless", "api_server_count", "enable_metrics"),
}
_FULL_ARGUMENT_NAMES = {"cc": "compilation_config"}
# Arguments that stay text, even if they look like numbers.
_TEXT_ARGUMENTS = {"revision", "tokenizer_revision", "code_revision"}
# `vllm serve` reads "auto" as this number; its class takes only the number (vLLM 0.32.0).
_NUMBERS_OF_WORDS: Mapping[tuple[str, str], int] = {("max_model_len", "auto"): -1}


class Argument(Value):
    """An argument of the engine's Python class, with its reason."""

    name: str
    value: Any
    why: str


def convert_to_arguments(engine: EngineName, target: str, flags: Iterable[Flag]) -> tuple[Argument, ...]:
    """Return the arguments of the engine's class; `-cc.mode 2 -cc.backend eager` becomes one table."""
    model_argument = _MODEL_ARGUMENTS[engine]
    arguments = {model_argument: Argument(model_argument, target, "the model")}
    for flag in flags:
        name, value = _convert_to_argument(flag)
        key, *inner_keys = name.split(".")
        if key not in _SERVER_ARGUMENTS:
            previous = arguments[key].value if key in arguments else {}
            arguments[key] = Argument(key, _set_nested_value(previous, inner_keys, value), flag.why)
    return tuple(arguments.values())


def build_argument_table(arguments: Iterable[Argument]) -> dict[str, Any]:
    """Return the values of the arguments by name."""
    return {argument.name: argument.value for argument in arguments}


def list_argument_reasons(arguments: Iterable[Argument]) -> Iterator[tuple[str, str]]:
    """Yield each argument as `name=value`, with its reason."""
    return ((f"{argument.name}={argument.value!r}", argument.why) for argument in arguments)


def _convert_to_argument(flag: Flag) -> tuple[str, Any]:
    """Return the name and the value of a flag as a Python argument."""
    name = flag.names[0].lstrip("-").replace("-", "_")
    key, dot, inner_keys = name.partition(".")
    name = f"{_FULL_ARGUMENT_NAMES.get(key, key)}{dot}{inner_keys}"
    if flag.value is None:
        return (name.removeprefix("no_"), False) if name.startswith("no_") else (name, True)
    if name in _TEXT_ARGUMENTS:
        return name, flag.value
    try:
        # A value that parses as JSON is JSON; any other is text.
        return name, _NUMBERS_OF_WORDS.get((name, flag.value)) or json.loads(flag.value)
    except ValueError:
        return name, flag.value


def _set_nested_value(table: Any, keys: list[str], value: Any) -> Any:  # noqa: ANN401 - whatever JSON has
    """Return the table with a value at the end of these keys; without keys the value."""
    if not keys:
        return value
    merged = dict(table) if isinstance(table, dict) else {}
    return merged | {keys[0]: _set_nested_value(merged.get(keys[0]), keys[1:], value)}
