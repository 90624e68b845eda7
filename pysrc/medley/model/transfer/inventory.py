"""List the files of a model on this host, with cached hashes of their pieces."""

import contextlib
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from medley import storage
from medley.command import quote_path
from medley.errors import Problem
from medley.model import hub
from medley.model.checkpoint import raise_read_problem
from medley.model.transfer import (
    HASH_DIGITS,
    PIECE_BYTES,
    UNFINISHED_SUFFIX,
    Manifest,
    ManifestFile,
    ManifestLink,
    is_config_file,
    split_hashes,
)
from medley.unusable_file import skip_unusable_file

HASH_THREADS = min(4, os.cpu_count() or 1)
_READ_BYTES = 1 << 20
OnBytes = Callable[[int], None]
OnProgress = Callable[[int, int], None]
"""A function that takes the bytes done and the bytes in all."""


def hash_file_pieces(
    path: Path, piece_bytes: int, *, fresh: bool = False, on_bytes: OnBytes = lambda _: None
) -> tuple[str, ...]:
    """Return the hash of each piece, from the cache if size, time and inode are unchanged; `fresh` reads all.

    Raise a Problem if the file changes meanwhile.
    """
    identity = _identify_file(path, piece_bytes)
    cached = None if fresh else _load_hashes(path, identity)
    if cached is not None:
        on_bytes(path.stat().st_size)
        return cached
    hashes = hash_pieces(path, piece_bytes, on_bytes)
    if _identify_file(path, piece_bytes) != identity:
        raise Problem(
            f"{path} changes while it is read",
            cause="its size or its time is another than before",
            fix="wait until it is written, then try again",
        )
    save_hashes(path, piece_bytes, hashes)
    return hashes


def hash_pieces(path: Path, piece_bytes: int, on_bytes: OnBytes = lambda _: None) -> tuple[str, ...]:
    """Read a file, and return the SHA-256 of each piece."""

    def hash_piece(start: int) -> tuple[str, int]:
        digest = hashlib.sha256()
        size = _hash_range(handle, start, piece_bytes, digest)
        return digest.hexdigest(), size

    hashes = list[str]()
    with _open_file(path) as (handle, size_bytes), ThreadPoolExecutor(HASH_THREADS) as pool:
        for sha256, size in pool.map(hash_piece, range(0, size_bytes, piece_bytes)):
            hashes.append(sha256)
            on_bytes(size)
    return tuple(hashes)


def hash_whole_file(path: Path, on_bytes: OnBytes = lambda _: None) -> str:
    digest = hashlib.sha256()
    with _open_file(path) as (handle, size_bytes):
        for start in range(0, size_bytes, PIECE_BYTES):
            on_bytes(_hash_range(handle, start, PIECE_BYTES, digest))
    return digest.hexdigest()


@contextlib.contextmanager
def _open_file(path: Path) -> Iterator[tuple[int, int]]:
    """Yield a file's handle for `_hash_range`, and its size."""
    with raise_read_problem(path), path.open("rb", buffering=0) as file:
        # Pages read ahead would stay in the cache; the parts of a piece are large enough by themselves.
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        yield file.fileno(), os.fstat(file.fileno()).st_size


def save_hashes(path: Path, piece_bytes: int, hashes: tuple[str, ...]) -> None:
    """Write the hashes of a file to the cache, if it can be written."""
    identity = _identify_file(path, piece_bytes)
    # Without the cache the file is read again the next time, and this transfer goes on.
    with skip_unusable_file():
        storage.write_text(_find_hashes_path(path), json.dumps({"of": identity, "hashes": "".join(hashes)}))


def _hash_range(handle: int, start: int, piece_bytes: int, digest: "hashlib._Hash") -> int:
    """Add a piece to the digest; return its size, which is less at the end of the file."""
    offset, end = start, start + piece_bytes
    with keep_page_cache(handle, start, piece_bytes):
        while offset < end and (chunk := os.pread(handle, min(_READ_BYTES, end - offset), offset)):
            digest.update(chunk)
            offset += len(chunk)
    return offset - start


@contextlib.contextmanager
def keep_page_cache(handle: int, start: int, size_bytes: int) -> Iterator[None]:
    """Drop these bytes from the page cache after the block, unless they were in it before.

    A full page cache leads to NV_ERR_NO_MEMORY on a Spark.
    """
    was_cached = _is_cached(handle, start)
    yield
    if not was_cached:
        os.posix_fadvise(handle, start, size_bytes, os.POSIX_FADV_DONTNEED)


def _is_cached(handle: int, offset: int) -> bool:
    try:
        return os.preadv(handle, [bytearray(1)], offset, os.RWF_NOWAIT) == 1
    except BlockingIOError:
        return False
    except OSError:  # a file system that does not show it: its cache is left as it is
        return True


def _identify_file(path: Path, piece_bytes: int) -> list[str | int]:
    """Return the path, size, time and inode of a file: a copy may keep size and time."""
    with raise_read_problem(path):
        status = path.stat()
    return [str(path.absolute()), status.st_size, status.st_mtime_ns, status.st_ino, piece_bytes]


def _load_hashes(path: Path, identity: list[str | int]) -> tuple[str, ...] | None:
    table = None
    with skip_unusable_file():
        table = storage.read_table(_find_hashes_path(path))
    match table:
        case {"of": cached_identity, "hashes": str(text)} if (
            cached_identity == identity and len(text) % HASH_DIGITS == 0
        ):
            return split_hashes(text)
        case _:
            return None


def _find_hashes_path(path: Path) -> Path:
    name = hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:32]
    return storage.find_cache_folder() / "hashes" / f"{name}.json"


