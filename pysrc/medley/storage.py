"""The folders of medley's files; atomic writes, locks, hashes.

caches   $MEDLEY_CACHE, or $XDG_CACHE_HOME/medley, or ~/.cache/medley
state    $MEDLEY_STATE, or $XDG_STATE_HOME/medley, or ~/.local/state/medley
sockets  a folder of mode 0700 in $XDG_RUNTIME_DIR, or in the state folder

`beneath` opens each component by itself, without following links (O_NOFOLLOW, open(2)), and works in the open
folder, so that no link can be inserted between check and use. The root itself may be reached through links.
"""

import contextlib
import fcntl
import hashlib
import os
import shlex
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from medley import json_shape
from medley.errors import Problem, in_words

_T = TypeVar("_T")
_LONGEST_SOCKET_FOLDER = 80
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def cache(environ: Mapping[str, str] = os.environ) -> Path:
    return _folder(environ, "MEDLEY_CACHE", "XDG_CACHE_HOME", ".cache")


def state(environ: Mapping[str, str] = os.environ) -> Path:
    return _folder(environ, "MEDLEY_STATE", "XDG_STATE_HOME", ".local/state")


def sockets(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of this user's sockets, which nobody else can open; each state folder has its own.

    A socket's path has at most 107 bytes (unix(7)), so a long one makes way for a folder in /tmp.
    """
    own = f"medley-{hash_bytes(str(state(environ)).encode())[:8]}"
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    has_runtime = runtime.startswith("/") and _is_own(Path(runtime))
    folder = Path(runtime) / own if has_runtime else state(environ) / "run"
    if len(os.fsencode(folder)) > _LONGEST_SOCKET_FOLDER:
        folder = Path("/tmp") / f"{own}-{os.geteuid()}"  # noqa: S108 - made_private refuses another's
    return folder


def make_private(folder: Path) -> Path:
    """Make a folder that only its owner can open; a Problem where it is another user's."""
    make(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if not _is_own(folder):
        raise Problem(
            f"{folder} is not yours",
            cause="another user made it, and a server's sockets are in it",
            fix="export MEDLEY_STATE=/path/of/your/own",
        )
    _close(folder)
    return folder


def _close(folder: Path) -> None:
    if stat.S_IMODE(folder.stat().st_mode) & 0o077:
        folder.chmod(0o700)


def _is_own(folder: Path) -> bool:
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _folder(environ: Mapping[str, str], own: str, xdg: str, usual: str) -> Path:
    if environ.get(own):
        return Path(environ[own]).absolute()
    # The XDG specification has relative paths ignored.
    base = environ.get(xdg, "")
    return (Path(base) if base.startswith("/") else Path.home() / usual) / "medley"


def write(path: Path, text: str, *, secret: bool = False) -> None:
    """Write the whole file or nothing; a secret is readable only by its owner."""
    make(path.parent)
    # umask(2) would change it for all threads, so it is read from /proc.
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    umask = next(int(line.split()[1], 8) for line in status.splitlines() if line.startswith("Umask:"))
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o600 if secret else 0o666 & ~umask)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
        folder = os.open(path.parent, _FOLDER)
        try:
            os.fsync(folder)  # so that the new name survives a power cut
        finally:
            os.close(folder)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def link(path: Path, target: str) -> None:
    """Make or replace a link atomically."""
    if path.is_symlink() and str(path.readlink()) == target:
        return
    made = make(path.parent) / f".{path.name}.{os.getpid()}"
    made.unlink(missing_ok=True)
    made.symlink_to(target)
    made.replace(path)


def table(path: Path) -> dict[str, Any] | None:
    """Read the JSON object in a file; None where it is missing or damaged."""
    try:
        return json_shape.table(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None


def record(path: Path, kind: type[_T]) -> _T | None:
    """Read a dataclass from a JSON file; None where it is damaged, or of another version."""
    found = table(path)
    return kind(**found) if found is not None and json_shape.fits(found, kind) else None


def secrets(files: Mapping[str, str]) -> dict[str, str]:
    """Read these files, as `$(cat FILE)` does."""
    return {name: Path(file).read_text(encoding="utf-8").rstrip("\n") for name, file in files.items()}


def make(folder: Path) -> Path:
    """Make a folder. The state folder, which has logs, commands and keys, is its owner's alone."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if folder.absolute().is_relative_to(root := state()) and _is_own(root):
            _close(root)
    except OSError as error:
        raise Problem(
            f"{folder} cannot be made",
            cause=in_words(error),
            fix=f"name a writable folder: export {_variable_of(folder)}=/path",
        ) from error
    return folder


def _variable_of(folder: Path) -> str:
    """Return the variable that moves this folder."""
    return "MEDLEY_STATE" if folder.absolute().is_relative_to(state()) else "MEDLEY_CACHE"


@contextlib.contextmanager
def log(path: Path, *, longest_bytes: int = 0) -> Iterator[Callable[[str], None]]:
    """Yield what writes lines with their times to a log; one that was there, or is longer, becomes NAME.1."""
    make(path.parent)
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size >= longest_bytes:
            path.replace(path.with_name(f"{path.name}.1"))
    # Without a buffer, so that a full disk only loses lines of the log.
    with path.open("ab", buffering=0) as file:

        def write(line: str) -> None:
            with contextlib.suppress(OSError, ValueError):  # closed: a reader that outlives its process
                file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {line}\n".encode(errors="replace"))

        yield write


@contextlib.contextmanager
def lock(path: Path, *, waits: Callable[[], None] | None = None) -> Iterator[bool]:
    """Hold a lock file; the end of this process frees it.

    Where another process holds it, call `waits` once and wait; without `waits`, yield False.
    """
    make(path.parent)
    handle = _locked(path, waits)
    try:
        yield handle is not None
    finally:
        if handle is not None:
            os.close(handle)


def _locked(path: Path, waits: Callable[[], None] | None) -> int | None:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        held = False
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if waits is None:
                    return None
                waits()
                fcntl.flock(handle, fcntl.LOCK_EX)
            # Its holder may have removed the file, and a third process locked a new one.
            with contextlib.suppress(FileNotFoundError):
                held = os.path.samestat(os.fstat(handle), path.stat())
            if held:
                return handle
        finally:
            if not held:
                os.close(handle)


def free_bytes(path: Path) -> int:
    """Return the free space in the file system of `path`, which may not exist yet."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def size_bytes(folder: Path) -> int:
    """Return the disk usage of a folder, as du(1) does; hard links count once."""
    seen = {}
    for where, _, files in os.walk(folder):
        for name in (".", *files):
            with contextlib.suppress(FileNotFoundError):
                entry = (Path(where) / name).lstat()
                seen[entry.st_dev, entry.st_ino] = entry.st_blocks * 512
    return sum(seen.values())


def remove(folder: Path) -> None:
    """Remove a folder, even where an ending process still writes to it."""
    for _ in range(5):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
    shutil.rmtree(folder)


def hash_bytes(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_all(files: Mapping[str, str]) -> str:
    """Hash the hashes of files by name, in any order."""
    return hash_bytes("".join(f"{each}  {name}\n" for name, each in sorted(files.items())).encode())


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
