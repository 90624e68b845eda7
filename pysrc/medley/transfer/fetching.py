"""Fetching is to ask for the pieces that this host lacks: one source after the other, until all are here."""

import contextlib
import fcntl
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from medley import store
from medley.problem import Problem, in_words
from medley.transfer.held import Held
from medley.transfer.offered import Progress
from medley.transfer.recovered import recover
from medley.transfer.stream import Lost, Stream
from medley.watch import SILENT, Watch

_CONNECT_LIMIT_S = 3.0
_PATIENCE_S = 30.0
"""Without a single piece from any source."""
_PAUSE_S = 0.5


@dataclass(frozen=True)
class Source:
    """Where pieces can be had."""

    host: str
    """What people call it."""
    address: str
    port: int

    def __str__(self) -> str:
        return f"{self.host} ({self.address}:{self.port})"


class Stopped(Exception):  # noqa: N818 - it was asked to
    """`stop` was called; what is here is kept for the next time."""


class Fetching:
    """Of what `held` lacks; `run` in one thread, and `stop` from any."""

    def __init__(
        self,
        held: Held,
        sources: Sequence[Source],
        secret: str,
        *,
        on_progress: Progress | None = None,
        watch: Watch = SILENT,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._held, self._sources, self._secret = held, sources, secret
        self._on_progress = on_progress
        self._watch, self._patience_s = watch, patience_s
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._stopping = threading.Event()
        self.received_bytes = 0
        """From others, this time."""

    def run(self) -> None:
        """Until the model is whole and each hash that of the manifest; a Problem if it cannot be."""
        held = self._held
        try:
            with _alone(held.root):
                recover(held, self._tell)
                require_space(held)
                self._fetch()
                held.complete()
                self._tell(held.done_bytes, held.manifest.size_bytes)
        finally:
            held.end()

    def stop(self) -> None:
        """Soon `run` raises Stopped."""
        self._stopping.set()
        with self._lock:
            if self._connection is not None:
                with contextlib.suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RDWR)

    def _tell(self, done_bytes: int, total_bytes: int) -> None:
        if self._stopping.is_set():
            raise Stopped
        if self._on_progress:
            self._on_progress(done_bytes, total_bytes)

    def _fetch(self) -> None:
        """Each source as long as it gives; when all failed, again from the first, with patience."""
        deadline = time.monotonic() + self._patience_s
        said: dict[Source, str] = {}
        while self._held.missing():
            for place, source in enumerate(self._sources):
                before = self._held.done_bytes
                try:
                    self._take(source)
                except Lost as lost:
                    self._say(source, lost, self._sources[(place + 1) % len(self._sources)], said)
                if self._stopping.is_set():
                    raise Stopped
                if not self._held.missing():
                    return
                if self._held.done_bytes > before:
                    deadline = time.monotonic() + self._patience_s
            if time.monotonic() > deadline:
                raise self._stuck(said)
            self._stopping.wait(_PAUSE_S)

    def _take(self, source: Source) -> None:
        with self._connected(source) as connection:
            stream = Stream(connection, self._secret, self._held)
            try:
                stream.run(lambda: self._tell(self._held.done_bytes, self._held.manifest.size_bytes))
            finally:
                self.received_bytes += stream.received_bytes

    @contextlib.contextmanager
    def _connected(self, source: Source) -> Iterator[socket.socket]:
        family = socket.AF_INET6 if ":" in source.address else socket.AF_INET
        with socket.socket(family) as connection:
            with self._lock:
                self._connection = connection
            try:
                if self._stopping.is_set():
                    raise Stopped
                connection.settimeout(_CONNECT_LIMIT_S)
                connection.connect((source.address, source.port))
                yield connection
            except OSError as error:
                raise Lost(in_words(error)) from error
            finally:
                with self._lock:
                    self._connection = None

    def _say(self, source: Source, lost: Lost, after: Source, said: dict[Source, str]) -> None:
        """Once for each reason."""
        if said.get(source) == str(lost) or self._stopping.is_set():
            return
        said[source] = str(lost)
        self._watch.note(f"{source}: {lost}; going on from {'it again' if after is source else after.host}")

    def _stuck(self, said: dict[Source, str]) -> Problem:
        left, of = len(self._held.missing()), len(self._held.manifest.pieces)
        return Problem(
            f"{self._held.root} is not whole: {left} of {of} pieces are missing",
            cause="\n".join(f"{source}: {why}" for source, why in said.items()) or "there is nobody to ask",
            fix="see to these hosts and their link, then pull again: what is here is kept",
        )


def require_space(held: Held) -> None:
    """A Problem unless the disk has room for what is missing."""
    free_bytes = store.free_bytes(held.root)
    if held.missing_bytes > free_bytes:
        raise Problem(
            f"{socket.gethostname()} has no room for {held.root}",
            cause=f"{held.missing_bytes} bytes are needed ({held.missing_bytes / 1e9:.1f} GB), "
            f"{free_bytes} are free ({free_bytes / 1e9:.1f} GB)",
            fix=f"df -h {_existing(held.root)}  # and make room there, or leave this host out",
        )


@contextlib.contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Two transfers to one folder would take files away from each other."""
    handle = _made(root)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Problem(
                f"another transfer to {root} is under way",
                cause=f"it holds the lock of that folder on {socket.gethostname()}",
                fix="wait until it is done, or end it",
            ) from error
        except OSError:
            pass  # a file system that has no locks
        yield
    finally:
        os.close(handle)


def _made(root: Path) -> int:
    try:
        root.mkdir(parents=True, exist_ok=True)
        return os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise Problem(
            f"{root} cannot be made on {socket.gethostname()}",
            cause=in_words(error),
            fix=f"sudo install -d -o $USER {root}  # there: a folder has the same path on all hosts",
        ) from error


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path
