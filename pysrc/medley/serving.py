"""What is served on this host now: a small file for each server, kept while it runs."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from medley import ending, process_identity, store, units
from medley.problem import Problem
from medley.process_identity import Identity

UNIT = "medley-serve-"
"""With the port: the unit of a server that outlives its terminal."""
_END_LIMIT_S = 40


@dataclass(frozen=True)
class Server:
    """A server that `medley serve` runs: its base URL, the model's name, and medley's own process."""

    url: str
    model: str
    pid: int
    started: int
    boot: str
    """By which that process is told from a later one of its number."""
    key: str | None = None
    """The file of its API key."""
    state: str = "starting"
    """`starting`, `ready`, or what it waits for."""
    since_s: float = 0
    """Of the epoch: since when it is so."""

    @property
    def identity(self) -> Identity:
        return Identity(self.pid, self.started, self.boot)


@contextmanager
def noted(
    url: str, model: str, port: int, key: Path | None = None, state: str = "starting"
) -> Iterator[Callable[[str], None]]:
    """Keep the note while the body runs, which may tell another state."""

    def tell(state: str) -> None:
        us = process_identity.own()
        where = str(key) if key else None
        found = Server(url, model, us.pid, us.started, us.boot, where, state, time.time())
        with suppress(OSError):  # the disk is full: the server goes on, and is shown as it was
            store.write(_note(port), json.dumps(asdict(found)))

    tell(state)
    try:
        yield tell
    finally:
        _note(port).unlink(missing_ok=True)


def require_none(port: int) -> None:
    """Raise a Problem where another `medley serve` has this port, though it may not listen yet."""
    found = _read(_note(port)) if _note(port).exists() else None
    if found:
        raise Problem(
            f"port {port} is taken by another medley serve",
            cause=f"process {found.pid} serves {found.model} there, or is about to",
            fix=f"end it: medley stop --port {port}; or take another port: --port {port + 1}",
        )


@contextmanager
def log(path: Path) -> Iterator[Callable[[str], object]]:
    """A function that keeps a line in a new log file; the log before it stays as NAME.1."""
    store.make(path.parent)
    if path.exists():
        path.replace(path.with_name(f"{path.name}.1"))
    # Without a buffer, so that a disk which is full costs lines of the log and not the server.
    with path.open("wb", buffering=0) as file:

        def keep(line: str) -> None:
            with suppress(OSError):
                file.write(f"{line}\n".encode(errors="replace"))

        yield keep


def newest() -> Server | None:
    """The one started last whose process is still there."""
    return next(iter(servers()), None)


def is_ready(port: int) -> bool:
    """Whether what is served at this port answers requests."""
    found = _read(_note(port)) if _note(port).exists() else None
    return found is not None and found.state == "ready"


def end(port: int | None, note: Callable[[str], None]) -> int:
    """End what is served here, or at this port alone; returns how many servers that were."""
    names = [state.name for state in units.states() if _is_of(state.name, port)]
    for name in names:
        note(f"end {name} …")
        units.stop(name)
    found = [server for server in servers() if port is None or server.url.endswith(f":{port}/v1")]
    for server in found:
        note(f"end the server of process {server.pid} …")
    ending.end([server.identity for server in found], _END_LIMIT_S)
    for file in folder().glob("*.json"):
        if _read(file) is None and port in {None, _port(file)}:
            note(f"forget {file.name}: its server ended without a word, as in a power cut")
            file.unlink(missing_ok=True)
    return len(names) + len(found)


def _is_of(unit: str, port: int | None) -> bool:
    return unit == f"{UNIT}{port}" if port else unit.startswith(UNIT)


def servers() -> list[Server]:
    """All whose processes are still there, the one started last first."""
    notes = sorted(folder().glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    return list(filter(None, map(_read, notes)))


def _read(path: Path) -> Server | None:
    """A note, if its process is still there: the very one, and not another with its number."""
    server = store.record(path, Server)
    return server if server and server.identity.alive else None


def _port(file: Path) -> int | None:
    return int(file.stem) if file.stem.isdecimal() else None


def _note(port: int) -> Path:
    return folder() / f"{port}.json"


def folder() -> Path:
    return store.state() / "serving"
