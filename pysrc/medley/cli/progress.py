"""Progress is a watch that a person sees: a spinner on a terminal, plain lines elsewhere, on stderr."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from medley.cli import terminal

# What takes less is over before it can be read.
_WORTH_SAYING_S = 2.0
_WIDTH = 60


class Plain:
    """For logs and pipes: a line when a stage begins, and one when it is done if it took its time."""

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = time.monotonic()
        self.note(f"{name} …")
        yield
        if (took := time.monotonic() - start) > _WORTH_SAYING_S:
            self.note(f"{name}: {took:.0f} s")

    def line(self, text: str) -> None: ...

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


class Spinner:
    """For a terminal: the stage, how long it takes, and the last thing said."""

    def __init__(self) -> None:
        self._console = terminal.console(sys.stderr)
        self._show: Callable[[str], None] = lambda _: None

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        start = time.monotonic()
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        said = TextColumn("{task.fields[said]}", style="dim", markup=False)
        with Progress(*columns, said, console=self._console, transient=True) as progress:
            task = progress.add_task(name, total=None, said="")
            self._show = lambda text: progress.update(task, said=text)
            yield
        if (took := time.monotonic() - start) > _WORTH_SAYING_S:
            self.note(f"{name}: {took:.0f} s")

    def line(self, text: str) -> None:
        words = text.strip()
        if words:
            self._show(words if len(words) <= _WIDTH else words[: _WIDTH - 1] + "…")

    def note(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text(text))


def watch() -> Plain | Spinner:
    """What suits stderr."""
    return Spinner() if sys.stderr.isatty() else Plain()
