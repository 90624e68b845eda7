"""Remote code is Python that comes with a model, and that an engine runs if it is told to trust it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medley import fingerprint
from medley.checkpoint import CONFIG, table
from medley.problem import Problem

CONFIGS = (CONFIG, "tokenizer_config.json", "processor_config.json", "preprocessor_config.json")
"""The files in which a model may name code of its own."""
_MAP = "auto_map"
_MOST_BYTES = 8 << 20
_MOST_FILES = 200


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


def modules(configs: Mapping[str, Mapping[str, Any]], where: str) -> tuple[str, ...]:
    """The Python files that a model's configs name, by the configs' file names; none: it has no code.

    A Problem where they name another repository's: transformers reads its newest commit, whatever it is told.
    """
    found: dict[str, None] = {}
    for file, config in configs.items():
        for reference in _references(config):
            repository, separator, rest = reference.rpartition("--")
            if separator:
                raise _elsewhere(where, file, reference, repository)
            found[f"{rest.rpartition('.')[0].replace('.', '/')}.py"] = None
    return tuple(found)


def _references(value: object) -> Iterator[str]:
    """Each `MODULE.CLASS` of every auto_map, however deep it lies."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _strings(inner) if key == _MAP else _references(inner)


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


def configs(folder: Path) -> dict[str, dict[str, Any]]:
    return {name: table(folder / name) for name in CONFIGS if (folder / name).is_file()}


def fingerprints(folder: Path) -> dict[str, str]:
    """Of every Python file in it, however deep."""
    paths = sorted(path for path in folder.rglob("*.py") if path.is_file())
    if len(paths) > _MOST_FILES or sum(path.stat().st_size for path in paths) > _MOST_BYTES:
        raise Problem(
            f"{folder} holds more Python than a model's own code",
            cause=f"{len(paths)} files; at most {_MOST_FILES} of {_MOST_BYTES >> 20} MiB are looked at",
            fix="move the model to a folder of its own",
        )
    return {path.relative_to(folder).as_posix(): fingerprint.of_file(path) for path in paths}


def _elsewhere(where: str, file: str, reference: str, repository: str) -> Problem:
    return Problem(
        f"{where} runs code of another repository, which cannot be pinned",
        cause=f"{file} names {reference}, and an engine may take the newest there is in {repository}",
        fix=f"serve it from a folder: with the Python files of {repository} beside the weights, "
        f"and without '{repository}--' in {file}\n"
        "or without its code, if the engine knows this model by itself: --no-remote-code",
    )
