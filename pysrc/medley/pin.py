"""A pin is the code of a model that a user trusted: noted at first use, and held to from then on."""

import json
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from medley import fingerprint, store
from medley.problem import Problem
from medley.remote_code import Code
from medley.tables import RemoteCode


@dataclass(frozen=True)
class Pin:
    commit: str | None
    files: dict[str, str]
    """The SHA-256 of each."""
    when: str = field(default_factory=lambda: datetime.now(UTC).date().isoformat())

    @property
    def fingerprint(self) -> str:
        return fingerprint.of_all(self.files)


def read(where: str) -> Pin | None:
    """That of a model, by its folder or ORG/NAME."""
    found = _all().get(where)
    return Pin(**found) if found else None


def keep(code: Code) -> None:
    with store.lock(_file().with_suffix(".lock"), waits=lambda: None):
        store.write(
            _file(), json.dumps({**_all(), code.where: asdict(Pin(code.commit, dict(code.files)))}, indent=1)
        )


def require(code: Code, asked: str | None, pinned: Pin | None, listed: RemoteCode | None) -> None:
    """A Problem unless the code is what was asked for, or else pinned, and what the model's table lists.

    `asked`: a commit, or the beginning of a folder's fingerprint.
    """
    _require_listed(code, listed)
    if asked and not code.pin.startswith(asked):
        raise Problem(
            f"the code of {code.where} is not the one that you named",
            cause=f"--code-revision says {asked}; it is {code.pin}",
            fix=_look(code),
        )
    # Another commit that was asked for is another code; one and the same commit is not.
    held = pinned and (not asked or (code.commit is not None and code.commit == pinned.commit))
    if pinned and held and pinned.fingerprint != code.fingerprint:
        names = sorted(name for name in {**pinned.files, **code.files} if _differs(name, pinned, code))
        raise Problem(
            f"the code of {code.where} has changed since you trusted it",
            cause=f"on {pinned.when} its SHA-256 was {pinned.fingerprint}, now it is {code.fingerprint}; "
            f"what differs: {', '.join(names)}",
            fix=_look(code),
        )


def _require_listed(code: Code, listed: RemoteCode | None) -> None:
    for name, known in (listed.files if listed else {}).items():
        found = code.files.get(name)
        if found != known:
            raise Problem(
                f"{name} of {code.where} is not the file that the model's table knows",
                cause=f"the table has SHA-256 {known}, and it is {found or 'missing'}",
                fix="trust it when you know why, with a table of your own for that commit: docs/tables.md",
            )


def _differs(name: str, pinned: Pin, code: Code) -> bool:
    return pinned.files.get(name) != code.files.get(name)


def _look(code: Code) -> str:
    return f"read what it is now, and to trust that: --trust-remote-code --code-revision {code.pin}"


def _all() -> dict[str, Any]:
    if not _file().exists():
        return {}
    found = store.table(_file())
    if found is None or not all(map(_is_pin, found.values())):
        raise Problem(
            "the note of the code that you trusted is not whole",
            cause=f"{_file()} is torn, as by a power cut or by hand",
            fix=f"mv {_file()} {_file()}.torn  # then trust each model's code again",
        )
    return found


def _is_pin(table: object) -> bool:
    match table:
        case {"commit": str() | None, "files": dict(files), "when": str(), **more}:
            return not more and all(isinstance(each, str) for each in (*files, *files.values()))
        case _:
            return False


def _file() -> Path:
    return store.state() / "remote-code.json"
