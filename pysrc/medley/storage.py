"""The folders of medley's files; their one reader, writer and lister; locks, logs and hashes.

caches   $MEDLEY_CACHE, or $XDG_CACHE_HOME/medley, or ~/.cache/medley
state    $MEDLEY_STATE, or $XDG_STATE_HOME/medley, or ~/.local/state/medley
tables   $MEDLEY_CONFIG, or $XDG_CONFIG_HOME/medley, or ~/.config/medley
sockets  a folder of mode 0700 in $XDG_RUNTIME_DIR, or in the state folder

A file or folder that is not there reads as None or empty. Any other error is an UnusableFile, which names the
path, its owner and the fix; `skip_unusable_file` goes on without the file. Other modules read and
write only what is not medley's own: a build's files, /proc, a user's transcript.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from medley import json_shape, user
from medley.unusable_file import UnusableFile, build_foreign_problem, build_problem, skip_unusable_file

_T = TypeVar("_T")
_MAX_SOCKET_FOLDER_BYTES = 80
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def find_cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    return _choose_folder(environ, "MEDLEY_CACHE", "XDG_CACHE_HOME", ".cache")


def find_state_folder(environ: Mapping[str, str] = os.environ) -> Path:
    return _choose_folder(environ, "MEDLEY_STATE", "XDG_STATE_HOME", ".local/state")


def find_config_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the user's own tables."""
    return _choose_folder(environ, "MEDLEY_CONFIG", "XDG_CONFIG_HOME", ".config")


