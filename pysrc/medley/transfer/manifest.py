"""A manifest says what a model consists of: its files, and of each the hashes of its pieces; its links.

It comes from another host, so it cannot be made of paths that leave the model's folder.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, Self

from medley.checkpoint import CONFIG
from medley.problem import Problem

PIECE_BYTES = 4 << 20
"""Small enough that a chain of hosts fills quickly, large enough that asking for one costs nothing."""
UNFINISHED = ".medley-part"
"""Ends the name of a file that is not all here."""
_HEX = 64
_HASHES = re.compile(rf"([0-9a-f]{{{_HEX}}})*")
_LEAST_BYTES, _MOST_BYTES = 1 << 10, 64 << 20


@dataclass(frozen=True)
class File:
    path: str
    """From the model's folder on."""
    size_bytes: int
    hashes: tuple[str, ...]
    """SHA-256 of each piece."""


@dataclass(frozen=True)
class Link:
    path: str
    target: str
    """As the link has it: from its own folder on."""


@dataclass(frozen=True)
class Piece:
    """A part of one file, which is verified by itself."""

    file: File
    number: int
    offset: int
    size_bytes: int

    @property
    def sha256(self) -> str:
        return self.file.hashes[self.number]

    def __str__(self) -> str:
        return f"piece {self.number + 1} of {len(self.file.hashes)} of {self.file.path}"


@dataclass(frozen=True)
class Manifest:
    files: tuple[File, ...]
    links: tuple[Link, ...] = ()
    piece_bytes: int = PIECE_BYTES

    def __post_init__(self) -> None:
        if not _LEAST_BYTES <= self.piece_bytes <= _MOST_BYTES:
            raise _refusal(
                f"pieces of {self.piece_bytes} bytes", f"{_LEAST_BYTES} to {_MOST_BYTES} are possible"
            )
        for file in self.files:
            if len(file.hashes) != -(-file.size_bytes // self.piece_bytes) or file.size_bytes < 0:
                raise _refusal(
                    repr(file.path), f"{len(file.hashes)} hashes are not those of {file.size_bytes} bytes"
                )
        _require_inside([each.path for each in self.files] + [each.path for each in self.links])
        for link in self.links:
            _require_target(link)

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """All, in the order in which they are brought."""
        return tuple(piece for file in self.files for piece in self.pieces_of(file))

    def pieces_of(self, file: File) -> tuple[Piece, ...]:
        return tuple(
            Piece(file, number, start, min(self.piece_bytes, file.size_bytes - start))
            for number, start in enumerate(range(0, file.size_bytes, self.piece_bytes))
        )

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @cached_property
    def digest(self) -> str:
        """One hash over all of it."""
        return hashlib.sha256(json.dumps(self.table, sort_keys=True).encode()).hexdigest()

    @property
    def table(self) -> dict[str, Any]:
        """For JSON: 64 bytes for each piece, and little else."""
        return {
            "piece_bytes": self.piece_bytes,
            "files": [[each.path, each.size_bytes, "".join(each.hashes)] for each in self.files],
            "links": [[each.path, each.target] for each in self.links],
        }

    @classmethod
    def parsed(cls, table: Mapping[str, Any]) -> Self:
        """What `table` gave on another host; a Problem if it is anything else."""
        match table:
            case {"piece_bytes": int(piece_bytes), "files": [*files], "links": [*links]}:
                return cls(tuple(map(_file, files)), tuple(map(_link, links)), piece_bytes)
            case _:
                raise _refusal("something else", "it has no piece_bytes, files and links")


def last(path: str) -> bool:
    """Whether an engine takes a folder for a model because of this file: it comes after all others."""
    return PurePosixPath(path).name == CONFIG


def _file(entry: object) -> File:
    match entry:
        case [str(path), int(size_bytes), str(text)] if _HASHES.fullmatch(text):
            return File(path, size_bytes, tuple(text[at : at + _HEX] for at in range(0, len(text), _HEX)))
        case _:
            raise _refusal("an odd file", f"{str(entry)[:80]} is no path, size and hashes")


def _link(entry: object) -> Link:
    match entry:
        case [str(path), str(target)]:
            return Link(path, target)
        case _:
            raise _refusal("an odd link", f"{str(entry)[:80]} is no path and target")


def _require_inside(paths: Iterable[str]) -> None:
    """Plain relative paths, each once, and none that goes by way of another's."""
    seen: set[str] = set()
    for path in paths:
        parts = path.split("/")
        if not path.isprintable() or {"", ".", ".."} & set(parts) or path.endswith(UNFINISHED):
            raise _refusal(repr(path), "a path in a model is relative and stays in its folder")
        if path in seen:
            raise _refusal(repr(path), "it is there twice")
        seen.add(path)
    for path in seen:
        for parent in PurePosixPath(path).parents:
            if str(parent) in seen:
                raise _refusal(repr(path), f"{parent} is no folder")


def _require_target(link: Link) -> None:
    """A link may climb to the model's folder, and then only descend: what it passes may be a link itself."""
    parts = link.target.split("/")
    names = [part for part in parts if part != ".."]
    climbs = len(parts) - len(names)
    inside = climbs <= link.path.count("/") and parts[climbs:] == names and not {"", "."} & set(names)
    if not inside or not names or not link.target.isprintable():
        raise _refusal(repr(link.path), f"this link leads to {link.target!r}, out of the model's folder")


def _refusal(what: str, cause: str) -> Problem:
    return Problem(
        f"the list of the model's files has {what}",
        cause=cause,
        fix="look at the model on the host that has it, and take nothing from there before you know why",
    )
