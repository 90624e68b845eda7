"""Find and read the TOML tables; report errors with file, line and key.

A file is searched in this order, and the first folder that has it wins:

1. `$MEDLEY_CONFIG`, or `~/.config/medley`: your own `hosts/`, `models/` and `locks/`;
2. the source tree, where medley runs from a checkout;
3. `medley/data/` inside the installed package.

Nix reads `hosts/*.toml` with `fromTOML`, so the files use only what both readers support: no dates, no floats
for versions, integers below 2^63.
"""

import difflib
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from medley import storage
from medley.command import quote_word
from medley.errors import Problem
from medley.host_schema import HostTable, Recipe
from medley.schema import Model
from medley.unusable_file import skip_unusable_file
from medley.values import FileTable, Mistake, list_mistakes

_T = TypeVar("_T", bound=FileTable)
_KINDS: dict[str, type[FileTable]] = {"hosts": HostTable, "models": Model, "locks": Recipe}
_MAX_BYTES = 1 << 20
# The parser takes quadratic time for a key of thousands of parts.
_DEEP_KEY_PATTERN = re.compile(r"""(?<![\w"'-])(?:[\w"'-]++[ \t]*+\.[ \t]*+){32}""")
_HEADER_PATTERN = re.compile(r"\s*\[(\[?)\s*([^\[\]]+?)\s*\]\]?\s*(#.*)?$")
_PAGE_PATTERN = re.compile(r"(?<![\w/])docs/[\w/-]+\.md")
_KEY_PATTERN = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
# Comments and one-line strings come first, because quotes in them do not open a multi-line string.
_STRING_PATTERN = re.compile(
    r"""(?P<several>'{3}.*?'{3,5}|"{3}(?:\\.|[^\\])*?"{3,5})|\#[^\n]*|'[^'\n]*'|"(?:\\.|[^"\\\n])*\"""",
    re.DOTALL,
)


def list_config_folders() -> tuple[Path, ...]:
    """Return the folders of tables in order of search."""
    return _list_folders(*(os.environ.get(name) for name in ("MEDLEY_CONFIG", "XDG_CONFIG_HOME", "HOME")))


# A plan asks a thousand times, each time for the same environment.
@lru_cache(maxsize=8)
def _list_folders(*_variables: str | None) -> tuple[Path, ...]:
    user_folder = storage.find_config_folder()
    package = Path(__file__).parent
    checkout = package.parent.parent
    tree = (checkout,) if (checkout / "pyproject.toml").is_file() else ()
    return (user_folder, *tree, package / "data")


def resolve_pages(text: str) -> str:
    """Name each page of the documentation by its path here: a checkout's, or the copy in the package."""
    return _PAGE_PATTERN.sub(lambda match: _find_page(match[0]), text)


def _find_page(name: str) -> str:
    for folder in list_config_folders():
        if storage.is_visible_file(path := folder / name):
            return str(path)
    return name


def find_table_files(
    kind: str, suffix: str = ".toml", folders: Sequence[Path] | None = None
) -> dict[str, Path]:
    """Return every NAME.toml in the folders' `kind`, by name."""
    paths: dict[str, Path] = {}
    for folder in list_config_folders() if folders is None else folders:
        for path in list_tables(folder / kind, suffix):
            paths.setdefault(path.stem, path)
    return paths


def list_tables(folder: Path, suffix: str = ".toml") -> list[Path]:
    """List the tables in a folder; one that this user may not enter is left out."""
    with skip_unusable_file():
        return storage.list_folder(folder, f"*{suffix}")
    return []


class Tables(Mapping[str, _T]):
    """Tables by name, each read on first use, so that an invalid one does not affect others."""

    def __init__(self, kind: str, shape: type[_T], folders: Sequence[Path] | None = None) -> None:
        self._paths, self._shape = find_table_files(kind, folders=folders), shape
        self._tables: dict[str, _T] = {}

    def __getitem__(self, name: str) -> _T:
        if name not in self._tables:
            self._tables[name] = read_table(self._paths[name], self._shape)
        return self._tables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def __contains__(self, name: object) -> bool:
        return name in self._paths  # Mapping's own would read it


def load_hosts() -> Mapping[str, HostTable]:
    return Tables("hosts", HostTable)


def load_models() -> Mapping[str, Model]:
    return Tables("models", Model)


def load_shipped_models() -> Mapping[str, Model]:
    """Return medley's own tables of models, without the user's, which somebody else may have written."""
    return Tables("models", Model, list_config_folders()[1:])


def load_recipes() -> Mapping[str, Recipe]:
    return Tables("locks", Recipe)


def read_table(path: Path, shape: type[_T]) -> _T:
    """Read the table in a file; a Problem names the file, the key and the nearest valid key."""
    try:
        return cast("_T", _read(_read_text(path), shape, str(path)))
    except RecursionError as error:
        raise Problem(f"{path} is not TOML", cause="it nests too deep", fix=f"fix {path}") from error
    except ValueError as error:  # not UTF-8, not TOML, or a number of thousands of digits
        raise Problem(f"{path} is not TOML", cause=str(error), fix=f"fix that line of {path}") from error
    except OSError as error:
        raise storage.build_file_problem(path, error, "read") from error


def read_module_table(module: str, name: str) -> dict[str, Any]:
    """Read a table of the program's own, which stands next to the module of this `__file__`."""
    return tomllib.loads(Path(module).with_name(name).read_text(encoding="utf-8"))