def find_socket_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of this user's sockets, which nobody else can open; each state folder has its own.

    A socket's path has at most 107 bytes (unix(7)), so a long one makes way for a folder in /tmp.
    """
    name = f"medley-{hash_bytes(str(find_state_folder(environ)).encode())[:8]}"
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    has_runtime = runtime.startswith("/") and _is_of_user(Path(runtime))
    folder = Path(runtime) / name if has_runtime else find_state_folder(environ) / "run"
    if len(os.fsencode(folder)) > _MAX_SOCKET_FOLDER_BYTES:
        folder = Path("/tmp") / f"{name}-{os.geteuid()}"  # noqa: S108 - make_private_folder refuses another user's
    return folder


def make_private_folder(folder: Path) -> Path:
    """Make a folder that only its owner can open; a Problem where it is another user's."""
    make_folder(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if not _is_of_user(folder):
        raise build_foreign_problem(folder)
    _restrict_to_owner(folder)
    return folder


def _make_state_private(root: Path) -> None:
    """Make the state folder private, or the one that it links to; refuse a link of or to another user's."""
    if root.is_symlink() and not (_is_of_user(root.resolve()) and root.lstat().st_uid in {0, os.geteuid()}):
        raise build_foreign_problem(root)
    if _is_of_user(root.resolve()):
        _restrict_to_owner(root)


def _restrict_to_owner(folder: Path) -> None:
    if stat.S_IMODE(folder.stat().st_mode) & 0o077:
        folder.chmod(0o700)


def _is_of_user(folder: Path) -> bool:
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _choose_folder(environ: Mapping[str, str], medley_variable: str, xdg_variable: str, default: str) -> Path:
    if environ.get(medley_variable):
        return Path(environ[medley_variable]).absolute()
    # The XDG specification has relative paths ignored.
    base = environ.get(xdg_variable, "")
    return (Path(base) if base.startswith("/") else user.find_home() / default) / "medley"


def build_file_problem(path: Path, error: OSError | UnicodeDecodeError, verb: str) -> UnusableFile:
    """Return the Problem of a file that cannot be `verb`: read, written, listed, removed."""
    folders = (find_state_folder(), find_cache_folder(), find_config_folder())
    roots = dict(zip(("MEDLEY_STATE", "MEDLEY_CACHE", "MEDLEY_CONFIG"), folders, strict=True))
    return build_problem(path, error, verb, roots)


@contextlib.contextmanager
def explain_errors(path: Path, verb: str) -> Iterator[None]:
    """Raise the Problem of an OSError in the body, which does this to the file."""
    try:
        yield
    except OSError as error:
        raise build_file_problem(path, error, verb) from error


def open_file(path: Path) -> BinaryIO | None:
    """Open a file to read it; None where there is none. A pipe, which could block for ever, is refused."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if _is_missing(path, error):
            return None
        raise build_file_problem(path, error, "read") from error
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    number = errno.EISDIR if stat.S_ISDIR(mode) else errno.ENXIO
    raise build_file_problem(path, OSError(number, os.strerror(number)), "read")


def _is_missing(path: Path, error: OSError) -> bool:
    """Return whether no file has this name; a broken link has one."""
    return isinstance(error, FileNotFoundError | NotADirectoryError) and not os.path.lexists(path)


def read_bytes(path: Path) -> bytes | None:
    """Read a file; None where there is none."""
    file = open_file(path)
    if file is None:
        return None
    with file, explain_errors(path, "read"):
        return file.read()


def read_end(path: Path, max_bytes: int) -> bytes:
    """Read the last bytes of a file; none where there is no file."""
    file = open_file(path)
    if file is None:
        return b""
    with file, explain_errors(path, "read"):
        file.seek(max(0, os.fstat(file.fileno()).st_size - max_bytes))
        return file.read()


def read_text(path: Path, errors: str = "strict") -> str | None:
    """Read a file in UTF-8; None where there is none. `errors` as of bytes.decode."""
    content = read_bytes(path)
    try:
        return None if content is None else content.decode("utf-8", errors)
    except UnicodeDecodeError as error:
        raise build_file_problem(path, error, "read") from error


def list_folder(folder: Path, pattern: str = "*") -> list[Path]:
    """List the entries whose names match, sorted; empty without the folder."""
    try:
        with os.scandir(folder) as entries:
            return sorted(folder / entry.name for entry in entries if fnmatch(entry.name, pattern))
    except OSError as error:
        if _is_missing(folder, error):
            return []
        raise build_file_problem(folder, error, "listed") from error


def read_modified_s(path: Path) -> float:
    """Return when a file was written, since the epoch; 0 where it is gone."""
    with explain_errors(path, "read"), contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return path.lstat().st_mtime
    return 0


def exists(path: Path) -> bool:
    """Return whether a file or folder exists; False for a broken link."""
    with explain_errors(path, "read"):
        return path.exists()


def is_visible_file(path: Path) -> bool:
    """Return whether this user can see a file; False in a folder that the user may not enter."""
    return os.path.isfile(path)  # noqa: PTH113 - Path.is_file raises PermissionError


def remove_file(path: Path) -> None:
    """Remove a file, if there is one."""
    with explain_errors(path, "removed"), contextlib.suppress(FileNotFoundError, NotADirectoryError):
        path.unlink()


def write_text(path: Path, text: str, *, secret: bool = False) -> None:
    """Write the whole file or nothing; a secret is readable only by its owner."""
    make_folder(path.parent)
    with explain_errors(path, "written"):
        _write_atomically(path, text, secret=secret)


def append_text(path: Path, text: str) -> None:
    """Append to a file; create it if needed."""
    make_folder(path.parent)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
    with explain_errors(path, "written"), os.fdopen(os.open(path, flags, 0o644), "ab", buffering=0) as file:
        file.write(text.encode())


def write_text_in_place(path: Path, text: str) -> None:
    """Write a file in place, so that a killed process leaves no temporary file."""
    make_folder(path.parent)
    flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
    with explain_errors(path, "written"), os.fdopen(os.open(path, flags, 0o644), "wb", buffering=0) as file:
        file.truncate(file.write(text.encode()))


def _write_atomically(path: Path, text: str, *, secret: bool) -> None:
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
        folder = os.open(path.parent, _FOLDER_FLAGS)
        try:
            os.fsync(folder)  # so that the new name survives a power cut
        finally:
            os.close(folder)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def replace_link(path: Path, target: str) -> None:
    """Make or replace a link atomically."""
    if path.is_symlink() and str(path.readlink()) == target:
        return
    temporary = make_folder(path.parent) / f".{path.name}.{os.getpid()}"
    with explain_errors(path, "written"):
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(target)
        temporary.replace(path)


def read_table(path: Path) -> dict[str, Any] | None:
    """Read the JSON object in a file; None where it is missing or damaged."""
    content = read_bytes(path)
    return None if content is None else json_shape.parse_object(content)


def read_record(path: Path, value_type: type[_T]) -> _T | None:
    """Read a Value from a JSON file; None where it is damaged, or of another version."""
    content = read_table(path)
    return value_type(**content) if content is not None and json_shape.has_type(content, value_type) else None


def read_secrets(files: Mapping[str, str]) -> dict[str, str]:
    """Read these files, as `$(cat FILE)` does."""
    return {name: _read_secret(Path(file)) for name, file in files.items()}


def _read_secret(file: Path) -> str:
    text = read_text(file)
    if text is None:
        raise build_file_problem(file, FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)), "read")
    return text.rstrip("\n")


def make_folder(folder: Path) -> Path:
    """Make a folder. The state folder, which has logs, commands and keys, is its owner's alone."""
    with explain_errors(folder, "made"):
        if folder.is_relative_to(user.NO_HOME):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        folder.mkdir(parents=True, exist_ok=True)
        if folder.absolute().is_relative_to(root := find_state_folder()):
            _make_state_private(root)
    return folder


@contextlib.contextmanager
def open_log(path: Path, *, rotate_from_bytes: int = 0) -> Iterator[Callable[[str], None]]:
    """Yield a writer of lines to a log; an old log of `rotate_from_bytes` or more becomes NAME.1 first."""
    handle = None
    with skip_unusable_file():
        handle = _open_log(path, rotate_from_bytes)
    if handle is None:  # the log cannot be written, and the lines are lost
        handle = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    # Without a buffer, so that a full disk only loses lines of the log.
    with os.fdopen(handle, "ab", buffering=0) as file:

        def write_line(line: str) -> None:
            with contextlib.suppress(OSError, ValueError):  # closed: a reader that outlives its process
                file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {line}\n".encode(errors="replace"))

        yield write_line


def _open_log(path: Path, rotate_from_bytes: int) -> int:
    make_folder(path.parent)
    with explain_errors(path, "written"):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size >= rotate_from_bytes:
                path.replace(path.with_name(f"{path.name}.1"))
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)


