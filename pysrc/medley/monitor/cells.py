"""A cell is a piece of what is shown: its text, whether that is good, and its share."""

from dataclasses import dataclass
from typing import Literal

Mood = Literal["", "good", "warn", "bad", "dim"]
_GIB = 1 << 30
_FULL, _NEARLY = 0.95, 0.85


@dataclass(frozen=True)
class Cell:
    text: str
    mood: Mood = ""
    share: float | None = None
    """Of what is possible, 0 to 1, where that has a meaning."""


@dataclass(frozen=True)
class Column:
    title: str
    right: bool = False
    rank: int = 0
    """Where room is short, those of the highest rank are left out first."""
    wraps: bool = False
    """The last one may: what does not fit goes on below it."""


Row = tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    name: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    urgent: bool = False
    """Where lines are short, it gets them before others."""


NOTHING = Cell("-", "dim")


def memory(used_bytes: int, total_bytes: int, *, warns: bool = False) -> Cell:
    """`warns` where full is bad: engines fill a GPU's own memory on purpose."""
    share = used_bytes / total_bytes if total_bytes else None
    mood: Mood = "" if share is None or not warns or share < _NEARLY else "bad" if share >= _FULL else "warn"
    return Cell(f"{used_bytes / _GIB:.1f} of {total_bytes / _GIB:.1f} GiB", mood, share)


def share(value: float | None, *, warns: bool = False) -> Cell:
    if value is None:
        return NOTHING
    mood: Mood = "" if not warns or value < _NEARLY else "bad" if value >= _FULL else "warn"
    return Cell(f"{value:.0%}", mood, min(1.0, max(0.0, value)))


def count(value: float | None, mood: Mood = "") -> Cell:
    return NOTHING if value is None else Cell(f"{value:.0f}", mood if value else "")


def rate(value: float | None) -> Cell:
    """Three digits of it."""
    return NOTHING if value is None else Cell(f"{value:.1f}" if value < 100 else f"{value:.0f}")  # noqa: PLR2004 - as said


def limited(value: float | None, most: float | None, unit: str) -> Cell:
    if value is None:
        return NOTHING
    return Cell(f"{value:.0f} of {most:.0f} {unit}" if most is not None else f"{value:.0f} {unit}")


def bits(bytes_per_s: float) -> str:
    """In bits, as links are sold, with three digits; 0 only where nothing went."""
    found = bytes_per_s * 8
    for unit, size in (("Gb/s", 1e9), ("Mb/s", 1e6), ("kb/s", 1e3)):
        if found >= size:
            return f"{found / size:.0f} {unit}" if found >= 100 * size else f"{found / size:.3g} {unit}"
    return f"{found:.0f} b/s" if found else "0"
