"""Measure and remove models in the hub's cache with the hub's own library.

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


def measure_models() -> dict[str, int]:
    """Return the bytes of each model by repository; a file that two models share counts for both."""
    folders = [folder for folder in hub.find_cache_folder().glob("models--*--*") if folder.is_dir()]
    if not folders:
        return {}
    # The library leaves out parts of files, and a model whose ref names a commit that is not here.
    measured = {
        repo.repo_path.name: repo.size_on_disk + _measure_parts(repo.repo_path)
        for repo in _scan_cache().repos
    }
    by_repository = {}
    for folder in folders:
        repository = folder.name.removeprefix("models--").replace("--", "/", 1)
        by_repository[repository] = measured.get(folder.name) or storage.measure_disk_usage(folder)
    return by_repository


def _measure_parts(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / "blobs").glob("*.incomplete"))


def estimate_removable_bytes(repository: str) -> int:
    """Estimate what `remove` frees, to a block of each file."""
    folder = hub.find_repository_folder(repository)
    cached_model = _select_model(_scan_cache(), folder)
    files = (file for repo in cached_model.repos for revision in repo.revisions for file in revision.files)
    unshared = {file.blob_path: file.size_on_disk for file in files if not file.blob_path.is_symlink()}
    shared_bytes = _plan_deletion(cached_model).expected_freed_size - sum(unshared.values())
    return storage.measure_disk_usage(folder) + shared_bytes


def remove_model(repository: str) -> int:
    """Remove a model, and the shared files that no other model needs; return the bytes that are free then."""
    folder, cache = hub.find_repository_folder(repository), hub.find_cache_folder().resolve()
    links = [path.resolve() for path in (folder / "blobs").glob("*") if path.is_symlink()]
    shared_folders = {path.parent for path in links if path.is_relative_to(cache)}
    bytes_before = sum(map(storage.measure_disk_usage, (folder, *shared_folders)))
    _remove_broken_links(folder)
    _plan_deletion(_select_model(_scan_cache(), folder)).execute()
    if folder.exists():
        storage.remove_folder(folder)
    return bytes_before - sum(map(storage.measure_disk_usage, shared_folders))


def discard_blobs(blobs: Iterable[Path]) -> None:
    """Remove damaged files that are links in the cache, and the shared files that no other model needs."""
    cache_folder, links = hub.find_cache_folder().resolve(), (path for path in blobs if path.is_symlink())
    paths = {path.parent.resolve() / path.name for path in links}
    if not any(path.is_relative_to(cache_folder) for path in paths):
        return
    cache = _scan_cache()
    files = (file for repo in cache.repos for revision in repo.revisions for file in revision.files)
    # A library without shared files has neither such paths nor delete_files.
    if damaged := [file for file in files if file.blob_path in paths]:
        cache.delete_files(*damaged).execute()


def _remove_broken_links(folder: Path) -> None:
    """Remove links and refs that lead nowhere, because the library leaves out a model that has one."""
    if (folder / "refs").is_dir():
        storage.remove_folder(folder / "refs")
    for path in (folder / "snapshots").rglob("*"):
        if path.is_symlink() and not path.exists():
            path.unlink()


def _scan_cache() -> "HFCacheInfo":
    from huggingface_hub import scan_cache_dir  # noqa: PLC0415 - 60 ms, and seldom needed

    hub.silence_library()
    return scan_cache_dir(hub.find_cache_folder())


def _plan_deletion(cache: "HFCacheInfo") -> "DeleteCacheStrategy":
    commits = (revision.commit_hash for repo in cache.repos for revision in repo.revisions)
    return cache.delete_revisions(*commits)


def _select_model(cache: "HFCacheInfo", folder: Path) -> "HFCacheInfo":
    """Return the cache with this model only; a renamed one has the same commits under both names."""
    repos = frozenset(repo for repo in cache.repos if repo.repo_path.name == folder.name)
    return replace(cache, repos=repos)
