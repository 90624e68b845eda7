"""Find the Python files that come with a model."""

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medley import storage
from medley.errors import Problem
from medley.model import hub
from medley.model.checkpoint import json_value, readable

if TYPE_CHECKING:  # half a second to import, and seldom needed
    from huggingface_hub import HfApi

MOST_FILES = 200
"""Python files, or tables, that a model may have."""
_MOST_BYTES = 8 << 20
_MOST_TABLE_BYTES = 64 << 20
"""Of one table; the largest in use, a tokenizer's, has some 20 MiB."""
_DATA = ("tokenizer.json", "vocab.json", ".index.json")
"""Ends of the names of large files that hold data alone, and which no class is made from."""
_MAP = "auto_map"
# The key as JSON may write it: any letter may stand as \u and four digits.
_NAMED = re.compile(
    b"".join(rb"(?:%s|\\u00%x)" % (re.escape(each.encode()), ord(each)) for each in _MAP), re.IGNORECASE
)
_REFERENCE = re.compile(r"[\w-]+(?:[./][\w-]+)*\.\w+")


@dataclass(frozen=True)
class Code:
    """Every Python file of a model: one may import the others."""

    where: str
    files: Mapping[str, str]
    """SHA-256 by path."""
    commit: str | None = None
    """Of a repository; a folder has none."""

    @property
    def fingerprint(self) -> str:
        return storage.hash_all(self.files)

    @property
    def pin(self) -> str:
        """The value of --code-revision for this very code."""
        return self.commit or self.fingerprint

    @property
    def named(self) -> str:
        at = f" at commit {self.commit}" if self.commit else ""
        files = "1 Python file" if len(self.files) == 1 else f"{len(self.files)} Python files"
        return f"{files} of {self.where}{at}, SHA-256 {self.fingerprint}"


def folder_code(folder: Path) -> Code | None:
    """Read the code in a model's folder; None if its configs name none."""
    if not code_modules(model_configs(folder), str(folder)):
        return None
    return Code(str(folder), code_fingerprints(folder))


def hub_code(repository: str, commit: str | None = None) -> Code | None:
    """Read the code at that commit, else the newest, into the hub's cache, where an engine reads it."""
    for folder in hub.snapshots(repository):
        if commit in {None, folder.name}:
            named = code_modules(model_configs(folder), repository)
            if not named:
                return None
            if all((folder / name).is_file() for name in named):
                return Code(repository, code_fingerprints(folder), folder.name)
            commit = folder.name
    hub.require(repository)
    hub.refuse_offline(repository)
    return hub.answered(repository, lambda api: _asked(api, repository, commit))


def _asked(api: "HfApi", repository: str, commit: str | None) -> Code | None:
    from huggingface_hub.errors import RevisionNotFoundError  # noqa: PLC0415 - half a second, and seldom needed

    try:
        about = api.model_info(repository, revision=commit, timeout=hub.LIMIT_S)
    except RevisionNotFoundError as error:
        raise Problem(
            f"{repository} has no commit {commit}",
            cause="the hub knows the repository, and not this",
            fix="look it up there; without --code-revision the newest is taken, and pinned",
        ) from error
    if about.sha is None:
        raise Problem(
            f"the hub does not say which commit of {repository} it has",
            cause="its answer has none",
            fix="name one: --code-revision COMMIT",
        )
    commit, names = about.sha, [each.rfilename for each in about.siblings or ()]

    def files(suffix: str, what: str) -> Iterator[tuple[str, bytes]]:
        found = [name for name in names if name.endswith(suffix) and not name.endswith(_DATA)]
        if len(found) > MOST_FILES:
            raise Problem(
                f"{repository} holds more {what} than any model has",
                cause=f"{len(found)} files; the limit is {MOST_FILES}",
                fix="name another repository",
            )
        return ((name, hub.file(api, repository, name, commit)) for name in found)

    configs = {name: naming(text, f"{repository}/{name}") for name, text in files(".json", "tables")}
    if not code_modules(configs, repository):
        return None
    code = {name: storage.hash_bytes(text) for name, text in files(".py", "Python files")}
    return Code(repository, code, commit)


