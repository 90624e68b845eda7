"""Fetch missing pieces from several sources."""

import contextlib
import fcntl
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from medley import storage
from medley.errors import Problem, in_words
from medley.model.transfer.connection import SourceLost, Stream
from medley.model.transfer.inventory import OnProgress
from medley.model.transfer.pieces import Held, recover
from medley.progress import SILENT, Progress

_CONNECT_LIMIT_S = 3.0
_PATIENCE_S = 30.0
"""Without a single piece from any source."""
_PAUSE_S = 0.5


@dataclass(frozen=True)
class Source:
    host: str
    address: str
    port: int

    def __str__(self) -> str:
        return f"{self.host} ({self.address}:{self.port})"


class Stopped(Exception):  # noqa: N818 - it was asked to
    """`stop` was called; what is here is kept for the next time."""


@dataclass
class Fetching:
    """Fetch what `held` lacks: `run` in one thread, `stop` from any."""

    held: Held
    sources: Sequence[Source]
    secret: str
    _: KW_ONLY
    on_progress: OnProgress | None = None
    watch: Progress = SILENT
    patience_s: float = _PATIENCE_S
    received_bytes: int = field(default=0, init=False)
    _connection: socket.socket | None = field(default=None, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _stopping: threading.Event = field(default_factory=threading.Event, init=False)

    def run(self) -> None:
        """Fetch until the model is complete and all hashes match; else a Problem."""
        held = self.held
        try:
            with _alone(held.root):
                recover(held, self._report)
                require_space(held)
                self._fetch()
                held.complete()
                self._report(held.done_bytes, held.manifest.size_bytes)
        finally:
            held.end()

    def stop(self) -> None:
        """Make `run` raise Stopped soon."""
        self._stopping.set()
        with self._lock:
            if self._connection is not None:
                with contextlib.suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RDWR)

    def _report(self, done_bytes: int, total_bytes: int) -> None:
        if self._stopping.is_set():
            raise Stopped
        if self.on_progress:
            self.on_progress(done_bytes, total_bytes)

    def _fetch(self) -> None:
        """Use each source while it sends; if all failed, try again within `patience_s`."""
        deadline = time.monotonic() + self.patience_s
        said: dict[Source, str] = {}
        while self.held.missing():
            for place, source in enumerate(self.sources):
                before = self.held.done_bytes
                try:
                    self._take(source)
                except SourceLost as lost:
                    self._say(source, lost, self.sources[(place + 1) % len(self.sources)], said)
                if self._stopping.is_set():
                    raise Stopped
                if not self.held.missing():
                    return
                if self.held.done_bytes > before:
                    deadline = time.monotonic() + self.patience_s
            if time.monotonic() > deadline:
                left, every = len(self.held.missing()), len(self.held.manifest.pieces)
                raise Problem(
                    f"{self.held.root} is not whole: {left} of {every} pieces are missing",
                    cause="\n".join(f"{source}: {why}" for source, why in said.items())
                    or "there is no host to ask",
                    fix="see to these hosts and their link, then pull again: what is here is kept",
                )
            self._stopping.wait(_PAUSE_S)

    def _take(self, source: Source) -> None:
        held = self.held
        with self._connected(source) as connection:
            stream = Stream(connection, self.secret, held)
            try:
                stream.run(lambda: self._report(held.done_bytes, held.manifest.size_bytes))
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
                raise SourceLost(in_words(error)) from error
            finally:
                with self._lock:
                    self._connection = None

    def _say(self, source: Source, lost: SourceLost, after: Source, said: dict[Source, str]) -> None:
        if said.get(source) == str(lost) or self._stopping.is_set():
            return
        said[source] = str(lost)
        self.watch.note(f"{source}: {lost}; going on from {'it again' if after is source else after.host}")


def require_space(held: Held) -> None:
    free_bytes = storage.free_bytes(held.root)
    existing = next(each for each in (held.root, *held.root.parents) if each.exists())
    if held.missing_bytes > free_bytes:
        raise Problem(
            f"{socket.gethostname()} has no room for {held.root}",
            cause=f"{held.missing_bytes} bytes are needed ({held.missing_bytes / 1e9:.1f} GB), "
            f"{free_bytes} are free ({free_bytes / 1e9:.1f} GB)",
            fix=f"df -h {existing}  # and make room there, or leave this host out",
        )


@contextlib.contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Lock the folder: two transfers to it would break each other's files."""
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
