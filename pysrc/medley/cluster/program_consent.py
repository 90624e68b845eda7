"""List the programs that a cluster.toml names, and record the user's consent to run them.

A cloned repository may contain a cluster.toml, and its folder belongs to the user. The consent covers the
programs of one path, so that a changed host or network needs no new one.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from medley import config, json_shape, storage
from medley.command import quote_path
from medley.errors import Problem
from medley.schema import find_variable_refusal

_HARMLESS_KEYS = {"link", "exclude", "engine", "role", "kind", "slots", "container"}
_DEFAULT_IMAGE = ("image", "default")
_PLAIN_TARGET_PATTERN = re.compile(r"[\w.@:/\[\]-]+(%\w+)?\]?(:\d+)?", re.ASCII)
"""A target without a sign of a shell: ProxyCommand and `Match exec` of ssh_config put it into a command."""


def list_programs(table: Mapping[str, Any]) -> tuple[str, ...]:
    """Return each key of a cluster.toml that may run a program or load code, with its value."""
    hosts = table.get("hosts", {}).items()
    parts = [("", {key: value for key, value in table.items() if key != "hosts"})]
    parts += [(f"hosts.{name}.", host) for name, host in hosts]
    return tuple(
        f"{prefix}{key} = {json.dumps(value)}"
        for prefix, part in parts
        for key, value in _list_program_keys(part)
    )


def _list_program_keys(part: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in part.items():
        if key == "environment":
            yield from (
                (f"environment.{name}", text)
                for name, text in value.items()
                if find_variable_refusal(name, text)
            )
        elif key == "ssh":
            yield from () if _PLAIN_TARGET_PATTERN.fullmatch(value) else ((key, value),)
        elif key == "env":
            yield from () if value in config.load_recipes() else ((key, value),)
        elif key not in _HARMLESS_KEYS and (key, value) != _DEFAULT_IMAGE:
            yield key, value


def require_consent(path: Path, table: Mapping[str, Any]) -> None:
    """Raise a Problem for a file with programs that the user has not accepted."""
    programs = list_programs(table)
    if not programs or _read_consents().get(str(path.resolve())) == _compute_digest(programs):
        return
    quoted_path = quote_path(path.absolute())
    raise Problem(
        f"{path.absolute()} would run programs that you have not accepted",
        cause="it lies in this folder, as it may in any clone, and names:\n" + "\n".join(programs),
        fix=f"medley check --accept {quoted_path}  # after you read it; or once: --cluster {quoted_path}",
    )


def record_consent(path: Path, table: Mapping[str, Any]) -> None:
    """Accept the programs that the file names now, if any."""
    programs, file = list_programs(table), _get_consents_file()
    if not programs:
        return
    with storage.lock_file(file.with_suffix(".lock"), on_wait=lambda: None):
        consents = {**_read_consents(), str(path.resolve()): _compute_digest(programs)}
        storage.write_text(file, json.dumps(consents, indent=1))


def _compute_digest(programs: tuple[str, ...]) -> str:
    return storage.hash_bytes("\n".join(programs).encode())


def _read_consents() -> dict[str, str]:
    consents = storage.read_table(_get_consents_file())
    return consents if consents is not None and json_shape.has_type(consents, dict[str, str]) else {}


def _get_consents_file() -> Path:
    return storage.find_state_folder() / "accepted-clusters.json"
