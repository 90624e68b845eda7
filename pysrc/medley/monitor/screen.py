"""A screen is a view laid out in so many columns and lines of a terminal, none wider than that."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from medley.monitor.cells import Cell, Column, Mood, Row, Table

_GAP = "  "
_LEAST = 6
"""A column that is cut keeps so much, or goes."""
_BAR = 8


@dataclass(frozen=True)
class Span:
    text: str
    mood: Mood | str = ""


Line = tuple[Span, ...]


def lines(tables: Sequence[Table], width: int, height: int | None = None) -> list[Line]:
    """All of them, or what has room: of each table the first rows, and how many more there are."""
    laid = [list(_laid(table, width)) for table in tables]
    if height is not None:
        laid = _shortened(laid, height, [table.name for table in tables])
    blank: Line = ()
    return [line for at, each in enumerate(laid) for line in ((blank,) if at else ()) + tuple(each)][:height]


def _laid(table: Table, width: int) -> Iterator[Line]:
    """A line of titles, and one for each row."""
    shown = _kept(table, width)
    widths = _widths(table, shown, width)
    titles = tuple(Cell(column.title.upper()) for column in table.columns)
    yield _line(titles, table.columns, shown, widths, "title")
    for row in table.rows:
        yield _line(row, table.columns, shown, widths)


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


def _shortened(laid: list[list[Line]], height: int, names: list[str]) -> list[list[Line]]:
    """Lines are given out one by one, to each table that wants more in turn."""
    given = [min(2, len(each)) for each in laid]
    room = height - sum(given) - (len(laid) - 1)
    while room > 0 and any(have < len(each) for have, each in zip(given, laid, strict=True)):
        for at, each in enumerate(laid):
            if room > 0 and given[at] < len(each):
                given[at] += 1
                room -= 1
    return [_first(each, have, name) for each, have, name in zip(laid, given, names, strict=True)]


def _first(each: list[Line], have: int, name: str) -> list[Line]:
    if have >= len(each):
        return each
    left = len(each) - have + 1
    return [*each[: have - 1], (Span(f"… and {left} more {name if name != 'rdma' else 'ports'}", "dim"),)]


def text(shown: Sequence[Line]) -> str:
    return "\n".join("".join(span.text for span in line).rstrip() for line in shown)
