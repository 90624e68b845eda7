"""Located is where in a TOML file a key stands: tomllib does not say."""

import re
import tomllib
from collections.abc import Iterator, Sequence

_HEADER = re.compile(r"\s*\[\[?\s*([^\[\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")


def line(text: str, path: Sequence[object]) -> int | None:
    """The number of the line, from 1, of the key at `path`, or of the nearest table above it."""
    wanted = tuple(str(part) for part in path if isinstance(part, str))
    best: tuple[int, int] | None = None
    for number, found in _keys(text):
        depth = min(len(found), len(wanted))  # [a.b] is also where the table `a` stands
        if found[:depth] == wanted[:depth] and (best is None or depth > best[0]):
            best = depth, number
    return best[1] if best else None


def _keys(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Every table and key that has a line of its own."""
    table: tuple[str, ...] = ()
    for number, each in enumerate(text.splitlines(), 1):
        if header := _HEADER.fullmatch(each):
            table = _parts(header[1])
            yield number, table
        elif key := _KEY.match(each):
            yield number, (*table, *_parts(key[1]))


def _parts(dotted: str) -> tuple[str, ...]:
    """A dotted key as TOML itself reads it."""
    try:
        table = tomllib.loads(f"{dotted} = 0")
    except tomllib.TOMLDecodeError:
        return (dotted,)
    parts = []
    while isinstance(table, dict):
        ((name, table),) = table.items()
        parts.append(name)
    return tuple(parts)
