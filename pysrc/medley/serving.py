"""What is served on this host now: a small file for each server, kept while it runs."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from os import getpid
from pathlib import Path

from medley import store
from medley.problem import Problem


@dataclass(frozen=True)
class Server:
    """A server that `medley serve` runs: its base URL, the model's name, and medley's own process."""

    url: str
    model: str
    pid: int
    key: str | None = None
    """The file of its API key."""


@contextmanager
def noted(url: str, model: str, port: int, key: Path | None = None) -> Iterator[None]:
    """Keep the note while the body runs."""
    store.write(_note(port), json.dumps(asdict(Server(url, model, getpid(), str(key) if key else None))))
    try:
        yield
    finally:
        _note(port).unlink(missing_ok=True)


def require_none(port: int) -> None:
    """Raise a Problem where another `medley serve` has this port, though it may not listen yet."""
    found = _read(_note(port)) if _note(port).exists() else None
    if found:
        raise Problem(
            f"port {port} is taken by another medley serve",
            cause=f"process {found.pid} serves {found.model} there, or is about to",
            fix=f"end it (kill -INT {found.pid}), or take another port: --port {port + 1}",
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


def servers() -> list[Server]:
    """All whose processes are still there, the one started last first."""
    notes = sorted(folder().glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    return list(filter(None, map(_read, notes)))


def _read(path: Path) -> Server | None:
    """A note, if its process is still there."""
    server = Server(**json.loads(path.read_text(encoding="utf-8")))
    return server if Path(f"/proc/{server.pid}").exists() else None


def _note(port: int) -> Path:
    return folder() / f"{port}.json"


def folder() -> Path:
    return store.state() / "serving"
