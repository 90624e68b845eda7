"""Read the text of a recipe: YAML of safe types only, no aliases, bounded; or the command of a guide."""

import json
import re
from collections.abc import Mapping
from typing import ClassVar

import yaml

from medley.command import quote_word
from medley.errors import Problem

MAX_RECIPE_BYTES = 128 << 10
"""The largest recipe of vllm-project/recipes, which has its guide inside, had 40 KiB in August 2026."""
_MAX_DEPTH = 16
# Control and direction characters, which could hide the real command in a terminal.
_HIDDEN_CHARACTERS_PATTERN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)

# The start of an engine, and a line that only YAML has: it begins with KEY:.
_ENGINE_COMMAND_PATTERN = re.compile(
    r"\bvllm\s+serve\b|\bsglang\s+serve\b|-m\s+(?:sglang\.launch_server|vllm\.entrypoints)"
    r"|\b(?:docker|podman|nerdctl)\s+(?:\w+\s+)?run\b"
)
_YAML_KEY_PATTERN = re.compile(r"^[A-Za-z_][\w-]*:(?:[ \t]|$)", re.MULTILINE)

ScalarValue = str | int | float | bool | None
_FALSE_WORDS = {"false", "no", "off", "0", ""}


class _CoreLoader(yaml.SafeLoader):  # type: ignore[misc]  # it has no types
    """Read plain values as YAML 1.2 does (https://yaml.org/spec/1.2.2/#103-core-schema), not as PyYAML's 1.1.

    In 1.1 `12:30:00` is the number 45000, 010 is 8, `1_000` is 1000, and yes, no, on and off are booleans,
    which `is_yes` reads where one is meant.
    """

    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {}


for _name, _pattern, _first_letters in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
):
    _CoreLoader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_name}", re.compile(rf"(?:{_pattern})\Z"), _first_letters
    )


def _construct_int(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    text = loader.construct_scalar(node)
    return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))


_CoreLoader.add_constructor("tag:yaml.org,2002:int", _construct_int)


def read_document(raw: bytes, source: str) -> dict[str, object]:
    """Read the top-level table of a recipe; a command line is a recipe that has only `command`."""
    if len(raw) > MAX_RECIPE_BYTES:
        raise _document_problem(source, f"it has more than {MAX_RECIPE_BYTES >> 10} KiB")
    try:
        text = raw.decode("utf-8-sig")
        if _ENGINE_COMMAND_PATTERN.search(text) and not _YAML_KEY_PATTERN.search(text):
            _require_visible(text, source)
            return {"command": text}
        _require_plain_yaml(text, source)
        parsed = yaml.load(text, Loader=_CoreLoader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        raise _document_problem(source, " ".join(str(error).split())) from error
    except (RecursionError, ValueError) as error:  # not UTF-8, or an invalid date or number
        raise _document_problem(source, str(error)[:200]) from error
    if not isinstance(parsed, dict):
        raise _document_problem(source, "it is not a table of keys and values")
    return {str(key): value for key, value in parsed.items()}


def _require_visible(text: str, source: str) -> None:
    if hidden := _HIDDEN_CHARACTERS_PATTERN.search(text.replace("\r\n", "\n")):
        line = text.count("\n", 0, hidden.start()) + 1
        raise _document_problem(source, f"line {line} has the control character U+{ord(hidden[0]):04X}")


def _require_plain_yaml(text: str, source: str) -> None:
    """Refuse aliases and deep nesting, which make a short text slow or large, and hidden characters."""
    depth = 0
    # The events are parsed lazily, because deep nesting takes quadratic time.
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            line = event.start_mark.line + 1
            raise _document_problem(
                source, f"line {line} has the alias *{event.anchor}, which medley does not support"
            )
        if isinstance(event, yaml.ScalarEvent) and (hidden := _HIDDEN_CHARACTERS_PATTERN.search(event.value)):
            line = event.start_mark.line + 1
            raise _document_problem(source, f"line {line} has the control character U+{ord(hidden[0]):04X}")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            raise _document_problem(source, f"it nests deeper than {_MAX_DEPTH} tables")


def _document_problem(source: str, cause: str) -> Problem:
    return Problem(
        f"{source} is not a recipe",
        cause=cause,
        fix="name a recipe of sparkrun (YAML), or a file with the engine's command line (vllm serve …, "
        "docker run …): medley models import FILE",
    )


def read_table(recipe: Mapping[str, object], key: str, source: str) -> dict[str, ScalarValue]:
    """Return the table `key` of a recipe; nested values become text."""
    table = recipe.get(key) or {}
    if not isinstance(table, dict):
        cause = f"it is {type(table).__name__}, not a table of keys and values"
        raise Problem(f"{source}: '{key}' is wrong", cause=cause, fix=f"fix {quote_word(key)} in {source}")
    return {str(name): _convert_value(value) for name, value in table.items()}


def is_yes(value: object) -> bool:
    """Return whether a switch of a recipe is on: true, yes, on, or any value but a word for no."""
    return bool(value) and str(value).lower() not in _FALSE_WORDS


def _convert_value(value: object) -> ScalarValue:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    # As sparkrun 0.4 puts it into a command: compact JSON.
    return json.dumps(value, separators=(",", ":")) if isinstance(value, dict | list) else str(value)
