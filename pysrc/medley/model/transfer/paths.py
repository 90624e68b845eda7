"""Open the files of a model below its folder, where no link can lead out of it.

`beneath` opens each component by itself, without following links (O_NOFOLLOW, open(2)), and works in the open
folder, so that no link can be inserted between check and use. The root itself may be reached through links.
"""

import contextlib
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from medley.errors import Problem

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True)
class Name:
    """The last component of a path, in its open folder."""

    folder: int
    name: str

    def open(self, flags: int) -> int:
        """Open it; never follow a link for writing."""
        closed = 0 if flags & os.O_ACCMODE == os.O_RDONLY else os.O_NOFOLLOW
        return os.open(self.name, flags | closed | os.O_CLOEXEC, 0o666, dir_fd=self.folder)

    def target(self) -> str | None:
        """Return the target of the link; None for other files."""
        try:
            return os.readlink(self.name, dir_fd=self.folder)
        except OSError:
            return None

    def link(self, target: str) -> None:
        os.symlink(target, self.name, dir_fd=self.folder)

    def remove(self) -> None:
        """Remove it, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.name, dir_fd=self.folder)

    def beside(self, name: str) -> "Name":
        return Name(self.folder, name)

    def become(self, name: str) -> None:
        """Rename it in the same folder, replacing any other file."""
        os.replace(self.name, name, src_dir_fd=self.folder, dst_dir_fd=self.folder)


@contextlib.contextmanager
def beneath(root: Path, path: str, *, make: bool = False) -> Iterator[Name]:
    """Yield the name of the relative `path` below `root`; raise a Problem for a link on the way."""
    *folders, name = path.split("/")
    if {"", ".", ".."} & {*folders, name}:
        raise AssertionError(path)  # readers of foreign paths refuse these
    if make:
        root.mkdir(parents=True, exist_ok=True)
    handle = os.open(root, _FOLDER)
    try:
        for depth, folder in enumerate(folders, 1):
            inner = _entered(handle, folder, root.joinpath(*folders[:depth]), make=make)
            os.close(handle)
            handle = inner
        yield Name(handle, name)
    finally:
        os.close(handle)


def reached(root: Path, path: str) -> bool:
    """Whether all folders on the way exist."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), beneath(root, path):
        return True
    return False


def _entered(handle: int, folder: str, where: Path, *, make: bool) -> int:
    if make:
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, dir_fd=handle)
    try:
        return os.open(folder, _FOLDER | os.O_NOFOLLOW, dir_fd=handle)
    except NotADirectoryError:
        target = Name(handle, folder).target()
        if target is None:
            raise
        raise Problem(
            f"{where} is a link, but the model has a folder there",
            cause=f"it points to {target!r}: files from another host are not written through a link",
            fix=f"ls -l {shlex.quote(str(where))}  # remove it, or use another folder for the model",
        ) from None
