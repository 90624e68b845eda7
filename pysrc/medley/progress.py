"""Protocol for long work to report stages and notes."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

PROGRESS = "progress "
"""Prefix of an agent's note with the bytes done and the total."""


class Progress(Protocol):
    def stage(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Show the current step while the context lasts."""

    def line(self, text: str) -> None:
        """Show a line of the running program."""

    def moved(self, text: str) -> None:
        """How far a transfer is; logs have it now and then."""

    def note(self, text: str) -> None:
        """Print a note that stays."""


class SilentProgress:
    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        del name
        yield

    def line(self, text: str) -> None: ...

    def moved(self, text: str) -> None: ...

    def note(self, text: str) -> None: ...


SILENT = SilentProgress()


@dataclass(frozen=True)
class Output:
    """The output of a launch: its progress, medley's lines, and the program's lines."""

    watch: Progress
    say: Callable[[str], None]
    """A line of medley's own."""
    detail: Callable[[str], None]
    """The same, for a person who wants to read more."""
    out: Callable[[str], None]
    """Prints a line of the program's stdout."""
    error: Callable[[str], None]
