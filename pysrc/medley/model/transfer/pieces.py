"""Verify and store each piece; find the pieces of an earlier transfer, and damage.

An unfinished file has another name, and config.json comes last, so engines see no unfinished model.
"""

import contextlib
import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from medley import storage
from medley.command import quote_path
from medley.errors import Problem, describe_error
from medley.model import hub_cache
from medley.model.transfer import (
    UNFINISHED_SUFFIX,
    Manifest,
    ManifestFile,
    ManifestLink,
    inventory,
    is_config_file,
)
from medley.model.transfer.paths import has_folders, open_below
from medley.values import Value


class PieceStore:
    """The pieces of one model below `root`: some threads store them, others send them."""

    def __init__(self, manifest: Manifest, root: Path, *, whole: bool = False) -> None:
        """Start with no piece, or with all if `whole`: then the manifest is this host's."""
        self.manifest, self.root = manifest, root
        self.done_bytes = manifest.size_bytes if whole else 0
        self.is_ended = whole
        self._stored_flags = [whole] * len(manifest.pieces)
        self._final_paths = {file.path for file in manifest.files if whole}
        self._missing_counts = {file.path: 0 if whole else len(file.hashes) for file in manifest.files}
        self._change = threading.Condition()

    def list_missing(self) -> list[int]:
        return [number for number, is_stored in enumerate(self._stored_flags) if not is_stored]

    @property
    def missing_bytes(self) -> int:
        return self.manifest.size_bytes - self.done_bytes

    def wait_for_piece(self, number: int, limit_s: float) -> bool:
        """Wait for a piece; return whether it is here."""
        with self._change:
            self._change.wait_for(lambda: self._stored_flags[number] or self.is_ended, limit_s)
            return self._stored_flags[number]

    def end(self) -> None:
        """Wake all threads that wait for pieces."""
        with self._change:
            self.is_ended = True
            self._change.notify_all()

    def find_final_path(self, file: ManifestFile) -> Path:
        return self.root / file.path

    def find_unfinished_path(self, file: ManifestFile) -> Path:
        """Return a path in the same folder, so on the same file system."""
        return self.root / f"{file.path}{UNFINISHED_SUFFIX}"

    def has_link(self, link: ManifestLink) -> bool:
        if not has_folders(self.root, link.path):
            return False
        with open_below(self.root, link.path) as name:
            return name.read_link() == link.target

    @contextlib.contextmanager
    def open_piece(self, number: int) -> Iterator[IO[bytes]]:
        """Yield the file with this piece, open for reading; it may get its final name meanwhile."""
        file = self.manifest.pieces[number].file
        with self._change, open_below(self.root, file.path) as path:
            current = path if file.path in self._final_paths else path.sibling(path.name + UNFINISHED_SUFFIX)
            stream = os.fdopen(current.open(os.O_RDONLY), "rb", buffering=0)
        with stream:
            yield stream

    def mark_stored(self, number: int) -> None:
        """Count a piece that is on the disk and verified."""
        piece = self.manifest.pieces[number]
        with self._change:
            if not self._stored_flags[number]:
                self._stored_flags[number] = True
                self._missing_counts[piece.file.path] -= 1
                self.done_bytes += piece.size_bytes
                self._change.notify_all()

    def mark_final(self, file: ManifestFile) -> None:
        with self._change:
            self._final_paths.add(file.path)

    def store_piece(self, number: int, data: memoryview) -> bool:
        """Write a piece to the disk; return False if its hash is wrong."""
        piece = self.manifest.pieces[number]
        if hashlib.sha256(data).hexdigest() != piece.sha256:
            return False
        with self.explain_write_errors(piece.file):
            handle = self._open(piece.file)
            try:
                written_bytes = 0
                while written_bytes < len(data):
                    offset = piece.offset + written_bytes
                    written_bytes += os.pwrite(handle, data[written_bytes:], offset)
            finally:
                os.close(handle)
            self.mark_stored(number)
            if self._missing_counts[piece.file.path] == 0 and not is_config_file(piece.file.path):
                self._publish_file(piece.file)
        return True

    def publish(self) -> None:
        """Rename the files that come last to their names, and make the links."""
        for file in self.manifest.files:
            if file.path not in self._final_paths:
                with self.explain_write_errors(file):
                    self._publish_file(file)
        for link in self.manifest.links:
            with self.explain_write_errors(link):
                self._link(link)
        self.end()

    @contextlib.contextmanager
    def explain_write_errors(self, entry: ManifestFile | ManifestLink) -> Iterator[None]:
        """Turn an error of the file system into a Problem."""
        try:
            yield
        except OSError as error:
            raise Problem(
                f"{self.root / entry.path} cannot be written",
                cause=f"{describe_error(error)}: {self.missing_bytes} bytes of the model are missing, "
                f"{storage.measure_free_bytes(self.root)} are free",
                fix=f"df -h {quote_path(self.root)}  "
                "# make room, or see who may write there, then pull again",
            ) from error

    def _open(self, file: ManifestFile) -> int:
        with open_below(self.root, file.path + UNFINISHED_SUFFIX, create=True) as name:
            return name.open(os.O_WRONLY | os.O_CREAT)

    def _publish_file(self, file: ManifestFile) -> None:
        """Sync the file before it gets its name, so that it is complete after a power cut too."""
        handle = self._open(file)
        try:
            os.ftruncate(handle, file.size_bytes)
            os.fsync(handle)
            # Drop it from the page cache, as inventory.keep_page_cache does, because it is on the disk.
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)
        with self._change, open_below(self.root, file.path) as name:
            if file.path in self._final_paths:
                return
            name.sibling(name.name + UNFINISHED_SUFFIX).rename(name.name)
            self._final_paths.add(file.path)
        inventory.save_hashes(self.find_final_path(file), self.manifest.piece_bytes, file.hashes)

    def _link(self, link: ManifestLink) -> None:
        with open_below(self.root, link.path, create=True) as name:
            if name.read_link() == link.target:
                return
            unfinished = name.sibling(name.name + UNFINISHED_SUFFIX)
            unfinished.remove()
            unfinished.make_link(link.target)
            unfinished.rename(name.name)


