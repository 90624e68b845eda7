"""A safetensors header says what tensors a file holds, and where: 8 bytes of length, then JSON."""

import json
import shlex
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from medley.problem import Problem, in_words

# The format's own limit; a longer one is no header.
_LONGEST_BYTES = 100_000_000
_AGAIN = "fetch that file again"


@dataclass(frozen=True)
class Tensor:
    """What a header says of one tensor."""

    dtype: str
    """As safetensors writes it: BF16, F8_E4M3, U8 …"""
    shape: tuple[int, ...]
    size_bytes: int

    @property
    def elements(self) -> int:
        return prod(self.shape)


def read(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, by name; only its header is read."""
    try:
        with path.open("rb") as file:
            start = file.read(8)
            length = _length(start, str(path))
            text = file.read(length)
        size_bytes = path.stat().st_size
    except OSError as error:
        raise Problem(
            f"{path} cannot be read", cause=in_words(error), fix=f"ls -l {shlex.quote(str(path))}"
        ) from error
    if len(text) < length:
        raise _wrong(str(path), f"its header of {length} bytes ends after {len(text)}")
    found = tensors(text, str(path))
    wanted = 8 + length + sum(tensor.size_bytes for tensor in found.values())
    if size_bytes < wanted:
        raise _wrong(str(path), f"it has {size_bytes} bytes of the {wanted} that its header promises")
    return found


def _length(start: bytes, where: str) -> int:
    if start.startswith(b"version "):
        raise Problem(
            f"{where} is not the weights",
            cause="it is a Git LFS pointer: the repository was cloned without its large files",
            fix="git lfs pull  # in that folder",
        )
    if len(start) < 8:  # noqa: PLR2004 - the format's
        raise _wrong(where, f"it has {len(start)} bytes, and the length alone takes 8")
    length: int = struct.unpack("<Q", start)[0]
    if not 0 < length <= _LONGEST_BYTES:
        raise _wrong(where, f"its header would be {length} bytes long")
    return length


def tensors(text: bytes | str, where: str) -> dict[str, Tensor]:
    """The tensors that a header's JSON names."""
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _wrong(where, f"its header is not JSON: {error}") from error
    if not isinstance(table, dict):
        raise _wrong(where, "its header is not a table")
    return {name: _tensor(name, entry, where) for name, entry in table.items() if name != "__metadata__"}


def _tensor(name: str, entry: Any, where: str) -> Tensor:  # noqa: ANN401 - whatever JSON held
    match entry:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(start), int(end)]} if (
            0 <= start <= end and all(isinstance(size, int) and size >= 0 for size in shape)
        ):
            return Tensor(dtype, tuple(shape), end - start)
        case _:
            raise _wrong(where, f"what its header says of {name!r} has no dtype, shape and data_offsets")


def files(index: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """The files that a model.safetensors.index.json spreads the weights over."""
    match index.get("weight_map"):
        case dict(names) if names and all(_plain(name) for name in names.values()):
            return tuple(sorted(set(names.values())))
        case _:
            raise Problem(
                f"{where} names no files",
                cause="'weight_map' is not a table of tensors and the files beside it",
                fix=_AGAIN,
            )


def _plain(name: object) -> bool:
    return isinstance(name, str) and name not in {"", ".", ".."} and "/" not in name and "\0" not in name


def _wrong(where: str, cause: str) -> Problem:
    return Problem(f"{where} is not whole safetensors", cause=cause, fix=_AGAIN)