def code_modules(configs: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """List the Python files that configs name; a Problem for another repository's, which cannot be pinned."""
    found: dict[str, None] = {}
    for file, config in configs.items():
        for reference in _references(config):
            repository, separator, rest = reference.rpartition("--")
            if separator:
                raise Problem(
                    f"{where} runs code of another repository, which cannot be pinned",
                    cause=f"{file} names {reference}, "
                    f"and an engine may take the newest commit of {repository}",
                    fix=f"serve it from a folder: with the Python files of {repository} next to the weights, "
                    f"and without '{repository}--' in {file}\n"
                    "or without its code, if the engine knows this model by itself: --no-remote-code",
                )
            if not _REFERENCE.fullmatch(rest):
                raise Problem(
                    f"{where} names code that is not next to its weights",
                    cause=f"{file} names {reference[:200]!r}, but only MODULE.CLASS can be checked",
                    fix="take nothing of this model before you know why; without its code: --no-remote-code",
                )
            found[f"{rest.rpartition('.')[0].replace('.', '/')}.py"] = None
    return tuple(found)


def _references(value: object, *, named: bool = False) -> Iterator[str]:
    """Each `MODULE.CLASS` of every auto_map, however deep: a tokenizer's has a list, or null."""
    if isinstance(value, str) and named:
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _references(inner, named=named or key == _MAP)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner, named=named)


def model_configs(folder: Path) -> dict[str, Any]:
    """Read all `*.json` of the model that may hold an `auto_map`: engines differ in which they read."""
    paths = _inside(folder, ".json", "tables")
    return {name: found for name, path in paths.items() if (found := _table(path))}


def code_fingerprints(folder: Path) -> dict[str, str]:
    """Hash every Python file in it; refuse linked folders, from which an engine would import too."""
    for where, folders, _ in os.walk(folder):
        for link in (Path(where) / name for name in folders):
            if link.is_symlink():
                raise Problem(
                    f"{link} is a link to a folder, in a model that has code",
                    cause=f"it leads to {link.readlink()}, whose Python files are not checked",
                    fix=f"rm {shlex.quote(str(link))}  # or put the folder itself there",
                )
    paths = _inside(folder, ".py", "Python files", _MOST_BYTES)
    return {name: storage.hash_file(path) for name, path in paths.items()}


def _inside(folder: Path, suffix: str, what: str, most_bytes: int | None = None) -> dict[str, Path]:
    found = (Path(where) / name for where, _, names in os.walk(folder) for name in names)
    paths = sorted(path for path in found if path.name.endswith(suffix) and path.is_file())
    if len(paths) > MOST_FILES or (most_bytes and sum(path.stat().st_size for path in paths) > most_bytes):
        size = f" of {most_bytes >> 20} MiB" if most_bytes else ""
        raise Problem(
            f"{folder} holds more {what} than any model has",
            cause=f"{len(paths)} files; the limit is {MOST_FILES}{size}",
            fix="move the model to a folder of its own",
        )
    return {path.relative_to(folder).as_posix(): path for path in paths}


def _table(path: Path) -> Any:  # noqa: ANN401 - JSON may hold anything
    with readable(path):
        size = path.stat().st_size
        if size > _MOST_TABLE_BYTES:
            raise Problem(
                f"{path} is too large for a model's configuration file",
                cause=f"it has {size} bytes; the limit is {_MOST_TABLE_BYTES >> 20} MiB",
                fix="see what it is, and move it out of the model's folder",
            )
        return naming(path.read_bytes(), str(path))


def naming(text: bytes, where: str) -> Any:  # noqa: ANN401 - JSON may hold anything
    """Parse a JSON text that may name code; None where it cannot."""
    return json_value(text, where) if _NAMED.search(text) else None
