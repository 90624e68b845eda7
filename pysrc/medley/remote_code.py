"""Remote code is Python that comes with a model, and that an engine runs if it is told to trust it."""

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medley import fingerprint
from medley.problem import Problem, in_words

MOST_FILES = 200
"""Python files, or tables, that a model may have."""
_MAP = "auto_map"
# The key as JSON may write it: any letter may stand as \u and four digits.
_NAMED = re.compile(
    b"".join(rb"(?:%s|\\u00%x)" % (re.escape(each.encode()), ord(each)) for each in _MAP), re.IGNORECASE
)
_REFERENCE = re.compile(r"[\w-]+(?:[./][\w-]+)*\.\w+")
_MOST_BYTES = 8 << 20
_MOST_TABLE_BYTES = 64 << 20
"""Of one table; the largest in use, a tokenizer's, has some 20 MiB."""


@dataclass(frozen=True)
class Code:
    """Every Python file beside a model's weights: one that is named may import the others."""

    where: str
    """The model's folder, or its ORG/NAME."""
    files: Mapping[str, str]
    """The SHA-256 of each."""
    commit: str | None = None
    """Of a repository; a folder has none."""

    @property
    def fingerprint(self) -> str:
        return fingerprint.of_all(self.files)

    @property
    def pin(self) -> str:
        """What names this very code: to be typed after --code-revision."""
        return self.commit or self.fingerprint

    @property
    def named(self) -> str:
        at = f" at commit {self.commit}" if self.commit else ""
        files = "1 Python file" if len(self.files) == 1 else f"{len(self.files)} Python files"
        return f"{files} of {self.where}{at}, SHA-256 {self.fingerprint}"

    def lines(self) -> Iterator[str]:
        """As sha256sum prints them."""
        return (f"{each}  {name}" for name, each in sorted(self.files.items()))


def modules(configs: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """The Python files that a model's configs name, by the configs' file names; none: it has no code.

    A Problem where they name another repository's: transformers reads its newest commit, whatever it is told.
    """
    found: dict[str, None] = {}
    for file, config in configs.items():
        for reference in _references(config):
            repository, separator, rest = reference.rpartition("--")
            if separator:
                raise _elsewhere(where, file, reference, repository)
            if not _REFERENCE.fullmatch(rest):
                raise Problem(
                    f"{where} names code that is not beside its weights",
                    cause=f"{file} names {reference[:200]!r}, and MODULE.CLASS is what can be looked at",
                    fix="take nothing of this model before you know why; without its code: --no-remote-code",
                )
            found[f"{rest.rpartition('.')[0].replace('.', '/')}.py"] = None
    return tuple(found)


def _references(value: object) -> Iterator[str]:
    """Each `MODULE.CLASS` of every auto_map, however deep it lies."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _strings(inner) if key == _MAP else _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


def _strings(value: object) -> Iterator[str]:
    """A tokenizer's has a list: the slow one, the fast one, or null."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)


def of_folder(folder: Path) -> Code | None:
    """The code in a model's folder, or None where its configs name none."""
    if not modules(configs(folder), str(folder)):
        return None
    return Code(str(folder), fingerprints(folder))


def configs(folder: Path) -> dict[str, Any]:
    """Every table of the model in which an engine may find an `auto_map`, by file name.

    Which files engines read changes with each of their versions, so that all `*.json` are looked at.
    """
    paths = sorted(_inside(folder, ".json"))
    _require_few(folder, paths, "tables")
    return {path.relative_to(folder).as_posix(): found for path in paths if (found := _table(path))}


def naming(text: bytes, where: str) -> Any:  # noqa: ANN401 - JSON may hold anything
    """What a JSON text holds, where it may name code; None where it cannot."""
    if not _NAMED.search(text):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Problem(f"{where} is not JSON", cause=str(error), fix="fetch that file again") from error


def _table(path: Path) -> Any:  # noqa: ANN401 - JSON may hold anything
    try:
        size = path.stat().st_size
        if size > _MOST_TABLE_BYTES:
            raise Problem(
                f"{path} is too large for a table of a model",
                cause=f"it has {size} bytes; at most {_MOST_TABLE_BYTES >> 20} MiB are looked at for code",
                fix="see what it is, and move it out of the model's folder",
            )
        return naming(path.read_bytes(), str(path))
    except OSError as error:
        raise Problem(
            f"{path} cannot be read", cause=in_words(error), fix=f"ls -l {shlex.quote(str(path))}"
        ) from error


def fingerprints(folder: Path) -> dict[str, str]:
    """Of every Python file in it, however deep."""
    _require_no_linked_folder(folder)
    paths = sorted(_inside(folder, ".py"))
    _require_few(folder, paths, "Python files")
    return {path.relative_to(folder).as_posix(): fingerprint.of_file(path) for path in paths}


def _inside(folder: Path, suffix: str) -> Iterator[Path]:
    """A link to a file is that file."""
    for where, _, names in os.walk(folder):
        found = (Path(where) / name for name in names if name.endswith(suffix))
        yield from (path for path in found if path.is_file())


def _require_no_linked_folder(top: Path) -> None:
    """What is behind one is not walked through, and an engine would import it."""
    for where, folders, _ in os.walk(top):
        for link in (Path(where) / name for name in folders):
            if link.is_symlink():
                raise Problem(
                    f"{link} is a link to a folder, in a model that has code",
                    cause=f"it leads to {link.readlink()}, whose Python nobody looked at",
                    fix=f"rm {shlex.quote(str(link))}  # or put the folder itself there",
                )


def _require_few(folder: Path, paths: list[Path], what: str) -> None:
    code = what != "tables"
    if len(paths) > MOST_FILES or (code and sum(path.stat().st_size for path in paths) > _MOST_BYTES):
        raise Problem(
            f"{folder} holds more {what} than a model has",
            cause=f"{len(paths)} files; at most {MOST_FILES}"
            + (f" of {_MOST_BYTES >> 20} MiB" if code else "")
            + " are looked at",
            fix="move the model to a folder of its own",
        )


def _elsewhere(where: str, file: str, reference: str, repository: str) -> Problem:
    return Problem(
        f"{where} runs code of another repository, which cannot be pinned",
        cause=f"{file} names {reference}, and an engine may take the newest there is in {repository}",
        fix=f"serve it from a folder: with the Python files of {repository} beside the weights, "
        f"and without '{repository}--' in {file}\n"
        "or without its code, if the engine knows this model by itself: --no-remote-code",
    )
