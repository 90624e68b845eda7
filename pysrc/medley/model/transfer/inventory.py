"""List the files of a model on this host, with cached hashes of their pieces."""

import contextlib
import hashlib
import json
import os
import shlex
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from medley import storage
from medley.errors import Problem
from medley.model import hub
from medley.model.checkpoint import readable
from medley.model.transfer import (
    HASH_DIGITS,
    PIECE_BYTES,
    UNFINISHED,
    Manifest,
    ManifestFile,
    ManifestLink,
    last,
    split_hashes,
)
from medley.unusable_file import optional

AT_ONCE = min(4, os.cpu_count() or 1)
_READ_BYTES = 1 << 20
OnBytes = Callable[[int], None]
OnProgress = Callable[[int, int], None]
"""Bytes done, bytes in all."""


def file_hashes(
    path: Path, piece_bytes: int, *, fresh: bool = False, on_bytes: OnBytes = lambda _: None
) -> tuple[str, ...]:
    """Hash each piece, or take the cache if size, time and inode are what they were; `fresh` reads all."""
    before = _identity(path, piece_bytes)
    kept = None if fresh else _kept(path, before)
    if kept is not None:
        on_bytes(path.stat().st_size)
        return kept
    found = read_hashes(path, piece_bytes, on_bytes)
    if _identity(path, piece_bytes) != before:
        raise Problem(
            f"{path} changes while it is read",
            cause="its size or its time is another than before",
            fix="wait until it is written, then try again",
        )
    remember_hashes(path, piece_bytes, found)
    return found


def read_hashes(path: Path, piece_bytes: int, on_bytes: OnBytes = lambda _: None) -> tuple[str, ...]:
    def hash_piece(start: int) -> tuple[str, int]:
        digest = hashlib.sha256()
        size = _read(handle, start, piece_bytes, digest)
        return digest.hexdigest(), size

    found = list[str]()
    with _opened(path) as (handle, size_bytes), ThreadPoolExecutor(AT_ONCE) as pool:
        for sha256, size in pool.map(hash_piece, range(0, size_bytes, piece_bytes)):
            found.append(sha256)
            on_bytes(size)
    return tuple(found)


def file_sha256(path: Path, on_bytes: OnBytes = lambda _: None) -> str:
    digest = hashlib.sha256()
    with _opened(path) as (handle, size_bytes):
        for start in range(0, size_bytes, PIECE_BYTES):
            on_bytes(_read(handle, start, PIECE_BYTES, digest))
    return digest.hexdigest()


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[int, int]]:
    """Yield a handle for `_read`, and the size."""
    with readable(path), path.open("rb", buffering=0) as file:
        # What is read ahead would stay; a piece is read in parts that are large enough by themselves.
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        yield file.fileno(), os.fstat(file.fileno()).st_size


def remember_hashes(path: Path, piece_bytes: int, found: tuple[str, ...]) -> None:
    of = _identity(path, piece_bytes)
    # A cache that cannot be written costs a reading the next time, and not this transfer.
    with optional():
        storage.write(_note(path), json.dumps({"of": of, "hashes": "".join(found)}))


def _read(handle: int, start: int, piece_bytes: int, digest: "hashlib._Hash") -> int:
    """Add a piece to the digest; return its size, which is less at the end of the file."""
    at, end = start, start + piece_bytes
    with page_cache_kept(handle, start, piece_bytes):
        while at < end and (chunk := os.pread(handle, min(_READ_BYTES, end - at), at)):
            digest.update(chunk)
            at += len(chunk)
    return at - start


@contextlib.contextmanager
def page_cache_kept(handle: int, start: int, size_bytes: int) -> Iterator[None]:
    """Drop these bytes from the page cache, unless they were in it: else NV_ERR_NO_MEMORY on a Spark."""
    was_cached = _is_cached(handle, start)
    yield
    if not was_cached:
        os.posix_fadvise(handle, start, size_bytes, os.POSIX_FADV_DONTNEED)


def _is_cached(handle: int, at: int) -> bool:
    try:
        return os.preadv(handle, [bytearray(1)], at, os.RWF_NOWAIT) == 1
    except BlockingIOError:
        return False
    except OSError:  # a file system that cannot tell: what it holds is left alone
        return True


def _identity(path: Path, piece_bytes: int) -> list[str | int]:
    """Identify the file, by inode too: copies may keep size and time."""
    with readable(path):
        about = path.stat()
    return [str(path.absolute()), about.st_size, about.st_mtime_ns, about.st_ino, piece_bytes]


def _kept(path: Path, identity: list[str | int]) -> tuple[str, ...] | None:
    kept = None
    with optional():
        kept = storage.table(_note(path))
    match kept:
        case {"of": of, "hashes": str(text)} if of == identity and len(text) % HASH_DIGITS == 0:
            return split_hashes(text)
        case _:
            return None


def _note(path: Path) -> Path:
    name = hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:32]
    return storage.cache() / "hashes" / f"{name}.json"


def root(target: str) -> Path:
    """Return the model's folder on this host: as named, or in the hub's cache."""
    return Path(target) if Path(target).is_absolute() else hub.repository_folder(target)


