"""Verify and store each piece; find the pieces of an earlier transfer, and damage.

An unfinished file has another name, and config.json comes last, so engines see no unfinished model.
"""

import contextlib
import hashlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from medley import storage
from medley.errors import Problem, in_words
from medley.model import hub_cache
from medley.model.transfer import UNFINISHED, Manifest, ManifestFile, ManifestLink, inventory, last
from medley.model.transfer.paths import beneath, reached


class Held:
    """Pieces of one model below `root`: some threads store them, others send them."""

    def __init__(self, manifest: Manifest, root: Path, *, whole: bool = False) -> None:
        """`whole`: all files are here, and the manifest is this host's."""
        self.manifest, self.root = manifest, root
        self.done_bytes = manifest.size_bytes if whole else 0
        self.ended = whole
        self._here = [whole] * len(manifest.pieces)
        self._in_place = {file.path for file in manifest.files if whole}
        self._left = {file.path: 0 if whole else len(file.hashes) for file in manifest.files}
        self._change = threading.Condition()

    def missing(self) -> list[int]:
        return [number for number, here in enumerate(self._here) if not here]

    @property
    def missing_bytes(self) -> int:
        return self.manifest.size_bytes - self.done_bytes

    def wait(self, number: int, limit_s: float) -> bool:
        with self._change:
            self._change.wait_for(lambda: self._here[number] or self.ended, limit_s)
            return self._here[number]

    def end(self) -> None:
        """Wake all threads that wait for pieces."""
        with self._change:
            self.ended = True
            self._change.notify_all()

    def final(self, file: ManifestFile) -> Path:
        return self.root / file.path

    def unfinished(self, file: ManifestFile) -> Path:
        """Return a path in the same folder, so on the same file system."""
        return self.root / f"{file.path}{UNFINISHED}"

    def linked(self, link: ManifestLink) -> bool:
        if not reached(self.root, link.path):
            return False
        with beneath(self.root, link.path) as name:
            return name.target() == link.target

    @contextlib.contextmanager
    def opened(self, number: int) -> Iterator[IO[bytes]]:
        """The file with this piece, to read from; it may get its own name meanwhile."""
        file = self.manifest.pieces[number].file
        with self._change, beneath(self.root, file.path) as name:
            there = name if file.path in self._in_place else name.beside(name.name + UNFINISHED)
            opened = os.fdopen(there.open(os.O_RDONLY), "rb", buffering=0)
        with opened:
            yield opened

    def count(self, number: int) -> None:
        """Count a piece that is on the disk and verified."""
        piece = self.manifest.pieces[number]
        with self._change:
            if not self._here[number]:
                self._here[number] = True
                self._left[piece.file.path] -= 1
                self.done_bytes += piece.size_bytes
                self._change.notify_all()

    def placed(self, file: ManifestFile) -> None:
        with self._change:
            self._in_place.add(file.path)

    def keep(self, number: int, data: memoryview) -> bool:
        piece = self.manifest.pieces[number]
        if hashlib.sha256(data).hexdigest() != piece.sha256:
            return False
        with self.writing(piece.file):
            handle = self._open(piece.file)
            try:
                at = 0
                while at < len(data):
                    at += os.pwrite(handle, data[at:], piece.offset + at)
            finally:
                os.close(handle)
            self.count(number)
            if self._left[piece.file.path] == 0 and not last(piece.file.path):
                self._finish(piece.file)
        return True

    def complete(self) -> None:
        """Rename the files that come last to their names, and make the links."""
        for file in self.manifest.files:
            if file.path not in self._in_place:
                with self.writing(file):
                    self._finish(file)
        for link in self.manifest.links:
            with self.writing(link):
                self._link(link)
        self.end()

    @contextlib.contextmanager
    def writing(self, entry: ManifestFile | ManifestLink) -> Iterator[None]:
        """Turn an error of the file system into a Problem."""
        try:
            yield
        except OSError as error:
            raise Problem(
                f"{self.root / entry.path} cannot be written",
                cause=f"{in_words(error)}: {self.missing_bytes} bytes of the model are missing, "
                f"{storage.free_bytes(self.root)} are free",
                fix=f"df -h {self.root}  # make room, or see who may write there, then pull again",
            ) from error

    def _open(self, file: ManifestFile) -> int:
        with beneath(self.root, file.path + UNFINISHED, make=True) as name:
            return name.open(os.O_WRONLY | os.O_CREAT)

    def _finish(self, file: ManifestFile) -> None:
        """Sync the file before it gets its name, so that it is complete after a power cut too."""
        handle = self._open(file)
        try:
            os.ftruncate(handle, file.size_bytes)
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)  # as page_cache_kept, once it is written
        finally:
            os.close(handle)
        with self._change, beneath(self.root, file.path) as name:
            if file.path in self._in_place:
                return
            name.beside(name.name + UNFINISHED).become(name.name)
            self._in_place.add(file.path)
        inventory.remember_hashes(self.final(file), self.manifest.piece_bytes, file.hashes)

    def _link(self, link: ManifestLink) -> None:
        with beneath(self.root, link.path, make=True) as name:
            if name.target() == link.target:
                return
            made = name.beside(name.name + UNFINISHED)
            made.remove()
            made.link(link.target)
            made.become(name.name)


