"""A checkpoint is what says how a model is made: its config.json and the headers of its weights."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medley import safetensors
from medley.problem import Problem, in_words
from medley.safetensors import Tensor

CONFIG, SINGLE, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"


@dataclass(frozen=True)
class Checkpoint:
    where: str
    """A folder or a repository, as people know it."""
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


def read(folder: Path) -> Checkpoint:
    """The checkpoint in a folder, without its weights."""
    config = table(folder / CONFIG)
    tensors: dict[str, Tensor] = {}
    for path in _files(folder):
        tensors |= safetensors.read(path)
    return Checkpoint(str(folder), config, tensors)


def _files(folder: Path) -> list[Path]:
    if (folder / INDEX).is_file():
        paths = [folder / name for name in safetensors.files(table(folder / INDEX), str(folder / INDEX))]
    elif (folder / SINGLE).is_file():
        return [folder / SINGLE]
    else:
        # Mistral's repositories hold the same weights a second time under this name.
        paths = [path for path in sorted(folder.glob("*.safetensors")) if "consolidated" not in path.name]
    missing = [path.name for path in paths if not path.is_file()]
    if missing or not paths:
        raise Problem(
            f"{folder} does not hold the whole model",
            cause=f"{len(missing)} of {len(paths)} files are missing: {', '.join(missing[:3])}"
            if missing
            else "it has no *.safetensors",
            fix="fetch the model again, or name a folder that holds all of it as safetensors",
        )
    return paths


def table(path: Path) -> dict[str, Any]:
    """A JSON file that is a table."""
    try:
        return parsed(path.read_bytes(), str(path))
    except OSError as error:
        raise Problem(
            f"{path} cannot be read", cause=in_words(error), fix=f"ls -l {shlex.quote(str(path))}"
        ) from error


def parsed(text: bytes, where: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Problem(f"{where} is not JSON", cause=str(error), fix="fetch that file again") from error
    if not isinstance(found, dict):
        raise Problem(f"{where} is not a table", cause="it holds something else", fix="fetch that file again")
    return found