@lru_cache(maxsize=256)
def _read(text: str, shape: type[FileTable], where: str) -> FileTable:
    """Parse a file's text once per process, because a command reads the same tables many times."""
    if deep_key := _DEEP_KEY_PATTERN.search(text):
        raise ValueError(
            f"line {text.count(chr(10), 0, deep_key.start()) + 1} has a key of more than 32 parts"
        )
    return build_table(tomllib.loads(text), shape, where, text)


def _read_text(path: Path) -> str:
    """Read a file without the byte order mark of some editors."""
    with path.open("rb") as file:
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise ValueError(f"it has more than {_MAX_BYTES >> 20} MiB")
    return content.decode("utf-8-sig").replace("\r\n", "\n")


def build_table(table: Mapping[str, Any], shape: type[_T], where: str, text: str = "") -> _T:
    """Validate a table; `text` is its source, for line numbers."""
    try:
        # Through JSON, which has no dates.
        return shape.from_json(json.dumps(table))
    except msgspec.ValidationError as error:
        # An unknown key comes first, because it is often a misspelled missing one.
        mistakes = sorted(list_mistakes(table, shape), key=lambda mistake: mistake.kind != "unknown")
        if not mistakes:
            raise AssertionError(error) from None
        raise _build_problem(mistakes, where, text) from None
    except (RecursionError, ValueError) as error:
        raise Problem(f"{where} nests too deep", cause=str(error)[:200], fix=f"fix {where}") from error
    except TypeError as error:
        raise Problem(f"{where} has a date", cause=str(error), fix="write it as a string") from error


def _build_problem(mistakes: Sequence[Mistake], where: str, text: str) -> Problem:
    first, *others = mistakes
    key = ".".join(map(str, first.path)) or "the table"
    number = find_line(text, first.path)
    where = f"{where}:{number}" if number else where
    cause, fix = first.why, f"fix {quote_word(key)} in {where}"
    if first.kind == "unknown":
        close_names = difflib.get_close_matches(str(first.path[-1]), first.known, n=1)
        cause = f"unknown key; the keys are {', '.join(first.known)}"
        fix = f"rename it to '{close_names[0]}'" if close_names else "remove it"
    elif first.kind == "missing":
        cause, fix = "it is required", f"add '{key} = …' to {where}"
    fix = first.fix or fix
    if others:
        cause += f"; also not valid: {', '.join('.'.join(map(str, other.path)) for other in others)}"
    state = "is missing" if first.kind == "missing" else "is wrong"
    return Problem(f"{where}: '{key}' {state}", cause=cause, fix=fix)


def check_tables() -> dict[Path, Problem | None]:
    """Check every table in every folder, also hidden ones; returns the Problem of each, if any."""
    return {
        path: _find_mistake(path, shape)
        for folder in list_config_folders()
        for kind, shape in _KINDS.items()
        for path in list_tables(folder / kind)
    }


def _find_mistake(path: Path, shape: type[FileTable]) -> Problem | None:
    try:
        table = read_table(path, shape)
    except Problem as problem:
        return problem
    if isinstance(table, Recipe) and not path.with_suffix(".txt").is_file():
        return Problem(
            f"{path} has no lock", cause=f"{path.stem}.txt is not next to it", fix="medley env lock"
        )
    if not isinstance(table, HostTable):
        return None
    known = find_table_files("locks")
    for engine, name in table.environments.items():
        if name not in known:
            return Problem(
                f"{path}: '{engine}' names an unknown environment",
                cause=f"there is no locks/{name}.toml; the locks are {', '.join(known)}",
                fix=f"fix environments.{engine} in {path}",
            )
    return None


def find_line(text: str, path: Sequence[object]) -> int | None:
    """Return the line number of the key at `path`, or of the nearest table above it."""
    key_path = tuple(path)
    best: tuple[int, int] | None = None
    for number, location in _locate_keys(text):
        depth = min(len(location), len(key_path))  # [a.b] is also the place of the table `a`
        if location[:depth] == key_path[:depth] and (best is None or depth > best[0]):
            best = depth, number
    return best[1] if best else None


def _locate_keys(text: str) -> Iterator[tuple[int, tuple[str | int, ...]]]:
    table: tuple[str | int, ...] = ()
    lists: dict[tuple[str | int, ...], int] = {}
    blank = _STRING_PATTERN.sub(
        lambda match: "\n" * match[0].count("\n") if match["several"] else match[0], text
    )
    for number, text_line in enumerate(blank.split("\n"), 1):
        if header := _HEADER_PATTERN.fullmatch(text_line):
            *parents, last = _split_key(header[2])
            table = ()
            for part in parents:  # an array means its last table so far
                table = (*table, part)
                table = (*table, lists[table]) if table in lists else table
            table = (*table, last)
            if header[1]:
                lists[table] = lists.get(table, -1) + 1
                table = (*table, lists[table])
            elif table in lists:
                table = (*table, lists[table])
            yield number, table
        elif key := _KEY_PATTERN.match(text_line):
            yield number, (*table, *_split_key(key[1]))


def _split_key(dotted: str) -> tuple[str, ...]:
    try:
        table = tomllib.loads(f"{dotted} = 0")
    except tomllib.TOMLDecodeError:
        return (dotted,)
    parts = []
    while isinstance(table, dict):
        ((name, table),) = table.items()
        parts.append(name)
    return tuple(parts)