def find_root(target: str) -> Path:
    """Return the model's folder on this host: as named, or in the hub's cache."""
    return Path(target) if Path(target).is_absolute() else hub.find_repository_folder(target)


def find_snapshot(repository: str) -> Path:
    """Return the snapshot that `build_manifest` lists."""
    return _choose_snapshot(repository, find_root(repository))[0]


def build_manifest(
    target: str, *, piece_bytes: int = PIECE_BYTES, fresh: bool = False, on_progress: OnProgress | None = None
) -> Manifest:
    """Return the manifest of a model on this host; all of it is read the first time, and if `fresh`."""
    folder = find_root(target)
    files, links = _list_hub_files(target, folder) if not Path(target).is_absolute() else _list_folder(folder)
    files.sort(key=lambda path: (is_config_file(path), path))
    links.sort(key=lambda link: (is_config_file(link.path), link.path))
    sizes = {path: (folder / path).stat().st_size for path in files}
    count = build_counter(sum(sizes.values()), on_progress)

    def build_file(path: str) -> ManifestFile:
        hashes = hash_file_pieces(folder / path, piece_bytes, fresh=fresh, on_bytes=count)
        return ManifestFile(path, (folder / path).stat().st_size, hashes)

    return Manifest(tuple(map(build_file, files)), tuple(links), piece_bytes)


def build_counter(total: int, on_progress: OnProgress | None) -> OnBytes:
    """Return a function that adds up the bytes read in any thread, and reports the sum."""
    done, lock = 0, threading.Lock()

    def count(size: int) -> None:
        nonlocal done
        with lock:
            done += size
            if on_progress:
                on_progress(min(done, total), total)

    return count


def _list_folder(top: Path) -> tuple[list[str], list[ManifestLink]]:
    """List a folder without hidden folders; links that lead out of it count as files."""
    if not top.is_dir():
        raise Problem(
            f"there is no folder {top}",
            cause="it is not on this host",
            fix=f"ls {quote_path(top.parent)}",
        )
    files, links = [], []
    for path in _list_entries(top):
        name = path.relative_to(top).as_posix()
        if path.is_symlink() and _leads_inside(path, top):
            links.append(ManifestLink(name, os.path.relpath(path.resolve(), path.parent.resolve())))
        elif path.is_file():
            files.append(name)
        else:
            cause = "it is a device or a pipe"
            if path.is_symlink():
                cause = f"it is a link to {path.readlink()}"
            raise Problem(
                f"{path} is not a file of the model",
                cause=cause,
                fix=f"put the files themselves there: cp -rL {quote_path(path)} COPY",
            )
    return files, links


def _leads_inside(path: Path, top: Path) -> bool:
    try:
        relative = path.resolve(strict=True).relative_to(top.resolve())
    except (OSError, RuntimeError, ValueError):
        return False
    return not any(part.startswith(".") for part in relative.parts[:-1])


def _list_entries(top: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(top):
        folders[:] = [name for name in folders if not name.startswith(".")]
        linked_folders = [name for name in folders if (Path(parent) / name).is_symlink()]
        yield from (
            Path(parent) / name for name in (*linked_folders, *names) if not name.endswith(UNFINISHED_SUFFIX)
        )


def _list_hub_files(repository: str, top: Path) -> tuple[list[str], list[ManifestLink]]:
    """Return the files of one snapshot with the blobs of its links and its refs (main), and its links."""
    snapshot, refs = _choose_snapshot(repository, top)
    names, folder_links = _list_folder(snapshot)
    prefix = snapshot.relative_to(top).as_posix()
    files = {f"{prefix}/{name}" for name in names if not (snapshot / name).is_symlink()} | set(refs)
    links = [ManifestLink(f"{prefix}/{link.path}", link.target) for link in folder_links]
    for name in names:
        path = snapshot / name
        if path.is_symlink():
            blob = _find_blob(path, top)
            files.add(blob)
            links.append(ManifestLink(f"{prefix}/{name}", os.path.relpath(top / blob, path.parent)))
    return sorted(files), links


def _find_blob(path: Path, top: Path) -> str:
    """Return the file in the model's folder that a link leads to; it may itself link to a shared one."""
    first, model_folder = path.parent / path.readlink(), top.resolve()
    blob, end = first.parent.resolve() / first.name, first.resolve()
    folders = (model_folder, hub.find_cache_folder().resolve())
    if blob.is_relative_to(model_folder) and any(map(end.is_relative_to, folders)):
        return blob.relative_to(model_folder).as_posix()
    raise Problem(
        f"{path} leads out of the hub's cache",
        cause=f"it is a link to {end}",
        fix=f"name the snapshot's folder instead, whose files are then copied: {path.parent}",
    )


def _choose_snapshot(repository: str, top: Path) -> tuple[Path, list[str]]:
    """Choose the snapshot of `main`, else the newest with weights; return also its refs."""
    snapshots = hub.list_snapshots(repository)
    if not snapshots:
        raise Problem(
            f"{repository} is not on this host",
            cause=f"{top} holds no whole snapshot of it",
            fix=f"hf download {repository}  # on one host, then pull from there",
        )
    refs = {
        path.relative_to(top).as_posix(): path.read_text(encoding="utf-8").strip()
        for path in (top / "refs").rglob("*")
        if path.is_file() and not path.name.endswith(UNFINISHED_SUFFIX)
    }
    main = (candidate for candidate in snapshots if candidate.name == refs.get("refs/main"))
    chosen = next(main, snapshots[0])
    return chosen, [name for name, commit in refs.items() if commit == chosen.name]
