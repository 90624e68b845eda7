"""What is recovered is what lies on the disk already: hashed before it counts, whoever wrote it.

An earlier transfer may have been killed at any point, another version of the model may lie there, or a bit
may have flipped: each is a file some of whose pieces are right.
"""

from dataclasses import dataclass
from pathlib import Path

from medley.beneath import beneath, reached
from medley.transfer import hashes
from medley.transfer.held import Held
from medley.transfer.manifest import UNFINISHED, File, Manifest, last
from medley.transfer.offered import Progress


@dataclass(frozen=True)
class _Found:
    file: File
    hashes: tuple[str, ...]
    final: bool
    """It has its own name."""

    @property
    def whole(self) -> bool:
        return self.final and self.hashes == self.file.hashes

    @property
    def right(self) -> list[bool]:
        """Of each piece."""
        found = [have == want for have, want in zip(self.hashes, self.file.hashes, strict=False)]
        return found + [False] * (len(self.file.hashes) - len(found))


def recover(held: Held, on_progress: Progress | None = None) -> None:
    """Count what is there, and put it where it can be completed."""
    seen = 0

    def count(size: int) -> None:
        nonlocal seen
        seen += size
        if on_progress:
            on_progress(min(seen, held.manifest.size_bytes), held.manifest.size_bytes)

    found = [_found(held, file, count) for file in held.manifest.files]
    if not all(each.whole for each in found):
        # From here on it is no model, until all of it is.
        _take_back(held)
    numbers = iter(range(len(held.manifest.pieces)))
    for each in found:
        with held.writing(each.file):
            kept = _settle(held, each)
        for right, number in zip(kept, numbers, strict=False):
            if right:
                held.count(number)


def damage(manifest: Manifest, root: Path, on_progress: Progress | None = None) -> tuple[str, ...]:
    """What is not on this disk as it should be, by file and piece; all is read. A transfer then mends it."""
    held, done = Held(manifest, root), 0

    def count(size: int) -> None:
        nonlocal done
        done += size
        if on_progress:
            on_progress(min(done, manifest.size_bytes), manifest.size_bytes)

    wrong = [said for file in manifest.files for said in _wrong(held, file, count)]
    wrong += [
        f"the link {each.path} is missing or another" for each in manifest.links if not held.linked(each)
    ]
    return tuple(wrong)


def _wrong(held: Held, file: File, count: hashes.OnBytes) -> list[str]:
    path = held.final(file)
    if not reached(held.root, file.path) or not path.is_file():
        return [f"{file.path} is missing"]
    there = hashes.of_file(path, held.manifest.piece_bytes, fresh=True, on_bytes=count)
    right = _Found(file, there, final=True).right
    said = [
        f"{piece} is damaged"
        for piece, good in zip(held.manifest.pieces_of(file), right, strict=True)
        if not good
    ]
    return said or ([] if there == file.hashes else [f"{file.path} is longer than it should be"])


def _found(held: Held, file: File, count: hashes.OnBytes) -> _Found:
    """What lies there by the file's own name, or else by that of an unfinished one, which is always read."""
    final, part, size = held.final(file), held.unfinished(file), held.manifest.piece_bytes
    if not reached(held.root, file.path):
        return _Found(file, (), final=False)
    if final.is_file():
        return _Found(file, hashes.of_file(final, size, on_bytes=count), final=True)
    if part.is_file() and not part.is_symlink():
        return _Found(file, hashes.read(part, size, count), final=False)
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
    """A whole file stays; of another, the pieces that are right stay under the unfinished one's name."""
    final, part = held.final(found.file), held.unfinished(found.file)
    if found.whole and final.exists():
        held.placed(found.file)
        return found.right
    if found.final and final.exists() and any(found.right):
        _rename(held, found.file)
    return found.right if part.is_file() else [False] * len(found.right)


def _rename(held: Held, file: File) -> None:
    """To the unfinished one's name; what is behind a link is the user's, and is not written to."""
    with beneath(held.root, file.path) as name:
        if name.target() is None:
            name.become(name.name + UNFINISHED)
        else:
            name.remove()
            name.beside(name.name + UNFINISHED).remove()
