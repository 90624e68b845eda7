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

from medley.command import quote_path
from medley.errors import Problem, describe_error
from medley.model.free_space import require_space
from medley.model.transfer.connection import SourceLost, Stream
from medley.model.transfer.inventory import OnProgress
from medley.model.transfer.pieces import PieceStore, recover_pieces
from medley.progress import SILENT, Progress
from medley.values import Value

_CONNECT_LIMIT_S = 3.0
_RETRY_LIMIT_S = 30.0
"""The time limit without a single piece from any source."""
_PAUSE_S = 0.5


class Source(Value):
    host: str
    address: str
    port: int

    def __str__(self) -> str:
        return f"{self.host} ({self.address}:{self.port})"


class FetchStopped(Exception):  # noqa: N818 - it was asked to
    """`stop` was called; what is here is kept for the next time."""


@dataclass
class ModelFetch:
    """A fetch of the pieces that `store` lacks: `run` in one thread, `stop` from any."""

    store: PieceStore
    sources: Sequence[Source]
    secret: str
    _: KW_ONLY
    on_progress: OnProgress | None = None
    progress: Progress = SILENT
    retry_limit_s: float = _RETRY_LIMIT_S
    received_bytes: int = field(default=0, init=False)
    _connection: socket.socket | None = field(default=None, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _stopping: threading.Event = field(default_factory=threading.Event, init=False)

    def run(self) -> None:
        """Fetch until the model is complete and all hashes match; raise a Problem if that fails."""
        store = self.store
        try:
            with _lock_folder(store.root):
                recover_pieces(store, self._report)
                require_space(store.root, store.missing_bytes)
                self._fetch()
                store.publish()
                self._report(store.done_bytes, store.manifest.size_bytes)
        finally:
            store.end()

    def stop(self) -> None:
        """Make `run` raise Stopped soon."""
        self._stopping.set()
        with self._lock:
            if self._connection is not None:
                with contextlib.suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RDWR)

    def _report(self, done_bytes: int, total_bytes: int) -> None:
        if self._stopping.is_set():
            raise FetchStopped
        if self.on_progress:
            self.on_progress(done_bytes, total_bytes)

    def _fetch(self) -> None:
        """Use each source while it sends; if all failed, try again within `retry_limit_s`."""
        deadline = time.monotonic() + self.retry_limit_s
        reasons: dict[Source, str] = {}
        while self.store.list_missing():
            for position, source in enumerate(self.sources):
                bytes_before = self.store.done_bytes
                try:
                    self._fetch_from(source)
                except SourceLost as lost:
                    self._report_lost_source(
                        source, lost, self.sources[(position + 1) % len(self.sources)], reasons
                    )
                if self._stopping.is_set():
                    raise FetchStopped
                if not self.store.list_missing():
                    return
                if self.store.done_bytes > bytes_before:
                    deadline = time.monotonic() + self.retry_limit_s
            if time.monotonic() > deadline:
                missing, total = len(self.store.list_missing()), len(self.store.manifest.pieces)
                causes = "\n".join(f"{source}: {why}" for source, why in reasons.items())
                raise Problem(
                    f"{self.store.root} is not whole: {missing} of {total} pieces are missing",
                    cause=causes or "there is no host to ask",
                    fix="see to these hosts and their link, then pull again: what is here is kept",
                )
            self._stopping.wait(_PAUSE_S)

    def _fetch_from(self, source: Source) -> None:
        store = self.store
        with self._connect(source) as connection:
            stream = Stream(connection, self.secret, store)
            try:
                stream.run(lambda: self._report(store.done_bytes, store.manifest.size_bytes))
            finally:
                self.received_bytes += stream.received_bytes

    @contextlib.contextmanager
    def _connect(self, source: Source) -> Iterator[socket.socket]:
        family = socket.AF_INET6 if ":" in source.address else socket.AF_INET
        with socket.socket(family) as connection:
            with self._lock:
                self._connection = connection
            try:
                if self._stopping.is_set():
                    raise FetchStopped
                connection.settimeout(_CONNECT_LIMIT_S)
                connection.connect((source.address, source.port))
                yield connection
            except OSError as error:
                raise SourceLost(describe_error(error)) from error
            finally:
                with self._lock:
                    self._connection = None

    def _report_lost_source(
        self, source: Source, error: SourceLost, next_source: Source, reasons: dict[Source, str]
    ) -> None:
        if reasons.get(source) == str(error) or self._stopping.is_set():
            return
        reasons[source] = str(error)
        self.progress.note(
            f"{source}: {error}; going on from {'it again' if next_source is source else next_source.host}"
        )


@contextlib.contextmanager
def _lock_folder(root: Path) -> Iterator[None]:
    """Lock the folder: two transfers to it would break each other's files."""
    handle = _open_folder(root)
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


def _open_folder(root: Path) -> int:
    """Make and open a folder; return its handle."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        return os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise Problem(
            f"{root} cannot be made on {socket.gethostname()}",
            cause=describe_error(error),
            fix=f"sudo install -d -o $USER {quote_path(root)}  "
            "# there: a folder has the same path on all hosts",
        ) from error
