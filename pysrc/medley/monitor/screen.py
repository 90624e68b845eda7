"""A screen is a view laid out in so many columns and lines of a terminal, none wider than that."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from medley.monitor.cells import Cell, Column, Mood, Row, Table

_GAP = "  "
_LEAST = 6
"""A column that is cut keeps so much, or goes."""
_CONSOLE = Console(width=80)
"""Rich asks for one to wrap text, and looks at nothing of it."""


@dataclass(frozen=True)
class Span:
    text: str
    mood: Mood | str = ""


Line = tuple[Span, ...]


def lines(tables: Sequence[Table], width: int, height: int | None = None) -> list[Line]:
    """All of them, or what has room: of each table the first rows, and how many more there are."""
    laid = [list(_laid(table, width)) for table in tables]
    if height is not None:
        laid = _shortened(laid, height, tables)
    blank: Line = ()
    whole = [line for at, each in enumerate(laid) for line in ((blank,) if at else ()) + tuple(each)]
    return [_clipped(line, width) for line in whole[:height]]


def _clipped(line: Line, width: int) -> Line:
    """On a terminal that is too narrow even for one letter a column."""
    spans, room = [], width
    for span in line:
        spans.append(Span(set_cell_size(span.text, min(room, cell_len(span.text))), span.mood))
        room -= cell_len(spans[-1].text)
    return tuple(spans)


def _laid(table: Table, width: int) -> Iterator[Line]:
    """A line of titles, and one for each row."""
    shown = _kept(table, width)
    widths = _widths(table, shown, width)
    titles = tuple(Cell(column.title.upper()) for column in table.columns)
    yield _line(titles, table.columns, shown, widths, "title")
    for row in table.rows:
        for part in _wrapped(row, table.columns, widths):
            yield _line(part, table.columns, shown, widths)


def _wrapped(row: Row, columns: tuple[Column, ...], widths: dict[int, int]) -> Iterator[Row]:
    """As several rows, where its last cell wraps."""
    last = len(columns) - 1
    if not columns[last].wraps or widths[last] < _LEAST:
        yield row
        return
    parts = Text(row[last].text).wrap(_CONSOLE, widths[last])
    for at, part in enumerate(parts):
        before = row[:last] if at == 0 else tuple(Cell("") for _ in row[:last])
        yield (*before, Cell(part.plain, row[last].mood))


def _line(
    row: Row,
    columns: tuple[Column, ...],
    shown: list[int],
    widths: dict[int, int],
    mood: str = "",
) -> Line:
    spans = []
    for at in shown:
        text = _fitted(row[at].text, widths[at], right=columns[at].right)
        last = at == shown[-1]
        spans.append(Span(text.rstrip() if last else f"{text}{_GAP}", mood or row[at].mood))
    return tuple(spans)


def _kept(table: Table, width: int) -> list[int]:
    """The columns that there is room for; the rank 0 ones stay, and are cut where it must be."""
    shown = list(range(len(table.columns)))
    while _wide(table, shown) > width:
        most = max(shown, key=lambda at: (table.columns[at].rank, at))
        if table.columns[most].rank == 0:
            break
        shown.remove(most)
    return shown


def _wide(table: Table, shown: Sequence[int]) -> int:
    return sum(_natural(table, at) for at in shown) + len(_GAP) * (len(shown) - 1)


def _natural(table: Table, at: int) -> int:
    return max(cell_len(table.columns[at].title), *(cell_len(row[at].text) for row in table.rows))


def _widths(table: Table, shown: Sequence[int], width: int) -> dict[int, int]:
    """What is too much is taken from the widest, a letter at a time."""
    widths = {at: _natural(table, at) for at in shown}
    over = _wide(table, shown) - width
    while over > 0:
        widest = max(shown, key=lambda at: widths[at])
        if widths[widest] <= 1:
            break
        widths[widest] -= 1
        over -= 1
    return widths


def _fitted(text: str, width: int, *, right: bool) -> str:
    """Of a name its beginning and its end are kept, for names of hosts and models differ at the end."""
    if cell_len(text) > width:
        half = max(1, (width - 1) // 2)
        end = text[-half:] if cell_len(text[-half:]) <= half else ""
        text = (
            f"{set_cell_size(text, max(0, width - 1 - cell_len(end)))}…{end}"
            if width > _LEAST
            else set_cell_size(text, width)
        )
    room = " " * (width - cell_len(text))
    return f"{room}{text}" if right else f"{text}{room}"


def _shortened(laid: list[list[Line]], height: int, tables: Sequence[Table]) -> list[list[Line]]:
    """Lines are given out one by one to each table that wants more in turn, to the urgent ones first."""
    given = [min(2, len(each)) for each in laid]
    room = height - sum(given) - (len(laid) - 1)
    for turn in ([at for at, table in enumerate(tables) if table.urgent], list(range(len(laid)))):
        while room > 0 and (short := [at for at in turn if given[at] < len(laid[at])]):
            for at in short[:room]:
                given[at] += 1
            room -= len(short[:room])
    return [_first(*each) for each in zip(laid, given, tables, strict=True)]


def _first(each: list[Line], have: int, table: Table) -> list[Line]:
    if have >= len(each):
        return each
    left = "" if table.columns[-1].wraps else f"{len(each) - have + 1} "
    return [*each[: have - 1], (Span(f"… and {left}more {table.name}", "dim"),)]


def ends(left: str, right: str, width: int) -> Line:
    """One text at each end of a line; the left one gives way."""
    room = width - cell_len(right) - len(_GAP)
    if room < _LEAST:
        return (Span(_fitted(left, width, right=False), "title"),)
    return (Span(_fitted(left, room, right=False), "title"), Span(f"{_GAP}{right}", "dim"))


def text(shown: Sequence[Line]) -> str:
    return "\n".join("".join(span.text for span in line).rstrip() for line in shown)
