"""The manifest of a model: its files and the hashes of their pieces; the order of hosts in a transfer."""

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, Self

from medley.errors import Problem
from medley.model.checkpoint import CONFIG_FILE
from medley.values import Value

PIECE_BYTES = 4 << 20
"""The size of a piece: small, so that a chain of hosts fills quickly; large, so that requests are few."""
UNFINISHED_SUFFIX = ".medley-part"
"""The suffix of a file that is not complete."""
HASH_DIGITS = 64
_HASHES_PATTERN = re.compile(rf"([0-9a-f]{{{HASH_DIGITS}}})*")
_MIN_PIECE_BYTES, _MAX_PIECE_BYTES = 1 << 10, 64 << 20


class ManifestFile(Value):
    path: str
    """The path below the model's folder."""
    size_bytes: int
    hashes: tuple[str, ...]
    """The SHA-256 of each piece."""


class ManifestLink(Value):
    path: str
    target: str


class Piece(Value):
    """A range of a file with a hash of its own."""

    file: ManifestFile
    number: int
    """The place of the piece in its file, from 0."""
    offset: int
    size_bytes: int

    @property
    def sha256(self) -> str:
        return self.file.hashes[self.number]

    def __str__(self) -> str:
        return f"piece {self.number + 1} of {len(self.file.hashes)} of {self.file.path}"


class Manifest(Value):
    """The files and links of a model; raise a Problem for odd sizes, or paths that leave the folder."""

    files: tuple[ManifestFile, ...]
    links: tuple[ManifestLink, ...] = ()
    piece_bytes: int = PIECE_BYTES

    def __post_init__(self) -> None:
        if not _MIN_PIECE_BYTES <= self.piece_bytes <= _MAX_PIECE_BYTES:
            raise _build_refusal_problem(
                f"pieces of {self.piece_bytes} bytes",
                f"{_MIN_PIECE_BYTES} to {_MAX_PIECE_BYTES} are possible",
            )
        for file in self.files:
            size, count = file.size_bytes, len(file.hashes)
            if count != -(-size // self.piece_bytes) or size < 0:
                raise _build_refusal_problem(repr(file.path), f"{count} hashes are not those of {size} bytes")
        # It comes from another host, and no path may leave the model's folder.
        _require_inside([file.path for file in self.files] + [link.path for link in self.links])
        for link in self.links:
            _require_target(link)

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        return tuple(piece for file in self.files for piece in self.list_pieces(file))

    def list_pieces(self, file: ManifestFile) -> tuple[Piece, ...]:
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
        """The manifest for JSON: 64 bytes for each piece, and little else."""
        return {
            "piece_bytes": self.piece_bytes,
            "files": [[file.path, file.size_bytes, "".join(file.hashes)] for file in self.files],
            "links": [[link.path, link.target] for link in self.links],
        }

    @classmethod
    def parse(cls, table: Mapping[str, Any]) -> Self:
        """Read another host's `table`; raise a Problem if it is anything else."""
        match table:
            case {"piece_bytes": int(piece_bytes), "files": [*files], "links": [*links]}:
                return cls(tuple(map(_parse_file, files)), tuple(map(_parse_link, links)), piece_bytes)
            case _:
                raise _build_refusal_problem("something else", "it has no piece_bytes, files and links")


def is_config_file(path: str) -> bool:
    """Return whether engines recognize a model by this file, so that it comes after all others."""
    return PurePosixPath(path).name == CONFIG_FILE


def _parse_file(entry: object) -> ManifestFile:
    match entry:
        case [str(path), int(size_bytes), str(text)] if _HASHES_PATTERN.fullmatch(text):
            return ManifestFile(path, size_bytes, split_hashes(text))
        case _:
            raise _build_refusal_problem("an odd file", f"{str(entry)[:80]} is not a path, a size and hashes")


def split_hashes(text: str) -> tuple[str, ...]:
    """Return the hashes in a text of 64 digits for each."""
    return tuple(text[start : start + HASH_DIGITS] for start in range(0, len(text), HASH_DIGITS))


def _parse_link(entry: object) -> ManifestLink:
    match entry:
        case [str(path), str(target)]:
            return ManifestLink(path, target)
        case _:
            raise _build_refusal_problem("an odd link", f"{str(entry)[:80]} is not a path and a target")


def _require_inside(paths: Iterable[str]) -> None:
    """Require plain relative paths, each once, and none inside another's."""
    known_paths: set[str] = set()
    for path in paths:
        parts = path.split("/")
        if not path.isprintable() or {"", ".", ".."} & set(parts) or path.endswith(UNFINISHED_SUFFIX):
            raise _build_refusal_problem(repr(path), "a path in a model is relative and stays in its folder")
        if path in known_paths:
            raise _build_refusal_problem(repr(path), "it is there twice")
        known_paths.add(path)
    for path in known_paths:
        for parent in PurePosixPath(path).parents:
            if str(parent) in known_paths:
                raise _build_refusal_problem(repr(path), f"{parent} is not a folder")


def _require_target(link: ManifestLink) -> None:
    """Require a link that climbs at most to the model's folder, and then only descends.

    A folder on its way may be a link itself.
    """
    parts = link.target.split("/")
    names = [part for part in parts if part != ".."]
    climbs = len(parts) - len(names)
    is_inside = climbs <= link.path.count("/") and parts[climbs:] == names and not {"", "."} & set(names)
    if not is_inside or not names or not link.target.isprintable():
        raise _build_refusal_problem(
            repr(link.path), f"this link leads to {link.target!r}, out of the model's folder"
        )


def _build_refusal_problem(what: str, cause: str) -> Problem:
    return Problem(
        f"the list of the model's files has {what}",
        cause=cause,
        fix="look at the model on the host that has it, and take nothing from there before you know why",
    )


def order_sources(hosts: Sequence[str], owners: Collection[str]) -> Mapping[str, tuple[str, ...]]:
    """Return by host its sources, first to last, so that each link carries the model once in each direction.

    `owners` has the hosts with the model; raise a Problem without one.
    """
    heads = [host for host in hosts if host in owners]
    receivers = [host for host in hosts if host not in owners]
    if not heads:
        raise Problem(
            "no host has the model",
            cause=f"asked were {', '.join(hosts) or 'none'}",
            fix="fetch it on one of them first: hf download ORG/NAME, or copy its folder there",
        )
    sources: dict[str, tuple[str, ...]] = {}
    for number, head in enumerate(heads):
        begin, end = (len(receivers) * place // len(heads) for place in (number, number + 1))
        heads_in_order = (head, *(other for other in heads if other != head))
        chained_hosts: tuple[str, ...] = ()
        for host in receivers[begin:end]:
            sources[host] = (*chained_hosts, *heads_in_order)
            chained_hosts = (host, *chained_hosts)
    return sources
