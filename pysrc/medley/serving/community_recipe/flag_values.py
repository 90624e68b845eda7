"""Find values of flags that no other host can use: files of the image, and blanks."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from medley.serving.community_recipe.shell_command import EngineFlag, needs_shell

_PATH = re.compile(r"(~|\.{1,2})?/|[^{\s]*\.(jinja2?|py|ya?ml|json|so)$")
_SNAPSHOT = re.compile(r"/models--([\w.-]+?)--([\w.-]+)/snapshots/([0-9a-f]{40})/?$")
_BLANK = re.compile(r"<[^<>]*>?$|\[[A-Z_ -]+\]$")
UNFILLED = re.compile(r"\{[A-Za-z_][\w.]*\}")  # JSON has none


def unusable(name: str, value: str, option: str | None = None) -> str | None:
    """Return why a value cannot be used, or None; `option` is medley's own for this flag."""
    add = f"add {option} and its value" if option else "add its value after --"
    if unfilled := UNFILLED.search(value):
        return f"{unfilled[0]} has no value in 'defaults'"
    if needs_shell(value):
        return f"{value} needs a shell: {add}"
    if _BLANK.match(value):
        return f"{value} is for you to fill in: {add}"
    table = _json(value)
    if table is not None:
        return _unusable_json(name, table)
    if _PATH.match(value) and not _SNAPSHOT.search(value):
        return f"{value} is a file in the recipe's image: copy it here, then add -- {name} FILE"
    return None


def _json(value: str) -> dict[str, Any] | None:
    try:
        found = json.loads(value) if value.lstrip().startswith("{") else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _unusable_json(name: str, table: Mapping[str, Any]) -> str | None:
    """Return why a JSON value cannot be used: a file of the image inside it."""
    lost = "; speculation is lost with it" if name in {"--speculative-config", "-sc"} else ""
    for key, value in _leaves(table):
        if _PATH.match(value) and not _SNAPSHOT.search(value):
            return (
                f"{key} {value} is a file in the recipe's image: copy it here, then add -- {name} JSON{lost}"
            )
    return None


def _leaves(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Yield the text values of a JSON table, each with its key."""
    for key, value in table.items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict):
                yield from _leaves(each, f"{before}{key}.")
            elif isinstance(each, str):
                yield f"{before}{key}", each


def with_repositories(flag: EngineFlag) -> EngineFlag:
    """Name the repository and its commit in place of a snapshot's folder in the hub's cache."""
    return replace(flag, values=tuple(map(_with_repository, flag.values)))


def _with_repository(value: str) -> str:
    table = _json(value)
    if table is None:
        match = _SNAPSHOT.search(value)
        return f"{match[1]}/{match[2]}" if match and not value.lstrip().startswith("{") else value
    match = _SNAPSHOT.search(str(table.get("model", "")))
    if match is None:
        return value
    return json.dumps(
        {**table, "model": f"{match[1]}/{match[2]}", "revision": match[3]}, separators=(",", ":")
    )
