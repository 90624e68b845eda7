"""A watch is told what goes on while something takes its time; the command line shows it, tests keep it."""

import contextlib
from collections.abc import Iterator
from typing import Protocol


class Watch(Protocol):
    def stage(self, name: str) -> contextlib.AbstractContextManager[None]:
        """What is done now, for as long as the context lasts."""

    def line(self, text: str) -> None:
        """What the program that does it says."""

    def note(self, text: str) -> None:
        """What the user should know, whatever becomes of it."""


class Silent:
    """Nobody watches."""

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        del name
        yield

    def line(self, text: str) -> None: ...

    def note(self, text: str) -> None: ...


SILENT = Silent()
