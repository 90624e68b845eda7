"""Measure and remove models in the hub's cache by the hub's own library.

From huggingface_hub 1.32 on, a file that comes by Xet lies in `blobs` of the whole cache, and each model that
needs it has a link there (its pull request 4498; HF_HUB_DISABLE_SHARED_BLOBS=1 turns it off). Only the
library knows which models share a file.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from medley import storage
from medley.model import hub

if TYPE_CHECKING:
    from huggingface_hub import DeleteCacheStrategy, HFCacheInfo


def sizes() -> dict[str, int]:
    """Return the bytes of each model by repository; a file that two models share counts for both."""
    folders = [each for each in hub.cache().glob("models--*--*") if each.is_dir()]
    if not folders:
        return {}
    # The library leaves out parts of files, and a model whose ref names a commit that is not here.
    found = {each.repo_path.name: each.size_on_disk + _part_bytes(each.repo_path) for each in _scan().repos}
    return {
        each.name.removeprefix("models--").replace("--", "/", 1): found.get(each.name)
        or storage.size_bytes(each)
        for each in folders
    }


def _part_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / "blobs").glob("*.incomplete"))


def removable_bytes(repository: str) -> int:
    """Estimate what `remove` frees, to a block of each file."""
    folder = hub.repository_folder(repository)
    alone = _of(_scan(), folder)
    files = (file for each in alone.repos for revision in each.revisions for file in revision.files)
    own = {file.blob_path: file.size_on_disk for file in files if not file.blob_path.is_symlink()}
    shared = _deletion(alone).expected_freed_size - sum(own.values())
    return storage.size_bytes(folder) + shared


def remove(repository: str) -> int:
    """Remove a model, and the shared files that no other model needs; return the bytes that are free then."""
    folder, cache = hub.repository_folder(repository), hub.cache().resolve()
    links = [path.resolve() for path in (folder / "blobs").glob("*") if path.is_symlink()]
    shared = {path.parent for path in links if path.is_relative_to(cache)}
    before = sum(map(storage.size_bytes, (folder, *shared)))
    _repair(folder)
    _deletion(_of(_scan(), folder)).execute()
    if folder.exists():
        storage.remove(folder)
    return before - sum(map(storage.size_bytes, shared))


def discard(blobs: Iterable[Path]) -> None:
    """Remove damaged files that are links in the cache, and the shared files that no other model needs."""
    inside, links = hub.cache().resolve(), (path for path in blobs if path.is_symlink())
    wanted = {path.parent.resolve() / path.name for path in links}
    if not any(path.is_relative_to(inside) for path in wanted):
        return
    cache = _scan()
    files = (file for repo in cache.repos for revision in repo.revisions for file in revision.files)
    # A library without shared files has neither such paths nor delete_files.
    if damaged := [file for file in files if file.blob_path in wanted]:
        cache.delete_files(*damaged).execute()


def _repair(folder: Path) -> None:
    """Remove links and refs that lead nowhere, because the library leaves out a model that has one."""
    if (folder / "refs").is_dir():
        storage.remove(folder / "refs")
    for path in (folder / "snapshots").rglob("*"):
        if path.is_symlink() and not path.exists():
            path.unlink()


def _scan() -> "HFCacheInfo":
    from huggingface_hub import scan_cache_dir  # noqa: PLC0415 - 60 ms, and seldom needed

    hub.silence()
    return scan_cache_dir(hub.cache())


def _deletion(cache: "HFCacheInfo") -> "DeleteCacheStrategy":
    commits = (revision.commit_hash for each in cache.repos for revision in each.revisions)
    return cache.delete_revisions(*commits)


def _of(cache: "HFCacheInfo", folder: Path) -> "HFCacheInfo":
    """Return what the cache has of this model; a renamed one has the same commits under both names."""
    return replace(cache, repos=frozenset(each for each in cache.repos if each.repo_path.name == folder.name))