@dataclass(frozen=True)
class _Found:
    file: ManifestFile
    hashes: tuple[str, ...]
    final: bool

    @property
    def whole(self) -> bool:
        return self.final and self.hashes == self.file.hashes

    @property
    def right(self) -> list[bool]:
        found = [have == want for have, want in zip(self.hashes, self.file.hashes, strict=False)]
        return found + [False] * (len(self.file.hashes) - len(found))


def recover(held: Held, on_progress: inventory.OnProgress | None = None) -> None:
    """Count the pieces that are here, and put them where they can be completed."""
    count = inventory.counter(held.manifest.size_bytes, on_progress)
    found = [_found(held, file, count) for file in held.manifest.files]
    if not all(each.whole for each in found):
        # Another download would link to a damaged shared file again.
        hub_cache.discard(held.final(each.file) for each in found if each.final and not each.whole)
        # From here on it is no model, until all of it is.
        _take_back(held)
    numbers = iter(range(len(held.manifest.pieces)))
    for each in found:
        with held.writing(each.file):
            kept = _settle(held, each)
        for right, number in zip(kept, numbers, strict=False):
            if right:
                held.count(number)


def damage(
    manifest: Manifest, root: Path, on_progress: inventory.OnProgress | None = None
) -> tuple[str, ...]:
    """List what is missing or damaged, by file and piece; all is read. A transfer then mends it."""
    held, count = Held(manifest, root), inventory.counter(manifest.size_bytes, on_progress)
    wrong = [each for file in manifest.files for each in _wrong(held, file, count)]
    links = (each.path for each in manifest.links if not held.linked(each))
    return (*wrong, *(f"the link {path} is missing or another" for path in links))


def _wrong(held: Held, file: ManifestFile, count: inventory.OnBytes) -> list[str]:
    path = held.final(file)
    if not reached(held.root, file.path) or not path.is_file():
        return [f"{file.path} is missing"]
    there = inventory.file_hashes(path, held.manifest.piece_bytes, fresh=True, on_bytes=count)
    pieces = zip(held.manifest.pieces_of(file), _Found(file, there, final=True).right, strict=True)
    damaged = [f"{piece} is damaged" for piece, good in pieces if not good]
    return damaged or ([] if there == file.hashes else [f"{file.path} is longer than it should be"])


def _found(held: Held, file: ManifestFile, count: inventory.OnBytes) -> _Found:
    """Find the final file, else the unfinished one, which is always read."""
    final, part, size = held.final(file), held.unfinished(file), held.manifest.piece_bytes
    if not reached(held.root, file.path):
        return _Found(file, (), final=False)
    if final.is_file():
        return _Found(file, inventory.file_hashes(final, size, on_bytes=count), final=True)
    if part.is_file() and not part.is_symlink():
        return _Found(file, inventory.read_hashes(part, size, count), final=False)
    return _Found(file, (), final=False)


def _take_back(held: Held) -> None:
    for link in held.manifest.links:
        if last(link.path) and reached(held.root, link.path):
            with held.writing(link), beneath(held.root, link.path) as name:
                name.remove()
    for file in held.manifest.files:
        if last(file.path) and reached(held.root, file.path) and held.final(file).exists():
            with held.writing(file):
                _rename(held, file)


def _settle(held: Held, found: _Found) -> list[bool]:
    """Keep a complete file; keep another's right pieces under the unfinished name."""
    final, part = held.final(found.file), held.unfinished(found.file)
    if found.whole and final.exists():
        held.placed(found.file)
        return found.right
    if found.final and final.exists() and any(found.right):
        _rename(held, found.file)
    return found.right if part.is_file() else [False] * len(found.right)


def _rename(held: Held, file: ManifestFile) -> None:
    """Give it the unfinished name; remove a link, because its target is the user's."""
    with beneath(held.root, file.path) as name:
        if name.target() is None:
            name.become(name.name + UNFINISHED)
        else:
            name.remove()
            name.beside(name.name + UNFINISHED).remove()
