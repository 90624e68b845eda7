"""Names beneath a folder, for paths that come from elsewhere: no component on the way may be a link.

Each component is opened by itself, without following a link (O_NOFOLLOW, open(2)), and what is done is done
in the open folder: nothing can be put in the way between the look and the deed. The folder itself, and what
lies above it, is the user's, and may be reached through links.
"""

import contextlib
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from medley.problem import Problem

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True)
class Name:
    """The last component of a path, in the open folder that holds it."""

    folder: int
    """A handle of the folder."""
    name: str

    def open(self, flags: int) -> int:
        """A handle of it; a link of that name is never followed where it may be written to."""
        closed = 0 if flags & os.O_ACCMODE == os.O_RDONLY else os.O_NOFOLLOW
        return os.open(self.name, flags | closed | os.O_CLOEXEC, 0o666, dir_fd=self.folder)

    def target(self) -> str | None:
        """That of the link it is; None where it is none."""
        try:
            return os.readlink(self.name, dir_fd=self.folder)
        except OSError:
            return None

    def link(self, target: str) -> None:
        os.symlink(target, self.name, dir_fd=self.folder)

    def remove(self) -> None:
        """It may be gone already."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.name, dir_fd=self.folder)

    def beside(self, name: str) -> "Name":
        return Name(self.folder, name)

    def become(self, name: str) -> None:
        """Take another name of the same folder, from whatever has it."""
        os.replace(self.name, name, src_dir_fd=self.folder, dst_dir_fd=self.folder)


@contextlib.contextmanager
def beneath(root: Path, path: str, *, make: bool = False) -> Iterator[Name]:
    """The name of `path`, which is relative, below `root`; with `make` its folders are made.

    A Problem where the way leads through a link; FileNotFoundError where a folder is missing.
    """
    *folders, name = path.split("/")
    if {"", ".", ".."} & {*folders, name}:
        raise AssertionError(path)  # whoever reads paths from elsewhere refuses these
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
    """Whether all folders on the way are there; a Problem where one of them is a link."""
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
            f"{where} is a link, and the model has a folder there",
            cause=f"it leads to {target!r}: files from another host are not written through a link",
            fix=f"ls -l {shlex.quote(str(where))}  # remove it, or give the model a folder of its own",
        ) from None
