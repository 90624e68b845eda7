"""Refuse flags that the engine's release would refuse; convert flags to Python arguments."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from medley.command import Flag, quote_word
from medley.engine.accepted_flags import AcceptedFlags
from medley.errors import Problem
from medley.schema import EngineName
from medley.values import Value


def require_known_flags(
    accepted_flags: AcceptedFlags | None,
    flags: Iterable[Flag],
    user_flags: Sequence[str],
    *,
    table_file: str | None = None,
) -> None:
    """Raise a Problem that names the flags that the engine would refuse: medley's, a table's, or the user's.

    `accepted_flags`: of the release that will run, if known; `table_file`: the file of the model's table.
    """
    if accepted_flags is None:
        return
    own_faults = list(
        accepted_flags.list_faults([argument for flag in flags for argument in flag.build_argv()])
    )
    faults = [*own_faults, *accepted_flags.list_faults(user_flags)]
    if not faults:
        return
    refused = [f"{fault.argument} {fault.value}" if fault.value else fault.argument for fault in faults]
    places = [f"in {table_file}" if fault in own_faults and table_file else "" for fault in faults]
    raise Problem(
        f"{accepted_flags.title} does not take {', '.join(refused)}",
        cause="\n".join(
            (
                *(f"{fault.argument}: {fault.cause}" for fault in faults),
                f"its parser: {accepted_flags.source}",
            )
        ),
        fix="\n".join(
            f"{quote_word(fault.argument)}: {fault.advice} {place}".rstrip()
            for fault, place in zip(faults, places, strict=True)
        ),
    )


def require_no_server_flags(user_flags: Sequence[str]) -> None:
    """Raise a Problem for flags after -- that change where the server listens, or its name."""
    for argument, next_argument in zip(user_flags, (*user_flags, "")[1:], strict=True):
        name, equals, value = argument.partition("=")
        if name.replace("_", "-") in _ADDRESS_FLAGS:
            option = f"{name} {value if equals else next_argument}".rstrip()
            raise Problem(
                f"{name} after -- would hide the server from medley",
                cause="medley sets it, and asks the server by that name at that address until it is ready",
                fix=f"say it before the --: medley serve MODEL {option}",
            )
        worker_count = value if equals else next_argument
        if name.replace("_", "-").startswith(_WORKERS_PREFIX) and _is_above_one(worker_count):
            raise Problem(
                f"{name} {worker_count} would open the API without a key",
                cause="with more than one tokenizer process SGLang 0.5.23 listens on a TCP port instead of "
                "its user's socket, without a key and without medley's limits of media",
                fix="leave it out: medley serve MODEL -- --tokenizer-worker-num 1",
            )


def _is_above_one(text: str) -> bool:
    try:
        return int(text) > 1
    except ValueError:
        return False


class Argument(Value):
    """An argument of the engine's Python class, with its reason."""

    name: str
    value: Any
    why: str


_ADDRESS_FLAGS = ("--port", "--host", "--served-model-name")
_WORKERS_PREFIX = "--tokenizer-w"
"""The shortest prefix of --tokenizer-worker-num that argparse accepts."""
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