def snapshot_in(repository: str) -> Path:
    """Return the snapshot that `offered` lists."""
    return _snapshot(repository, root(repository))[0]


def offered(
    target: str, *, piece_bytes: int = PIECE_BYTES, fresh: bool = False, on_progress: OnProgress | None = None
) -> Manifest:
    """Make the manifest of a model on this host; all of it is read the first time, and if `fresh`."""
    top = root(target)
    files, links = _in_hub(target, top) if not Path(target).is_absolute() else _in_folder(top)
    files.sort(key=lambda path: (last(path), path))
    links.sort(key=lambda link: (last(link.path), link.path))
    sizes = {path: (top / path).stat().st_size for path in files}
    count = counter(sum(sizes.values()), on_progress)

    def file(path: str) -> ManifestFile:
        hashes = file_hashes(top / path, piece_bytes, fresh=fresh, on_bytes=count)
        return ManifestFile(path, (top / path).stat().st_size, hashes)

    return Manifest(tuple(map(file, files)), tuple(links), piece_bytes)


def counter(total: int, on_progress: OnProgress | None) -> OnBytes:
    """Add up what is read in any thread, and report the sum."""
    done, lock = 0, threading.Lock()

    def count(size: int) -> None:
        nonlocal done
        with lock:
            done += size
            if on_progress:
                on_progress(min(done, total), total)

    return count


def _in_folder(top: Path) -> tuple[list[str], list[ManifestLink]]:
    """List a folder without hidden folders; links that lead out of it count as files."""
    if not top.is_dir():
        raise Problem(f"there is no folder {top}", cause="it is not on this host", fix=f"ls {top.parent}")
    files, links = [], []
    for path in _entries(top):
        name = path.relative_to(top).as_posix()
        if path.is_symlink() and _leads_inside(path, top):
            links.append(ManifestLink(name, os.path.relpath(path.resolve(), path.parent.resolve())))
        elif path.is_file():
            files.append(name)
        else:
            raise Problem(
                f"{path} is not a file of the model",
                cause=f"it is a link to {path.readlink()}"
                if path.is_symlink()
                else "it is a device or a pipe",
                fix=f"put the files themselves there: cp -rL {shlex.quote(str(path))} COPY",
            )
    return files, links


def _leads_inside(path: Path, top: Path) -> bool:
    try:
        inside = path.resolve(strict=True).relative_to(top.resolve())
    except (OSError, RuntimeError, ValueError):
        return False
    return not any(part.startswith(".") for part in inside.parts[:-1])


def _entries(top: Path) -> Iterator[Path]:
    for where, folders, names in os.walk(top):
        folders[:] = [name for name in folders if not name.startswith(".")]
        linked = [name for name in folders if (Path(where) / name).is_symlink()]
        yield from (Path(where) / name for name in (*linked, *names) if not name.endswith(UNFINISHED))


def _in_hub(repository: str, top: Path) -> tuple[list[str], list[ManifestLink]]:
    """List one snapshot, the blobs of its links, and its refs (main)."""
    snapshot, refs = _snapshot(repository, top)
    found, links = _in_folder(snapshot)
    inside = snapshot.relative_to(top).as_posix()
    files = {f"{inside}/{name}" for name in found if not (snapshot / name).is_symlink()} | set(refs)
    made = [ManifestLink(f"{inside}/{link.path}", link.target) for link in links]
    for name in found:
        path = snapshot / name
        if path.is_symlink():
            blob = _blob(path, top)
            files.add(blob)
            made.append(ManifestLink(f"{inside}/{name}", os.path.relpath(top / blob, path.parent)))
    return sorted(files), made


def _blob(path: Path, top: Path) -> str:
    """Return the file in the model's folder that a link leads to; it may itself link to a shared one."""
    first, inside = path.parent / path.readlink(), top.resolve()
    blob, end = first.parent.resolve() / first.name, first.resolve()
    if blob.is_relative_to(inside) and any(map(end.is_relative_to, (inside, hub.cache().resolve()))):
        return blob.relative_to(inside).as_posix()
    raise Problem(
        f"{path} leads out of the hub's cache",
        cause=f"it is a link to {end}",
        fix=f"name the snapshot's folder instead, whose files are then copied: {path.parent}",
    )


def _snapshot(repository: str, top: Path) -> tuple[Path, list[str]]:
    """Choose the snapshot of `main`, else the newest with weights; return also its refs."""
    whole = hub.snapshots(repository)
    if not whole:
        raise Problem(
            f"{repository} is not on this host",
            cause=f"{top} holds no whole snapshot of it",
            fix=f"hf download {repository}  # on one host, then pull from there",
        )
    refs = {
        path.relative_to(top).as_posix(): path.read_text(encoding="utf-8").strip()
        for path in (top / "refs").rglob("*")
        if path.is_file() and not path.name.endswith(UNFINISHED)
    }
    chosen = next((each for each in whole if each.name == refs.get("refs/main")), whole[0])
    return chosen, [name for name, commit in refs.items() if commit == chosen.name]
