"""Manifest of a model: files, piece hashes; order in which hosts pass it on."""

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, Self

from medley.errors import Problem
from medley.model.checkpoint import CONFIG

PIECE_BYTES = 4 << 20
"""Small enough that a chain of hosts fills quickly, large enough that asking for one costs nothing."""
UNFINISHED = ".medley-part"
"""Ends the name of a file that is not all here."""
HASH_DIGITS = 64
_HASHES = re.compile(rf"([0-9a-f]{{{HASH_DIGITS}}})*")
_LEAST_BYTES, _MOST_BYTES = 1 << 10, 64 << 20


@dataclass(frozen=True)
class ManifestFile:
    path: str
    """From the model's folder on."""
    size_bytes: int
    hashes: tuple[str, ...]
    """SHA-256 of each piece."""


@dataclass(frozen=True)
class ManifestLink:
    path: str
    target: str


@dataclass(frozen=True)
class Piece:
    file: ManifestFile
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
    files: tuple[ManifestFile, ...]
    links: tuple[ManifestLink, ...] = ()
    piece_bytes: int = PIECE_BYTES

    def __post_init__(self) -> None:
        if not _LEAST_BYTES <= self.piece_bytes <= _MOST_BYTES:
            raise _refusal(
                f"pieces of {self.piece_bytes} bytes", f"{_LEAST_BYTES} to {_MOST_BYTES} are possible"
            )
        for file in self.files:
            size, count = file.size_bytes, len(file.hashes)
            if count != -(-size // self.piece_bytes) or size < 0:
                raise _refusal(repr(file.path), f"{count} hashes are not those of {size} bytes")
        # It comes from another host, and no path may leave the model's folder.
        _require_inside([each.path for each in self.files] + [each.path for each in self.links])
        for link in self.links:
            _require_target(link)

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        return tuple(piece for file in self.files for piece in self.pieces_of(file))

    def pieces_of(self, file: ManifestFile) -> tuple[Piece, ...]:
        return tuple(
            Piece(file, number, start, min(self.piece_bytes, file.size_bytes - start))
            for number, start in enumerate(range(0, file.size_bytes, self.piece_bytes))
        )

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @cached_property
    def digest(self) -> str:
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
        """Read another host's `table`; a Problem if it is anything else."""
        match table:
            case {"piece_bytes": int(piece_bytes), "files": [*files], "links": [*links]}:
                return cls(tuple(map(_file, files)), tuple(map(_link, links)), piece_bytes)
            case _:
                raise _refusal("something else", "it has no piece_bytes, files and links")


def last(path: str) -> bool:
    """Whether engines recognize a model by this file, so that it comes after all others."""
    return PurePosixPath(path).name == CONFIG


def _file(entry: object) -> ManifestFile:
    match entry:
        case [str(path), int(size_bytes), str(text)] if _HASHES.fullmatch(text):
            return ManifestFile(path, size_bytes, split_hashes(text))
        case _:
            raise _refusal("an odd file", f"{str(entry)[:80]} is not a path, a size and hashes")


def split_hashes(text: str) -> tuple[str, ...]:
    return tuple(text[at : at + HASH_DIGITS] for at in range(0, len(text), HASH_DIGITS))


def _link(entry: object) -> ManifestLink:
    match entry:
        case [str(path), str(target)]:
            return ManifestLink(path, target)
        case _:
            raise _refusal("an odd link", f"{str(entry)[:80]} is not a path and a target")


def _require_inside(paths: Iterable[str]) -> None:
    """Require plain relative paths, each once, and none inside another's."""
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
                raise _refusal(repr(path), f"{parent} is not a folder")


def _require_target(link: ManifestLink) -> None:
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


def chain(hosts: Sequence[str], having: Collection[str]) -> Mapping[str, tuple[str, ...]]:
    """List each host's sources, first to last, so that each link carries the model once in each direction."""
    heads = [host for host in hosts if host in having]
    lacking = [host for host in hosts if host not in having]
    if not heads:
        raise Problem(
            "no host has the model",
            cause=f"asked were {', '.join(hosts) or 'none'}",
            fix="fetch it on one of them first: hf download ORG/NAME, or copy its folder there",
        )
    found: dict[str, tuple[str, ...]] = {}
    for number, head in enumerate(heads):
        begin, end = (len(lacking) * at // len(heads) for at in (number, number + 1))
        before = (head, *(each for each in heads if each != head))
        own: tuple[str, ...] = ()
        for host in lacking[begin:end]:
            found[host] = (*own, *before)
            own = (host, *own)
    return found
