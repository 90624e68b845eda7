"""Protocol for long work to report stages and notes."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Protocol

from medley.values import Value

_GB = 1e9
PROGRESS = "progress "
"""Prefix of an agent's note with the bytes done and the total."""


def format_share(done: float, total: float) -> str:
    """Return the bytes that are done of all, in MB or GB: `40 of 93 MB`."""
    if total < _GB:
        return f"{done / 1e6:.0f} of {total / 1e6:.0f} MB"
    return f"{done / _GB:.2f} of {total / _GB:.2f} GB"


class Progress(Protocol):
    def stage(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Show the current step while the context lasts."""

    def line(self, text: str) -> None:
        """Show a line of the running program."""

    def moved(self, text: str) -> None:
        """Show how far a transfer is; logs have it now and then."""

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


class Output(Value):
    """The output of a launch: its progress, medley's lines, and the program's lines."""

    progress: Progress
    say: Callable[[str], None]
    """A line of medley's own."""
    detail: Callable[[str], None]
    """The same, for a person who wants to read more."""
    out: Callable[[str], None]
    """Prints a line of the program's stdout."""
    error: Callable[[str], None]
