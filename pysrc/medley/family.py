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


def named(*words: str) -> int | None:
    """A process whose command ends with these words."""
    end = b"".join(word.encode() + b"\0" for word in words)
    for pid, _ in _parents():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().endswith(b"\0" + end):
                return pid
    return None


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
