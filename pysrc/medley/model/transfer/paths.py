"""Open the files of a model below its folder, where no link can lead out of it.

`open_below` opens each component by itself, without following links (O_NOFOLLOW, open(2)), and works in the
open folder, so that no link can be inserted between check and use. The path of the root may have links.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from medley.command import quote_path
from medley.errors import Problem
from medley.values import Value

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class OpenPath(Value):
    """The last component of a path, in its open folder."""

    folder: int
    name: str

    def open(self, flags: int) -> int:
        """Open it and return the handle; never follow a link for writing."""
        nofollow = 0 if flags & os.O_ACCMODE == os.O_RDONLY else os.O_NOFOLLOW
        return os.open(self.name, flags | nofollow | os.O_CLOEXEC, 0o666, dir_fd=self.folder)

    def read_link(self) -> str | None:
        """Return the target of the link; None for other files."""
        try:
            return os.readlink(self.name, dir_fd=self.folder)
        except OSError:
            return None

    def make_link(self, target: str) -> None:
        os.symlink(target, self.name, dir_fd=self.folder)

    def remove(self) -> None:
        """Remove it, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.name, dir_fd=self.folder)

    def sibling(self, name: str) -> "OpenPath":
        return OpenPath(self.folder, name)

    def rename(self, name: str) -> None:
        """Rename it in the same folder, replacing any other file."""
        os.replace(self.name, name, src_dir_fd=self.folder, dst_dir_fd=self.folder)


@contextlib.contextmanager
def open_below(root: Path, path: str, *, create: bool = False) -> Iterator[OpenPath]:
    """Yield the name of the relative `path` below `root`; raise a Problem for a link on the way."""
    *folders, name = path.split("/")
    if {"", ".", ".."} & {*folders, name}:
        raise AssertionError(path)  # readers of foreign paths refuse these
    if create:
        root.mkdir(parents=True, exist_ok=True)
    handle = os.open(root, _FOLDER_FLAGS)
    try:
        for depth, folder in enumerate(folders, 1):
            next_handle = _open_folder(handle, folder, root.joinpath(*folders[:depth]), create=create)
            os.close(handle)
            handle = next_handle
        yield OpenPath(handle, name)
    finally:
        os.close(handle)


def has_folders(root: Path, path: str) -> bool:
    """Return whether all folders on the way exist."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), open_below(root, path):
        return True
    return False


def _open_folder(handle: int, folder: str, path: Path, *, create: bool) -> int:
    if create:
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, dir_fd=handle)
    try:
        return os.open(folder, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=handle)
    except NotADirectoryError:
        target = OpenPath(handle, folder).read_link()
        if target is None:
            raise
        raise Problem(
            f"{path} is a link, but the model has a folder there",
            cause=f"it points to {target!r}: files from another host are not written through a link",
            fix=f"ls -l {quote_path(path)}  # remove it, or use another folder for the model",
        ) from None
