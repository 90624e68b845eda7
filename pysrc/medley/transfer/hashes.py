"""The hashes of a file's pieces are read once, and kept in the cache for as long as the file is the same."""

import contextlib
import hashlib
import json
import os
import shlex
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from medley import store
from medley.problem import Problem, in_words

_AT_ONCE = min(4, os.cpu_count() or 1)
_READ_BYTES = 1 << 20
_HEX = 64
"""Digits of one."""
OnBytes = Callable[[int], None]


def of_file(
    path: Path, piece_bytes: int, *, fresh: bool = False, on_bytes: OnBytes | None = None
) -> tuple[str, ...]:
    """Those of a file, from the cache if its size, time and inode are what they were; `fresh` reads all."""
    before = _identity(path, piece_bytes)
    kept = None if fresh else _kept(path, before)
    if kept is not None:
        if on_bytes:
            on_bytes(path.stat().st_size)
        return kept
    found = read(path, piece_bytes, on_bytes)
    if _identity(path, piece_bytes) != before:
        raise Problem(
            f"{path} changes while it is read",
            cause="its size or its time is another than before",
            fix="wait until it is written, then try again",
        )
    remember(path, piece_bytes, found)
    return found


def read(path: Path, piece_bytes: int, on_bytes: OnBytes | None = None) -> tuple[str, ...]:
    """Those of what the file holds now."""
    with _readable(path), path.open("rb", buffering=0) as file, ThreadPoolExecutor(_AT_ONCE) as pool:
        handle = file.fileno()
        starts = range(0, os.fstat(handle).st_size, piece_bytes)
        found = []
        for digest, size in pool.map(lambda start: _hashed(handle, start, piece_bytes), starts):
            found.append(digest)
            if on_bytes:
                on_bytes(size)
        return tuple(found)


def remember(path: Path, piece_bytes: int, found: tuple[str, ...]) -> None:
    """That the file as it is now has these."""
    text = json.dumps({"of": _identity(path, piece_bytes), "hashes": "".join(found)})
    # A cache that cannot be written costs a reading the next time, and not this transfer.
    with contextlib.suppress(OSError, Problem):
        store.write(_note(path), text)


def _hashed(handle: int, start: int, piece_bytes: int) -> tuple[str, int]:
    digest, at, end = hashlib.sha256(), start, start + piece_bytes
    while at < end and (chunk := os.pread(handle, min(_READ_BYTES, end - at), at)):
        digest.update(chunk)
        at += len(chunk)
    return digest.hexdigest(), at - start


def _identity(path: Path, piece_bytes: int) -> list[str | int]:
    """Another inode is another file: copies may bring size and time along."""
    with _readable(path):
        about = path.stat()
    return [str(path.absolute()), about.st_size, about.st_mtime_ns, about.st_ino, piece_bytes]


def _kept(path: Path, identity: list[str | int]) -> tuple[str, ...] | None:
    match store.table(_note(path)):
        case {"of": of, "hashes": str(text)} if of == identity and len(text) % _HEX == 0:
            return tuple(text[at : at + _HEX] for at in range(0, len(text), _HEX))
        case _:
            return None


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Problem(
            f"{path} cannot be read", cause=in_words(error), fix=f"ls -l {shlex.quote(str(path))}"
        ) from error


def _note(path: Path) -> Path:
    name = hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:32]
    return store.cache() / "hashes" / f"{name}.json"
