"""What a host holds of a model: the pieces that are on its disk and verified, while more of them come.

A file that is not whole has another name, and one by which an engine knows a model comes last of all; so a
model that is half there looks like none.
"""

import contextlib
import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from medley import store
from medley.beneath import beneath, reached
from medley.problem import Problem, in_words
from medley.transfer import hashes
from medley.transfer.manifest import UNFINISHED, File, Link, Manifest, last


class Held:
    """Of one model, below `root`; some threads bring pieces and others hand them on."""

    def __init__(self, manifest: Manifest, root: Path, *, whole: bool = False) -> None:
        """With `whole` all of it lies there: the manifest is this host's own."""
        self.manifest, self.root = manifest, root
        self.done_bytes = manifest.size_bytes if whole else 0
        self.ended = whole
        """No further pieces come."""
        self._here = [whole] * len(manifest.pieces)
        self._in_place = {file.path for file in manifest.files if whole}
        self._left = {file.path: 0 if whole else len(file.hashes) for file in manifest.files}
        self._change = threading.Condition()

    def missing(self) -> list[int]:
        """The numbers of the pieces that are not here, in order."""
        return [number for number, here in enumerate(self._here) if not here]

    @property
    def missing_bytes(self) -> int:
        return self.manifest.size_bytes - self.done_bytes

    def wait(self, number: int, limit_s: float) -> bool:
        """Whether a piece is here, if need be after so long."""
        with self._change:
            self._change.wait_for(lambda: self._here[number] or self.ended, limit_s)
            return self._here[number]

    def end(self) -> None:
        """Let go all who wait for pieces."""
        with self._change:
            self.ended = True
            self._change.notify_all()

    def final(self, file: File) -> Path:
        return self.root / file.path

    def unfinished(self, file: File) -> Path:
        """Beside the final one, and so on the same file system."""
        return self.root / f"{file.path}{UNFINISHED}"

    def linked(self, link: Link) -> bool:
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
        """A piece is on the disk, and was hashed there or on its way."""
        piece = self.manifest.pieces[number]
        with self._change:
            if not self._here[number]:
                self._here[number] = True
                self._left[piece.file.path] -= 1
                self.done_bytes += piece.size_bytes
                self._change.notify_all()

    def placed(self, file: File) -> None:
        """A whole file has its own name."""
        with self._change:
            self._in_place.add(file.path)

    def keep(self, number: int, data: memoryview) -> bool:
        """Write a piece to its file, if it is the right one."""
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
        """Give their names to the files that come last, and make the links."""
        for file in self.manifest.files:
            if file.path not in self._in_place:
                with self.writing(file):
                    self._finish(file)
        for link in self.manifest.links:
            with self.writing(link):
                self._link(link)
        self.end()

    @contextlib.contextmanager
    def writing(self, entry: File | Link) -> Iterator[None]:
        """What the file system has against it is a Problem."""
        try:
            yield
        except OSError as error:
            raise Problem(
                f"{self.root / entry.path} cannot be written",
                cause=f"{in_words(error)}: {self.missing_bytes} bytes of the model are missing, "
                f"{store.free_bytes(self.root)} are free",
                fix=f"df -h {self.root}  # make room, or see who may write there, then pull again",
            ) from error

    def _open(self, file: File) -> int:
        with beneath(self.root, file.path + UNFINISHED, make=True) as name:
            return name.open(os.O_WRONLY | os.O_CREAT)

    def _finish(self, file: File) -> None:
        """On the disk before it has its name, so that one with this name is whole after a power cut too."""
        handle = self._open(file)
        try:
            os.ftruncate(handle, file.size_bytes)
            os.fsync(handle)
        finally:
            os.close(handle)
        with self._change, beneath(self.root, file.path) as name:
            if file.path in self._in_place:
                return
            name.beside(name.name + UNFINISHED).become(name.name)
            self._in_place.add(file.path)
        hashes.remember(self.final(file), self.manifest.piece_bytes, file.hashes)

    def _link(self, link: Link) -> None:
        with beneath(self.root, link.path, make=True) as name:
            if name.target() == link.target:
                return
            made = name.beside(name.name + UNFINISHED)
            made.remove()
            made.link(link.target)
            made.become(name.name)
