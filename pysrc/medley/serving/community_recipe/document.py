"""Read the text of a recipe: YAML of safe types only, no aliases, bounded; or the command of a guide."""

import json
import re
from collections.abc import Mapping

import yaml

from medley.errors import Problem

MOST_BYTES = 128 << 10
"""The largest recipe of vllm-project/recipes, which has its guide inside, had 40 KiB in August 2026."""
_DEEPEST = 16
# Control and direction characters, which could hide the real command in a terminal.
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

# What starts an engine, and a line of YAML that no command has: KEY: at its beginning.
_COMMAND = re.compile(
    r"\bvllm\s+serve\b|\bsglang\s+serve\b|-m\s+(?:sglang\.launch_server|vllm\.entrypoints)"
    r"|\b(?:docker|podman|nerdctl)\s+(?:\w+\s+)?run\b"
)
_KEY = re.compile(r"^[A-Za-z_][\w-]*:(?:[ \t]|$)", re.MULTILINE)

Value = str | int | float | bool | None


def document(raw: bytes, where: str) -> dict[str, object]:
    """Read the top-level table of a recipe; a command line is a recipe that has only `command`."""
    if len(raw) > MOST_BYTES:
        raise _problem(where, f"it has more than {MOST_BYTES >> 10} KiB")
    try:
        text = raw.decode("utf-8-sig")
        if _COMMAND.search(text) and not _KEY.search(text):
            _require_seen(text, where)
            return {"command": text}
        _require_plain(text, where)
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise _problem(where, " ".join(str(error).split())) from error
    except (RecursionError, ValueError) as error:  # not UTF-8, or an invalid date or number
        raise _problem(where, str(error)[:200]) from error
    if not isinstance(found, dict):
        raise _problem(where, "it is not a table of keys and values")
    return {str(key): value for key, value in found.items()}


def _require_seen(text: str, where: str) -> None:
    if unseen := _UNSEEN.search(text.replace("\r\n", "\n")):
        line = text.count("\n", 0, unseen.start()) + 1
        raise _problem(where, f"line {line} has the control character U+{ord(unseen[0]):04X}")


def _require_plain(text: str, where: str) -> None:
    """Refuse aliases and deep nesting, which make a short text slow or large, and hidden characters."""
    depth = 0
    for event in yaml.parse(
        text, Loader=yaml.SafeLoader
    ):  # lazily, because deep nesting takes quadratic time
        if isinstance(event, yaml.AliasEvent):
            line = event.start_mark.line + 1
            raise _problem(where, f"line {line} has the alias *{event.anchor}, which medley does not support")
        if isinstance(event, yaml.ScalarEvent) and (unseen := _UNSEEN.search(event.value)):
            line = event.start_mark.line + 1
            raise _problem(where, f"line {line} has the control character U+{ord(unseen[0]):04X}")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise _problem(where, f"it nests deeper than {_DEEPEST} tables")


def _problem(where: str, cause: str) -> Problem:
    return Problem(
        f"{where} is not a recipe",
        cause=cause,
        fix="name a recipe of sparkrun (YAML), or a file with the engine's command line (vllm serve …, "
        "docker run …): medley models import FILE",
    )


def tables(recipe: Mapping[str, object], key: str, where: str) -> dict[str, Value]:
    """Return the table `key` of a recipe; nested values become text."""
    found = recipe.get(key) or {}
    if not isinstance(found, dict):
        cause = f"it is {type(found).__name__}, not a table of keys and values"
        raise Problem(f"{where}: '{key}' is wrong", cause=cause, fix=f"fix '{key}' in {where}")
    return {str(name): _plain(value) for name, value in found.items()}


def _plain(value: object) -> Value:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    # As sparkrun 0.4 puts it into a command: compact JSON.
    return json.dumps(value, separators=(",", ":")) if isinstance(value, dict | list) else str(value)
