"""Show progress: a spinner and transfer bars on a terminal, plain lines elsewhere; print a line at Ctrl-C."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, Self

from medley.cli.terminal import create_console
from medley.progress import PROGRESS, SilentProgress

# A shorter stage ends before a person can read its line.
_MIN_NOTED_DURATION_S = 2.0
_NOTE_INTERVAL_S = 10.0
_MAX_LINE_CHARS = 60


class NoteProgress(SilentProgress):
    """A progress whose stages are notes too."""

    _stage = ("", 0.0)  # the stage, and the time of the last note about its progress

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self.note(f"{name} …")
        self._stage = (name, time.monotonic())
        yield

    def moved(self, text: str) -> None:
        name, noted_at_s = self._stage
        if (now := time.monotonic()) >= noted_at_s + _NOTE_INTERVAL_S:
            self._stage = (name, now)
            self.note(f"{name}: {text}")


class PlainProgress(NoteProgress):
    """A progress for logs and pipes: a line when a stage begins, and one at its end if it took long."""

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        with self._note_duration(name), super().stage(name):
            yield

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def _note_duration(self, name: str) -> Iterator[None]:
        start = time.monotonic()
        yield
        if (took := time.monotonic() - start) > _MIN_NOTED_DURATION_S:
            self.note(f"{name}: {took:.0f} s")


class Spinner(PlainProgress):
    """A progress for a terminal: the stage, its duration, and the last line."""

    def __init__(self) -> None:
        self._console = create_console(sys.stderr)
        self._console.soft_wrap = True  # a line that is printed beside the spinner may be there to be pasted
        self._show: Callable[[str], None] = lambda _: None

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        last_line = TextColumn("{task.fields[last_line]}", style="dim", markup=False)
        spinner = Progress(*columns, last_line, console=self._console, transient=True)
        with self._note_duration(name), spinner as progress:
            task = progress.add_task(name, total=None, last_line="")
            self._show = lambda text: progress.update(task, last_line=text)
            yield

    def line(self, text: str) -> None:
        words = text.strip()
        if words:
            self._show(words if len(words) <= _MAX_LINE_CHARS else words[: _MAX_LINE_CHARS - 1] + "…")

    moved = line

    def note(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text(text))


def start_progress() -> PlainProgress:
    """Return the progress for this stderr; after this, Ctrl-C prints a line before the end."""
    with contextlib.suppress(ValueError):  # not the main thread
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _handle_interrupt)
    return Spinner() if sys.stderr.isatty() else PlainProgress()


def _handle_interrupt(*_: object) -> NoReturn:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    text = "medley: stopping …\n"
    with contextlib.suppress(OSError):  # to the descriptor: the stream may be in the middle of a write
        os.write(2, (f"\n{text}" if sys.stderr.isatty() else text).encode())
    raise KeyboardInterrupt


class TransferBars(NoteProgress):
    """Bars of a transfer, one for each host; also the progress of the steps before it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._noted_at_s: dict[str, float] = {}
        self._progress: Any = None
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                DownloadColumn(),
                TransferSpeedColumn(),
            )
            self._progress = Progress(*columns, console=create_console(sys.stderr), transient=True)
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress:
            self._progress.stop()

    def note(self, text: str) -> None:
        if self._progress:
            self._progress.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=sys.stderr)

    def note_host(self, host: str, text: str) -> None:
        if not text.startswith(PROGRESS):
            self.note(f"{host}: {text}")
            return
        done, total = map(int, text.removeprefix(PROGRESS).split())
        with self._lock:
            if self._progress:
                self._update_bar(host, done, total)
            elif time.monotonic() - self._noted_at_s.get(host, -_NOTE_INTERVAL_S) >= _NOTE_INTERVAL_S:
                self._noted_at_s[host] = time.monotonic()
                print(f"{host}: {done * 100 // max(1, total)} % of {total / 1e9:.2f} GB", file=sys.stderr)

    def _update_bar(self, host: str, done: int, total: int) -> None:
        if host not in self._tasks:
            self._tasks[host] = self._progress.add_task(host, total=total)
        self._progress.update(self._tasks[host], completed=done, total=total)
