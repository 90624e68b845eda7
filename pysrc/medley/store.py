"""A store is what medley keeps on this host: caches that can be made again, and state that cannot.

caches   $MEDLEY_CACHE, or $XDG_CACHE_HOME/medley, or ~/.cache/medley
state    $MEDLEY_STATE, or $XDG_STATE_HOME/medley, or ~/.local/state/medley
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from medley import shaped
from medley.problem import Problem, in_words

_T = TypeVar("_T")


def cache(environ: Mapping[str, str] = os.environ) -> Path:
    return _folder(environ, "MEDLEY_CACHE", "XDG_CACHE_HOME", ".cache")


def state(environ: Mapping[str, str] = os.environ) -> Path:
    return _folder(environ, "MEDLEY_STATE", "XDG_STATE_HOME", ".local/state")


def _folder(environ: Mapping[str, str], own: str, xdg: str, usual: str) -> Path:
    if environ.get(own):
        return Path(environ[own]).absolute()
    # The XDG specification has relative paths ignored.
    base = environ.get(xdg, "")
    return (Path(base) if base.startswith("/") else Path.home() / usual) / "medley"


def write(path: Path, text: str, *, secret: bool = False) -> None:
    """The whole file or nothing: a reader never sees a part of it. A secret is for its owner alone."""
    make(path.parent)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o600 if secret else 0o666 & ~_umask())
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
        _durable(path.parent)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    """What the user wants of new files; there is no way to ask but to set it, which all threads would see."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return next(int(line.split()[1], 8) for line in status.splitlines() if line.startswith("Umask:"))


def _durable(folder: Path) -> None:
    """See that a name which a folder just got outlives a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def link(path: Path, target: str) -> None:
    """A link with this target: whoever looks sees the old one or the new."""
    if path.is_symlink() and str(path.readlink()) == target:
        return
    made = make(path.parent) / f".{path.name}.{os.getpid()}"
    made.unlink(missing_ok=True)
    made.symlink_to(target)
    made.replace(path)


def table(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file of ours; None where there is none, or no whole one."""
    try:
        return shaped.table(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None


def record(path: Path, kind: type[_T]) -> _T | None:
    """The dataclass that a JSON file of ours holds; None where it is torn, or of another version."""
    found = table(path)
    return kind(**found) if found is not None and shaped.fits(found, kind) else None


def secrets(files: Mapping[str, str]) -> dict[str, str]:
    """What stands in these files, as `$(cat FILE)` gives it to a shell."""
    return {name: Path(file).read_text(encoding="utf-8").rstrip("\n") for name, file in files.items()}


def make(folder: Path) -> Path:
    """The folder, made if need be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Problem(
            f"{folder} cannot be made",
            cause=in_words(error),
            fix="name a folder that you can write: export MEDLEY_CACHE=/path",
        ) from error
    return folder


@contextlib.contextmanager
def lock(path: Path, *, waits: Callable[[], None] | None = None) -> Iterator[bool]:
    """Hold a lock file; it is free again when this process ends, however it ends.

    With `waits`, that is called once when another process holds it, and then we wait; without, we do not wait
    and yield False.
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
        try:
            if not _acquired(handle, waits):
                os.close(handle)
                return None
            # Who held it may have removed the file, and then a third would lock another one of that name.
            if _is_at(handle, path):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _acquired(handle: int, waits: Callable[[], None] | None) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if waits is None:
            return False
        waits()
        fcntl.flock(handle, fcntl.LOCK_EX)
    return True


def _is_at(handle: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    ours = os.fstat(handle)
    return (ours.st_ino, ours.st_dev) == (there.st_ino, there.st_dev)


def free_bytes(path: Path) -> int:
    """What the file system of `path`, or of the nearest folder above it that exists, has left for us."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def size_bytes(folder: Path) -> int:
    """What a folder takes on disk; a file with several names in it counts once."""
    seen = {(entry.st_dev, entry.st_ino): entry.st_blocks * 512 for entry in _entries(folder)}
    return sum(seen.values())


def _entries(folder: Path) -> Iterator[os.stat_result]:
    for where, folders, files in os.walk(folder):
        for name in (*folders, *files):
            with contextlib.suppress(FileNotFoundError):
                yield (Path(where) / name).lstat()


def remove(folder: Path) -> None:
    """Remove a folder and all that is in it, also where a process that is ending still writes there."""
    for _ in range(5):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
    shutil.rmtree(folder)
