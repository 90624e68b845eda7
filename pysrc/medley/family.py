"""A family is a process and all that it started, as /proc says now."""

import contextlib
from collections.abc import Iterable
from pathlib import Path


def environments() -> dict[int, dict[str, str]]:
    """The environment that each process of this user was started with, by process id."""
    return {pid: env for pid, _ in _parents() if (env := _environment(pid)) is not None}


def _environment(pid: int) -> dict[str, str] | None:
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:  # it ended, or is another user's
        return None
    return dict(word.partition("=")[::2] for word in words if word)


def holder(file: Path, *words: str) -> int | None:
    """The process that has this file open and whose command ends with these words.

    By its command alone it could be another user's, or that of another state folder.
    """
    end = b"".join(word.encode() + b"\0" for word in words)
    for pid, _ in _parents():
        with contextlib.suppress(OSError):
            process = Path(f"/proc/{pid}")
            if (process / "cmdline").read_bytes().endswith(b"\0" + end) and _has_open(process, file):
                return pid
    return None


def _has_open(process: Path, file: Path) -> bool:
    wanted = file.stat()
    for handle in (process / "fd").iterdir():
        with contextlib.suppress(OSError):  # it was closed meanwhile
            found = handle.stat()
            if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                return True
    return False


def descendants(root: int) -> set[int]:
    """Every process below `root`, by what /proc says now."""
    parents = dict(_parents())
    family: set[int] = set()
    grown = {root}
    while grown:
        grown = {pid for pid, parent in parents.items() if parent in grown and pid not in family}
        family |= grown
    return family


def _parents() -> Iterable[tuple[int, int]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text(encoding="utf-8")
            except (FileNotFoundError, ProcessLookupError):
                continue
            yield int(entry.name), int(stat.rpartition(")")[2].split()[1])
