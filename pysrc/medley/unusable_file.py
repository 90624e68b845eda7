"""Explain why a file cannot be used: what is in its place, who owns it, and what to type.

A Problem of this kind ends what needs the file. `skip_unusable_file` goes on without it, and prints a line.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from medley import user
from medley.command import quote_path
from medley.errors import Problem, describe_error

_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT}
_DENIED_ERRNOS = {errno.EACCES, errno.EPERM}
_skipped: set[str] = set()
_reporters: list[Callable[[str], None]] = []


class UnusableFile(Problem):
    """A file or folder that cannot be read, written, listed or removed."""


def set_reporter(report: Callable[[str], None]) -> None:
    """Let `report` print each file that is skipped from now on; the command line calls this for each verb."""
    _skipped.clear()
    _reporters[:] = [report]


def has_skipped_file() -> bool:
    """Return whether this verb has skipped a file."""
    return bool(_skipped)


@contextmanager
def skip_unusable_file() -> Iterator[None]:
    """Skip the rest of the block if it raises UnusableFile; report that in one line, once per process."""
    try:
        yield
    except UnusableFile as problem:
        if problem.what not in _skipped:
            _skipped.add(problem.what)
            fix = problem.fix.partition("\n")[0]
            for report in _reporters:
                report(f"{problem.what}, and is left out: {problem.cause}; fix: {fix}")


def build_problem(
    path: Path, error: OSError | UnicodeDecodeError, verb: str, roots: Mapping[str, Path]
) -> UnusableFile:
    """Return the Problem of an error.

    `verb`: read, written, listed, removed; `roots`: the folder that each of medley's variables moves.
    """
    absolute = _make_absolute(path)
    variable = next((name for name, root in roots.items() if absolute.is_relative_to(root)), None)
    obstacle = _find_obstacle(absolute, is_change=verb != "read")
    cause, fix = _explain(absolute, obstacle, error, roots[variable] if variable else None)
    alternative = (
        "name another file" if verb == "read" else "name another file, in a folder that you can write"
    )
    if variable and (fix or not isinstance(error, FileNotFoundError)):
        alternative = f"use another folder: export {variable}=/path"
        fix = f"{fix}\nor {alternative}" if fix else alternative
    return UnusableFile(f"{path} cannot be {verb}", cause=cause, fix=fix or alternative)


def build_foreign_problem(folder: Path) -> UnusableFile:
    """Return the Problem of a private folder that is another user's, or links to one."""
    return UnusableFile(
        f"{folder} is not yours",
        cause=f"another user owns it or {folder.resolve()}, and could read a server's keys and sockets",
        fix="export MEDLEY_STATE=/path/of/your/own",
    )


def _make_absolute(path: Path) -> Path:
    try:
        return Path(os.path.abspath(path))  # noqa: PTH100 - Path.resolve would follow links
    except FileNotFoundError:  # the current folder was removed
        return path


def _find_obstacle(path: Path, *, is_change: bool) -> Path:
    """Return what stands in the way: the path itself, or a part of it."""
    for part in (*reversed(path.parents), path):
        try:
            status = part.stat()
        except FileNotFoundError:
            return part if part.is_symlink() else part.parent
        except PermissionError:
            return part.parent
        except OSError:  # a link that leads to itself
            return part
        if part != path and not (stat.S_ISDIR(status.st_mode) and os.access(part, os.X_OK)):
            return part
    return path.parent if is_change and not os.access(path.parent, os.W_OK) else path


def _explain(
    path: Path, obstacle: Path, error: OSError | UnicodeDecodeError, root: Path | None
) -> tuple[str, str]:
    """Return cause and fix; `root`: the folder of medley's that the path is in."""
    subject, quoted = ("it" if obstacle == path else str(obstacle)), quote_path(obstacle)
    number = error.errno if isinstance(error, OSError) else None
    if path.is_relative_to(user.NO_HOME) and user.find_home() == user.NO_HOME:
        uid = os.geteuid()
        return f"HOME is not set, and uid {uid} has no home in /etc/passwd", "export HOME=/path/of/your/own"
    if number in _FULL_ERRNOS:
        file_system = os.statvfs(obstacle)
        folder = quote_path(obstacle if obstacle.is_dir() else obstacle.parent)
        free_mib = file_system.f_bavail * file_system.f_frsize >> 20
        return f"{describe_error(error)}: {free_mib} MiB are free", f"medley env clean; df -h {folder}"
    if number in _DENIED_ERRNOS:
        return _explain_denial(subject, obstacle, error, root)
    if number is None:
        return describe_error(error), f"mv {quoted} {quoted}.damaged"
    return _explain_misplacement(subject, quoted, obstacle, error)


def _explain_denial(subject: str, obstacle: Path, error: Exception, root: Path | None) -> tuple[str, str]:
    uid, fix = os.geteuid(), ""
    home = user.find_home()
    try:
        status = obstacle.lstat()
    except OSError:
        return describe_error(error), ""
    if status.st_uid == uid:
        fix = f"chmod u+rwX {quote_path(obstacle)}"
    elif root and obstacle.is_relative_to(root):
        fix = f"sudo chown -R {uid} {quote_path(root)}"
    elif home != Path("/") and home in obstacle.parents:
        fix = f"sudo chown -R {uid} {quote_path(obstacle)}"
    elif not stat.S_ISDIR(status.st_mode):
        fix = f"sudo chown {uid} {quote_path(obstacle)}"
    owner, reader = user.describe_owner(status.st_uid), user.describe_owner(uid)
    mode, reason = stat.S_IMODE(status.st_mode), describe_error(error)
    return f"{reason}: {subject} belongs to {owner} and has mode {mode:o}; you are {reader}", fix


def _explain_misplacement(subject: str, quoted: str, obstacle: Path, error: Exception) -> tuple[str, str]:
    if obstacle.is_symlink() and not obstacle.exists():
        return f"{subject} is a link to {obstacle.readlink()}, which leads nowhere", f"rm {quoted}"
    try:
        mode = obstacle.stat().st_mode
    except OSError:
        mode = 0
    if stat.S_ISDIR(mode) and isinstance(error, IsADirectoryError):
        return f"{subject} is a folder, not a file", f"mv {quoted} {quoted}.old"
    if stat.S_ISREG(mode) and isinstance(error, NotADirectoryError | FileExistsError):
        return f"{subject} is a file, not a folder", f"mv {quoted} {quoted}.old"
    if mode and not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        return f"{subject} is a pipe, a socket or a device", f"rm {quoted}"
    return describe_error(error), ""
