"""Bars show how far each host has come with a transfer: on a terminal; elsewhere a line now and then."""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, Self

from medley.errands.transfer import PROGRESS

_SAY_EVERY_S = 10


class Bars:
    """A watch too, of what comes before the transfer."""

    def __init__(self, hosts: list[str]) -> None:
        self._hosts, self._lock = hosts, threading.Lock()
        self._said: dict[str, float] = {}
        self._progress: Any = None
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

            from medley.cli.terminal import console

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
        """As a watch's."""
        self._print(text)

    def of_host(self, host: str, text: str) -> None:
        if not text.startswith(PROGRESS):
            self._print(f"{host}: {text}")
            return
        done, total = map(int, text.removeprefix(PROGRESS).split())
        with self._lock:
            if self._progress:
                self._bar(host, done, total)
            elif time.monotonic() - self._said.get(host, -_SAY_EVERY_S) >= _SAY_EVERY_S:
                self._said[host] = time.monotonic()
                print(f"{host}: {done * 100 // max(1, total)} % of {total / 1e9:.2f} GB", file=sys.stderr)

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self._print(f"{name} …")
        yield

    def line(self, text: str) -> None: ...

    def _bar(self, host: str, done: int, total: int) -> None:
        if host not in self._tasks:
            self._tasks[host] = self._progress.add_task(host, total=total)
        self._progress.update(self._tasks[host], completed=done, total=total)

    def _print(self, text: str) -> None:
        if self._progress:
            self._progress.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=sys.stderr)
