"""Spinner and transfer bars on a terminal, plain lines elsewhere; the first word after Ctrl-C."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, Self

from medley.cli.terminal import console
from medley.progress import PROGRESS, SilentProgress

# What takes less is over before it can be read.
_WORTH_SAYING_S = 2.0
_SAY_EVERY_S = 10.0
_WIDTH = 60


class Noted(SilentProgress):
    """Where a stage is a note too."""

    _moved = ("", 0.0)  # the stage, and when a note last had how far it is

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self.note(f"{name} …")
        self._moved = (name, time.monotonic())
        yield

    def moved(self, text: str) -> None:
        name, said = self._moved
        if (now := time.monotonic()) >= said + _SAY_EVERY_S:
            self._moved = (name, now)
            self.note(f"{name}: {text}")


class Plain(Noted):
    """For logs and pipes: a line when a stage begins, and one when it is done if it took its time."""

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        with self._timed(name), super().stage(name):
            yield

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        start = time.monotonic()
        yield
        if (took := time.monotonic() - start) > _WORTH_SAYING_S:
            self.note(f"{name}: {took:.0f} s")


class Spinner(Plain):
    """For a terminal: the stage, how long it takes, and the last thing said."""

    def __init__(self) -> None:
        self._console = console(sys.stderr)
        self._console.soft_wrap = True  # a line that is printed beside the spinner may be there to be pasted
        self._show: Callable[[str], None] = lambda _: None

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        said = TextColumn("{task.fields[said]}", style="dim", markup=False)
        drawn = Progress(*columns, said, console=self._console, transient=True)
        with self._timed(name), drawn as progress:
            task = progress.add_task(name, total=None, said="")
            self._show = lambda text: progress.update(task, said=text)
            yield

    def line(self, text: str) -> None:
        words = text.strip()
        if words:
            self._show(words if len(words) <= _WIDTH else words[: _WIDTH - 1] + "…")

    moved = line

    def note(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text(text))


def watch() -> Plain:
    """Return what suits stderr; from here on Ctrl-C is answered at once, because an end may take a while."""
    with contextlib.suppress(ValueError):  # not the main thread
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _interrupted)
    return Spinner() if sys.stderr.isatty() else Plain()


def _interrupted(*_: object) -> NoReturn:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    text = "medley: stopping …\n"
    with contextlib.suppress(OSError):  # to the descriptor: the stream may be in the middle of a write
        os.write(2, (f"\n{text}" if sys.stderr.isatty() else text).encode())
    raise KeyboardInterrupt


class Bars(Noted):
    """A watch too, of what comes before the transfer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._said: dict[str, float] = {}
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
            self._progress = Progress(*columns, console=console(sys.stderr), transient=True)
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

    def of_host(self, host: str, text: str) -> None:
        if not text.startswith(PROGRESS):
            self.note(f"{host}: {text}")
            return
        done, total = map(int, text.removeprefix(PROGRESS).split())
        with self._lock:
            if self._progress:
                self._bar(host, done, total)
            elif time.monotonic() - self._said.get(host, -_SAY_EVERY_S) >= _SAY_EVERY_S:
                self._said[host] = time.monotonic()
                print(f"{host}: {done * 100 // max(1, total)} % of {total / 1e9:.2f} GB", file=sys.stderr)

    def _bar(self, host: str, done: int, total: int) -> None:
        if host not in self._tasks:
            self._tasks[host] = self._progress.add_task(host, total=total)
        self._progress.update(self._tasks[host], completed=done, total=total)
