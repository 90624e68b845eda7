"""Find values of flags that no other host can use: files of the image, and placeholders."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from medley.serving.community_recipe.shell_command import EngineFlag, needs_shell

_PATH_PATTERN = re.compile(r"(~|\.{1,2})?/|[^{\s]*\.(jinja2?|py|ya?ml|json|so)$")
_SNAPSHOT_PATTERN = re.compile(r"/models--([\w.-]+?)--([\w.-]+)/snapshots/([0-9a-f]{40})/?$")
_PLACEHOLDER_PATTERN = re.compile(r"<[^<>]*>?$|\[[A-Z_ -]+\]$")
UNFILLED_PATTERN = re.compile(r"\{[A-Za-z_][\w.]*\}")  # JSON has none


def find_obstacle(name: str, value: str, option: str | None = None) -> str | None:
    """Return why a value cannot be used, or None; `option` is medley's own for this flag."""
    advice = f"add {option} and its value" if option else "add its value after --"
    if unfilled := UNFILLED_PATTERN.search(value):
        return f"{unfilled[0]} has no value in 'defaults'"
    if needs_shell(value):
        return f"{value} needs a shell: {advice}"
    if _PLACEHOLDER_PATTERN.match(value):
        return f"{value} is for you to fill in: {advice}"
    table = _parse_table(value)
    if table is not None:
        return _find_json_obstacle(name, table)
    if _PATH_PATTERN.match(value) and not _SNAPSHOT_PATTERN.search(value):
        return f"{value} is a file in the recipe's image: copy it here, then add -- {name} FILE"
    return None


def _parse_table(value: str) -> dict[str, Any] | None:
    try:
        parsed = json.loads(value) if value.lstrip().startswith("{") else None
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def _find_json_obstacle(name: str, table: Mapping[str, Any]) -> str | None:
    """Return why a JSON value cannot be used: a file of the image inside it."""
    consequence = "; speculation is lost with it" if name in {"--speculative-config", "-sc"} else ""
    for key, value in _list_leaves(table):
        if _PATH_PATTERN.match(value) and not _SNAPSHOT_PATTERN.search(value):
            advice = f"copy it here, then add -- {name} JSON{consequence}"
            return f"{key} {value} is a file in the recipe's image: {advice}"
    return None


def _list_leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the text values of a JSON table, each with its key."""
    for key, value in table.items():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                yield from _list_leaves(item, f"{prefix}{key}.")
            elif isinstance(item, str):
                yield f"{prefix}{key}", item


def replace_snapshots(flag: EngineFlag) -> EngineFlag:
    """Return the flag with a repository, and its commit, instead of a snapshot's folder in the cache."""
    return flag.replace(values=tuple(map(_replace_snapshot, flag.values)))


def _replace_snapshot(value: str) -> str:
    table = _parse_table(value)
    if table is None:
        match = _SNAPSHOT_PATTERN.search(value)
        return f"{match[1]}/{match[2]}" if match and not value.lstrip().startswith("{") else value
    match = _SNAPSHOT_PATTERN.search(str(table.get("model", "")))
    if match is None:
        return value
    return json.dumps(
        {**table, "model": f"{match[1]}/{match[2]}", "revision": match[3]}, separators=(",", ":")
    )
