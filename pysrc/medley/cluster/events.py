"""Keep what happened to this host's servers and units: starts, ends, faults and restarts, with reasons."""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from medley import json_shape, storage

Kind = Literal["start", "ready", "fault", "restart", "recovery", "end", "upgrade"]
_MOST_BYTES = 512 << 10
"""Then the older half is forgotten."""


@dataclass(frozen=True)
class Event:
    at_s: float
    """Since the epoch."""
    kind: Kind
    subject: str
    """`demo on port 8000`, `medley-ray`."""
    text: str
    """One line: the reason, with its numbers."""


def file() -> Path:
    return storage.state() / "events.jsonl"


def note(kind: Kind, subject: str, text: str) -> None:
    """Keep an event; a full disk loses it, and nothing else."""
    line = json.dumps(asdict(Event(time.time(), kind, subject, " ".join(text.split())))) + "\n"
    with suppress(OSError), storage.lock(file().with_suffix(".lock"), waits=lambda: None):
        if file().exists() and file().stat().st_size > _MOST_BYTES:
            lines = file().read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
            storage.write(file(), "".join(lines[len(lines) // 2 :]))
        with file().open("a", encoding="utf-8") as kept:
            kept.write(line)


def events() -> Iterator[Event]:
    """Yield all, the oldest first; a line that a power cut damaged is left out."""
    with suppress(FileNotFoundError):
        for line in file().read_text(encoding="utf-8", errors="replace").splitlines():
            found = json_shape.table(line)
            if found is not None and json_shape.fits(found, Event):
                yield Event(**found)