@contextlib.contextmanager
def lock_file(path: Path, *, on_wait: Callable[[], None] | None = None) -> Iterator[bool]:
    """Hold a lock file; the end of this process frees it.

    Where another process holds it, call `on_wait` once and wait; without it, yield False.
    """
    make_folder(path.parent)
    handle = _acquire_lock(path, on_wait)
    try:
        yield handle is not None
    finally:
        if handle is not None:
            os.close(handle)


def _acquire_lock(path: Path, on_wait: Callable[[], None] | None) -> int | None:
    while True:
        with explain_errors(path, "written"):
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        is_current = False
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if on_wait is None:
                    return None
                on_wait()
                fcntl.flock(handle, fcntl.LOCK_EX)
            # Its holder may have removed the file, and a third process locked a new one.
            with contextlib.suppress(FileNotFoundError):
                is_current = os.path.samestat(os.fstat(handle), path.stat())
            if is_current:
                return handle
        finally:
            if not is_current:
                os.close(handle)


def measure_free_bytes(path: Path) -> int:
    """Return the free space in the file system of `path`, which may not exist yet."""
    while not exists(path):
        path = path.parent
    return shutil.disk_usage(path).free


def measure_disk_usage(folder: Path) -> int:
    """Return the disk usage of a folder, as du(1) does; hard links count once."""
    sizes = {}
    for folder_name, _, files in os.walk(folder):
        for name in (".", *files):
            with contextlib.suppress(FileNotFoundError):
                entry = (Path(folder_name) / name).lstat()
                sizes[entry.st_dev, entry.st_ino] = entry.st_blocks * 512
    return sum(sizes.values())


def remove_folder(folder: Path) -> None:
    """Remove a folder, even where an ending process still writes to it; also a file in its place."""
    if exists(folder) and not folder.is_dir():
        remove_file(folder)  # rmtree of Python 3.11 waits for a writer of the pipe
    for _ in range(5):
        shutil.rmtree(folder, ignore_errors=True)
        if not exists(folder):
            return
    with explain_errors(folder, "removed"):
        shutil.rmtree(folder)


def hash_bytes(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def hash_file(path: Path) -> str:
    with explain_errors(path, "read"), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_checksums(files: Mapping[str, str]) -> str:
    """Hash the hashes of files by name, in any order."""
    return hash_bytes("".join(f"{digest}  {name}\n" for name, digest in sorted(files.items())).encode())