class _FileState(Value):
    """A file as it is on the disk."""

    file: ManifestFile
    hashes: tuple[str, ...]
    """The SHA-256 of each piece on the disk."""
    is_final: bool
    """Whether it has its final name."""

    @property
    def is_complete(self) -> bool:
        return self.is_final and self.hashes == self.file.hashes

    @property
    def piece_matches(self) -> list[bool]:
        """Whether each piece of the manifest is on the disk."""
        matches = [
            actual == expected for actual, expected in zip(self.hashes, self.file.hashes, strict=False)
        ]
        return matches + [False] * (len(self.file.hashes) - len(matches))


def recover_pieces(store: PieceStore, on_progress: inventory.OnProgress | None = None) -> None:
    """Count the pieces that are here, and give their files the names under which they can be completed."""
    count = inventory.build_counter(store.manifest.size_bytes, on_progress)
    states = [_inspect_file(store, file, count) for file in store.manifest.files]
    incomplete = [state for state in states if not state.is_complete]
    if incomplete:
        # The hub's cache shares files between snapshots: a later download would link to a damaged one.
        hub_cache.discard_blobs(store.find_final_path(state.file) for state in incomplete if state.is_final)
        # From here on engines see no model, until all of it is here.
        _hide_model(store)
    first_number = 0
    for state in states:
        with store.explain_write_errors(state.file):
            pieces = _keep_correct_pieces(store, state)
        for number, is_correct in enumerate(pieces, first_number):
            if is_correct:
                store.mark_stored(number)
        first_number += len(pieces)


def find_damage(
    manifest: Manifest, root: Path, on_progress: inventory.OnProgress | None = None
) -> tuple[str, ...]:
    """Read all files, and return what is missing or damaged, by file and piece. A transfer repairs it."""
    store, count = PieceStore(manifest, root), inventory.build_counter(manifest.size_bytes, on_progress)
    damaged = [text for file in manifest.files for text in _list_damage(store, file, count)]
    links = (link.path for link in manifest.links if not store.has_link(link))
    return (*damaged, *(f"the link {path} is missing or another" for path in links))


def _list_damage(store: PieceStore, file: ManifestFile, count: inventory.OnBytes) -> list[str]:
    path = store.find_final_path(file)
    if not has_folders(store.root, file.path) or not path.is_file():
        return [f"{file.path} is missing"]
    hashes = inventory.hash_file_pieces(path, store.manifest.piece_bytes, fresh=True, on_bytes=count)
    pieces = zip(
        store.manifest.list_pieces(file), _FileState(file, hashes, is_final=True).piece_matches, strict=True
    )
    damaged = [f"{piece} is damaged" for piece, is_correct in pieces if not is_correct]
    if not damaged and hashes != file.hashes:
        return [f"{file.path} is longer than it should be"]
    return damaged


def _inspect_file(store: PieceStore, file: ManifestFile, count: inventory.OnBytes) -> _FileState:
    """Return the state of the final file, else of the unfinished one, which is always read."""
    final, part = store.find_final_path(file), store.find_unfinished_path(file)
    size = store.manifest.piece_bytes
    if not has_folders(store.root, file.path):
        return _FileState(file, (), is_final=False)
    if final.is_file():
        return _FileState(file, inventory.hash_file_pieces(final, size, on_bytes=count), is_final=True)
    if part.is_file() and not part.is_symlink():
        return _FileState(file, inventory.hash_pieces(part, size, count), is_final=False)
    return _FileState(file, (), is_final=False)


def _hide_model(store: PieceStore) -> None:
    """Remove the final names of the files by which engines recognize a model."""
    for link in store.manifest.links:
        if is_config_file(link.path) and has_folders(store.root, link.path):
            with store.explain_write_errors(link), open_below(store.root, link.path) as name:
                name.remove()
    for file in store.manifest.files:
        if (
            is_config_file(file.path)
            and has_folders(store.root, file.path)
            and store.find_final_path(file).exists()
        ):
            with store.explain_write_errors(file):
                _mark_unfinished(store, file)


def _keep_correct_pieces(store: PieceStore, state: _FileState) -> list[bool]:
    """Keep a complete file, and the correct pieces of another under the unfinished name.

    Return for each piece whether it is kept.
    """
    final, part = store.find_final_path(state.file), store.find_unfinished_path(state.file)
    if state.is_complete and final.exists():
        store.mark_final(state.file)
        return state.piece_matches
    if state.is_final and final.exists() and any(state.piece_matches):
        _mark_unfinished(store, state.file)
    return state.piece_matches if part.is_file() else [False] * len(state.piece_matches)


def _mark_unfinished(store: PieceStore, file: ManifestFile) -> None:
    """Give a file the unfinished name; remove a link instead, because its target is the user's."""
    with open_below(store.root, file.path) as name:
        if name.read_link() is None:
            name.rename(name.name + UNFINISHED_SUFFIX)
        else:
            name.remove()
            name.sibling(name.name + UNFINISHED_SUFFIX).remove()
