"""What is served on this host now: a small file for each server, kept while it runs."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from os import getpid
from pathlib import Path

from medley import ending, store, units
from medley.problem import Problem

UNIT = "medley-serve-"
"""With the port: the unit of a server that outlives its terminal."""
_END_LIMIT_S = 40


@dataclass(frozen=True)
class Server:
    """A server that `medley serve` runs: its base URL, the model's name, and medley's own process."""

    url: str
    model: str
    pid: int
    key: str | None = None
    """The file of its API key."""
    state: str = "starting"
    """`starting`, `ready`, or what it waits for."""
    since_s: float = 0
    """Of the epoch: since when it is so."""


@contextmanager
def noted(
    url: str, model: str, port: int, key: Path | None = None, state: str = "starting"
) -> Iterator[Callable[[str], None]]:
    """Keep the note while the body runs, which may tell another state."""

    def tell(state: str) -> None:
        found = Server(url, model, getpid(), str(key) if key else None, state, time.time())
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
    with path.open("w", encoding="utf-8", buffering=1) as file:
        yield lambda line: file.write(f"{line}\n")


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
    found = {server.pid for server in servers() if port is None or server.url.endswith(f":{port}/v1")}
    for pid in found:
        note(f"end the server of process {pid} …")
    ending.end(found, _END_LIMIT_S)
    return len(names) + len(found)


def _is_of(unit: str, port: int | None) -> bool:
    return unit == f"{UNIT}{port}" if port else unit.startswith(UNIT)


def servers() -> list[Server]:
    """All whose processes are still there, the one started last first."""
    notes = sorted(folder().glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    return list(filter(None, map(_read, notes)))


def _read(path: Path) -> Server | None:
    """A note, if its process is still there."""
    table = store.table(path)
    if table is None or not set(table) <= {each.name for each in fields(Server)}:
        return None
    server = Server(**table)
    return server if Path(f"/proc/{server.pid}").exists() else None


def _note(port: int) -> Path:
    return folder() / f"{port}.json"


def folder() -> Path:
    return store.state() / "serving"
