"""What people write down: kinds of hosts, models and engine environments, one TOML table each.

A file is looked for in this order, and the first folder that has it wins:

1. `$MEDLEY_CONFIG`, or `~/.config/medley`: your own `hosts/`, `models/` and `locks/`;
2. the source tree, where medley runs from a checkout;
3. `medley/data/` inside the installed package.

Nix reads `hosts/*.toml` with `fromTOML`, so the files keep to what both readers know: no dates, no floats
for versions, integers below 2^63.
"""

import difflib
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from medley import located
from medley.problem import Problem, in_words
from medley.tables import Host, Model, Recipe, Table

_T = TypeVar("_T", bound=Table)
_MOST_BYTES = 1 << 20
# The reader takes quadratic time for a key of thousands of parts.
_DEEP = re.compile(r"""(?<![\w"'-])(?:[\w"'-]++[ \t]*+\.[ \t]*+){32}""")


def folders() -> tuple[Path, ...]:
    """Where tables are looked for, first to last."""
    home = os.environ.get("MEDLEY_CONFIG")
    xdg = os.environ.get("XDG_CONFIG_HOME")
    own = Path(home) if home else (Path(xdg) if xdg else Path.home() / ".config") / "medley"
    package = Path(__file__).parent
    checkout = package.parent.parent
    tree = (checkout,) if (checkout / "pyproject.toml").is_file() else ()
    return (own, *tree, package / "data")


def files(kind: str, suffix: str = ".toml") -> dict[str, Path]:
    """Every NAME.toml in the folders' `kind`, by name; the first folder that has a name wins."""
    found: dict[str, Path] = {}
    for folder in folders():
        for path in sorted((folder / kind).glob(f"*{suffix}")):
            found.setdefault(path.stem, path)
    return found


class Tables(Mapping[str, _T]):
    """Tables by name, each read when it is asked for: one with a typo harms nobody who does not want it."""

    def __init__(self, kind: str, shape: type[_T]) -> None:
        self._paths, self._shape = files(kind), shape

    def __getitem__(self, name: str) -> _T:
        return read(self._paths[name], self._shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def __contains__(self, name: object) -> bool:
        return name in self._paths  # Mapping's own would read it


def hosts() -> Mapping[str, Host]:
    """Every kind of host, by name."""
    return Tables("hosts", Host)


def models() -> Mapping[str, Model]:
    return Tables("models", Model)


def recipes() -> Mapping[str, Recipe]:
    return Tables("locks", Recipe)


def read(path: Path, shape: type[_T]) -> _T:
    """The table in a file, or a Problem that names the file, the key and the nearest right one."""
    try:
        text = _text(path)
        table = tomllib.loads(text)
    except RecursionError as error:
        raise Problem(f"{path} is not TOML", cause="it nests too deep", fix=f"mend {path}") from error
    except ValueError as error:  # no UTF-8, no TOML, or a number of thousands of digits
        raise Problem(f"{path} is not TOML", cause=str(error), fix=f"mend that line of {path}") from error
    except OSError as error:
        raise Problem(
            f"{path} cannot be read", cause=in_words(error), fix="mend its path or permissions"
        ) from error
    return build(table, shape, str(path), text)


def _text(path: Path) -> str:
    """Without the mark that some editors put before it."""
    with path.open("rb") as file:
        found = file.read(_MOST_BYTES + 1)
    if len(found) > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES >> 20} MiB")
    text = found.decode("utf-8-sig").replace("\r\n", "\n")
    if deep := _DEEP.search(text):
        raise ValueError(f"line {text.count(chr(10), 0, deep.start()) + 1} has a key of more than 32 parts")
    return text


def build(table: Mapping[str, Any], shape: type[_T], where: str, text: str = "") -> _T:
    """The table in its shape, or a Problem; `text` is what it was read from, for the number of a line."""
    try:
        # Through JSON, because strict mode then takes lists for tuples and still no string for a number.
        return shape.model_validate_json(json.dumps(table))
    except ValidationError as error:
        raise _invalid(error, shape, where, text) from None
    except (RecursionError, ValueError) as error:
        raise Problem(f"{where} nests too deep", cause=str(error)[:200], fix=f"mend {where}") from error
    except TypeError as error:
        raise Problem(f"{where} holds a date", cause=str(error), fix="write it as a string") from error


def _invalid(error: ValidationError, shape: type[Table], where: str, text: str) -> Problem:
    # A key that nobody knows is often why another is missing: it is said first.
    first, *more = sorted(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
    key = ".".join(str(part) for part in first["loc"]) or "the table"
    number = located.line(text, first["loc"])
    where = f"{where}:{number}" if number else where
    cause = first["msg"]
    fix = f"mend '{key}' in {where}"
    if first["type"] == "extra_forbidden":
        known = _keys(shape, first["loc"][:-1])
        near = difflib.get_close_matches(str(first["loc"][-1]), known, n=1)
        cause = f"no such key; it could be {', '.join(known)}"
        fix = f"rename it to '{near[0]}'" if near else "remove it"
    elif first["type"] == "missing":
        cause, fix = f"every {shape.__name__.lower()} has one", f"add '{key} = …' to {where}"
    if more:
        cause += f"; wrong too: {', '.join('.'.join(map(str, other['loc'])) for other in more)}"
    state = "is missing" if first["type"] == "missing" else "is wrong"
    return Problem(f"{where}: '{key}' {state}", cause=cause, fix=fix)


def _keys(shape: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """The keys of the table that lies at `path` below `shape`."""
    parts = iter(path)
    for part in parts:
        field = shape.model_fields.get(str(part))
        if field and "Mapping" in str(field.annotation):
            next(parts, None)  # of a table of tables, the name
        inner = next(iter(_tables(field.annotation)), None) if field else None
        if inner is None:
            return []
        shape = inner
    return list(shape.model_fields)


def _tables(annotation: Any) -> list[type[BaseModel]]:  # noqa: ANN401 - a type as typing writes it
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [table for part in getattr(annotation, "__args__", ()) for table in _tables(part)]


def check() -> dict[Path, Problem | None]:
    """Every table in every folder, also one that another of its name hides, and what is wrong with it."""
    shapes: dict[str, type[Table]] = {"hosts": Host, "models": Model, "locks": Recipe}
    return {
        path: _wrong(path, shape)
        for folder in folders()
        for kind, shape in shapes.items()
        for path in sorted((folder / kind).glob("*.toml"))
    }


def _wrong(path: Path, shape: type[Table]) -> Problem | None:
    try:
        table = read(path, shape)
    except Problem as problem:
        return problem
    match table:
        case Host():
            return _missing_environment(path, table)
        case Recipe() if not path.with_suffix(".txt").is_file():
            return Problem(
                f"{path} has no lock", cause=f"{path.stem}.txt is not beside it", fix="remake the lock"
            )
        case _:
            return None


def _missing_environment(path: Path, host: Host) -> Problem | None:
    known = files("locks")
    for engine, name in host.environments.items():
        if name not in known:
            return Problem(
                f"{path}: '{engine}' names an unknown environment",
                cause=f"there is no locks/{name}.toml; there are {', '.join(known)}",
                fix=f"mend environments.{engine} in {path}",
            )
    return None
