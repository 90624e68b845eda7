"""A change is what is written or run to make settings so, and what takes it back."""

import difflib
from dataclasses import dataclass
from pathlib import Path

from medley.command import Command


@dataclass(frozen=True)
class File:
    path: Path
    text: str
    old: str | None
    """None where there was no such file."""

    @property
    def diff(self) -> str:
        before = (self.old or "").splitlines(keepends=True)
        names = ("/dev/null" if self.old is None else str(self.path), str(self.path))
        return "".join(difflib.unified_diff(before, self.text.splitlines(keepends=True), *names))


@dataclass(frozen=True)
class Change:
    manager: str
    commands: tuple[Command, ...] = ()
    """In order, after the file is written."""
    undo: tuple[Command, ...] = ()
    """In order, after the file is as it was."""
    file: File | None = None
    by_hand: str = ""
    """What the user has to write, where medley must not."""
    notes: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        if self.by_hand:
            return self.by_hand
        diff = self.file.diff if self.file else ""
        return diff + "".join(f"{command}\n" for command in self.commands)
