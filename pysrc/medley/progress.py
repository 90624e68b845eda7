"""Protocol by which long work reports stages and notes."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

PROGRESS = "progress "
"""What a note of an agent begins with that has bytes done and bytes in all."""


class Progress(Protocol):
    def stage(self, name: str) -> contextlib.AbstractContextManager[None]:
        """What is done now, for as long as the context lasts."""

    def line(self, text: str) -> None:
        """What the program that does it says."""

    def moved(self, text: str) -> None:
        """How far a transfer is; logs have it now and then."""

    def note(self, text: str) -> None:
        """What the user should know, whatever becomes of it."""


class SilentProgress:
    """Nobody watches."""

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
    """Where a launch reports: its progress, medley's own lines, and the lines of the program that runs."""

    watch: Progress
    say: Callable[[str], None]
    """A line of medley's own."""
    detail: Callable[[str], None]
    """The same, for a person who wants to read more."""
    out: Callable[[str], None]
    """A line that the program printed to stdout."""
    error: Callable[[str], None]
