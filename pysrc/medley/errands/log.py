"""Log: the last lines of what medley's units on this host said, and then, if wished, those that come."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from heapq import merge
from pathlib import Path
from typing import Any

from medley import store

_LOOK_EVERY_S = 0.2
_TAIL_BYTES = 1 << 20


def run(asked: Mapping[str, Any], note: Callable[[str], None]) -> Mapping[str, Any]:
    """The last `lines` of all units, by time; with `follow` it goes on until nobody listens."""
    files = {path: path.stat().st_size for path in _logs()}
    last = deque(merge(*(_tail(path, size) for path, size in files.items())), maxlen=asked["lines"])
    for line in last:
        note(line)
    while asked["follow"]:
        time.sleep(_LOOK_EVERY_S)
        for path in _logs():
            for line in _more(path, files):
                note(line)
    return {"files": [str(path) for path in files]}


def _logs() -> list[Path]:
    """Of units: other logs have no times, and their units repeat what they say."""
    return sorted((store.state() / "logs").glob("medley-*.log"))


def _tail(path: Path, size: int) -> list[str]:
    with path.open("rb") as file:
        file.seek(max(0, size - _TAIL_BYTES))
        lines = file.read(min(size, _TAIL_BYTES)).decode(errors="replace").splitlines()
    return [_named(path, line) for line in (lines[1:] if size > _TAIL_BYTES else lines)]


def _more(path: Path, files: dict[Path, int]) -> Iterator[str]:
    """Whole lines that were added since; one that was put aside begins anew."""
    size, seen = path.stat().st_size, files.get(path, 0)
    if size == seen:
        return
    with path.open("rb") as file:
        file.seek(seen if size > seen else 0)
        said, end, part = file.read().rpartition(b"\n")
        files[path] = file.tell() - len(part)
    if end:
        for line in said.decode(errors="replace").splitlines():
            yield _named(path, line)


def _named(path: Path, line: str) -> str:
    """TIME UNIT TEXT."""
    when, _, text = line.partition(" ")
    return f"{when} {path.stem.removeprefix('medley-')} {text}"
