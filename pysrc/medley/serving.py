"""What is served on this host now: a small file for each server, kept while it runs."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from os import getpid
from pathlib import Path

from medley import store


@dataclass(frozen=True)
class Server:
    """A server that `medley serve` runs: its base URL, the model's name, and medley's own process."""

    url: str
    model: str
    pid: int


@contextmanager
def noted(url: str, model: str, port: int) -> Iterator[None]:
    """Keep the note while the body runs."""
    path = _folder() / f"{port}.json"
    store.write(path, json.dumps(asdict(Server(url, model, getpid()))))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


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
    notes = sorted(_folder().glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    servers = (Server(**json.loads(path.read_text(encoding="utf-8"))) for path in notes)
    return next((server for server in servers if Path(f"/proc/{server.pid}").exists()), None)


def _folder() -> Path:
    return store.state() / "serving"
