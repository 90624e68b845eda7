"""Draw tables of all hosts with rich."""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table as Drawn
from rich.text import Text

from medley.measurement.monitor import Ray, rows
from medley.measurement.monitor.rates import Rates
from medley.measurement.monitor.rows import NOTHING, Cell, Column, Mood, Row, Table, memory, share
from medley.measurement.monitor.watch import Seen
from medley.planner.report import printable

_OLD_S = 10
_GAP = 2
_LEAST = 6
"""A narrower name has no room for an ellipsis."""
_STYLES = {"": "", "good": "green", "warn": "yellow", "bad": "bold red", "dim": "dim"}
_HOSTS = (
    Column("host"),
    Column("cpu", right=True),
    Column("load", right=True, rank=3),
    Column("memory in use", right=True),
    Column("gpu memory", rank=1),
    Column("ray"),
    Column("seen", right=True, rank=2),
)
_TROUBLES = (Column("trouble"), Column("what, and what to do", wraps=True))
Line = list[Segment]


def tables(seen: Mapping[str, Seen]) -> tuple[Table, ...]:
    """Those that have something to show."""
    found = {name: each.rates for name, each in seen.items() if each.rates and not each.problem}
    made = (
        Table("hosts", _HOSTS, tuple(_host(name, each) for name, each in seen.items()), urgent=True),
        Table("engines", rows.ENGINES, tuple(rows.engines(found)), urgent=True),
        Table("gpus", rows.GPUS, tuple(rows.gpus(found))),
        Table("links", rows.LINKS, tuple(rows.links(found))),
        Table("rdma ports", rows.PORTS, tuple(rows.ports(found))),
        Table("troubles", _TROUBLES, tuple(_troubles(seen)), urgent=True),
    )
    return tuple(each for each in made if each.rows)


def title(seen: Mapping[str, Seen], every_s: float) -> str:
    silent = sum(each.problem is not None for each in seen.values())
    hosts = f"{len(seen)} host{'s' if len(seen) > 1 else ''}"
    unanswered = f", {silent} of them without an answer" if silent else ""
    return f"medley top: {hosts}{unanswered}; every {every_s:g} s"


def _host(name: str, each: Seen) -> Row:
    """Of one that does not answer now its last values are dim, beside their age."""
    shown, found = printable(name), each.rates
    old: Mood = "bad" if each.problem or (each.age_s or 0) > _OLD_S else ""
    mood: Mood = old or ("dim" if each.age_s is None else "")
    age = Cell("never" if each.age_s is None else f"{each.age_s:.0f} s ago", mood)
    if found is None:
        state = Cell("no answer", "bad") if each.problem else Cell("asked", "dim")
        return (Cell(shown, "bad" if each.problem else ""), state, *[NOTHING] * 4, age)
    used_bytes = found.memory.total_bytes - found.memory.available_bytes
    cells: Row = (
        share(found.cpu_busy),
        Cell(f"{found.load:.1f}/{found.threads}") if found.load is not None else NOTHING,
        memory(used_bytes, found.memory.total_bytes, warns=True),
        _gpu_memory(found),
        _ray(found.ray),
    )
    if each.problem:
        cells = (Cell(f"silent {each.age_s:.0f} s", "bad"), *(Cell(cell.text, "dim") for cell in cells[1:]))
    return (Cell(shown, "bad" if each.problem else "warn" if found.slow else ""), *cells, age)


def _gpu_memory(found: Rates) -> Cell:
    if found.unified:
        return Cell("the same: one pool")
    own = [gpu for gpu in found.gpus if gpu.memory_total_bytes]
    if not own:
        return Cell("no GPU answers", "bad") if found.gpus_silent else Cell("no GPU", "dim")
    used = sum(gpu.memory_used_bytes or 0 for gpu in own)
    return memory(used, sum(gpu.memory_total_bytes or 0 for gpu in own))


def _ray(ray: Ray | None) -> Cell:
    if ray is None:
        return NOTHING
    if not ray.alive:
        return Cell(f"{ray.role}, gone", "bad")
    slots = f", {ray.taken:g} of {ray.slots:g}" if ray.slots is not None and ray.taken is not None else ""
    return Cell(f"{ray.role}{slots}", "good")


def _troubles(seen: Mapping[str, Seen]) -> Iterator[Row]:
    for host, each in seen.items():
        name, found = Cell(printable(host), "bad"), each.rates
        if each.problem:
            text = f"{each.problem.what}: {each.problem.cause}; {each.problem.fix}"
            yield (name, Cell(printable(text), "bad"))
        for text in found.slow if found else ():
            yield (name, Cell(printable(text), "warn"))
        if found and found.gpus_silent:
            yield (name, Cell(printable(found.gpus_silent), "bad"))
        for served in found.engines if found else ():
            if served.silent:
                yield (name, Cell(printable(f"{served.model}: {served.silent}"), "warn"))
        if found and found.ray and not found.ray.alive:
            yield (name, Cell("its Ray is gone: medley status says more", "bad"))


@dataclass(frozen=True)
class Name:
    """Text on one line that keeps its beginning and its end, because names differ at the end."""

    text: str
    style: str = ""

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, max(1, cell_len(self.text))).with_maximum(options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text, width = self.text, options.max_width
        if cell_len(text) > width > _LEAST:
            half = (width - 1) // 2
            end = text[-half:] if cell_len(text[-half:]) <= half else ""
            text = f"{set_cell_size(text, width - 1 - cell_len(end))}…{end}"
        yield Text(text, self.style, no_wrap=True, overflow="crop", end="")


@dataclass(frozen=True)
class Screen:
    """A title and the time above the tables, as one live screen."""

    title: str
    time: str
    tables: tuple[Table, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        head = Drawn.grid(padding=(0, _GAP, 0, 0), pad_edge=False, expand=True)
        head.add_column(ratio=1)
        head.add_column(justify="right", no_wrap=True)
        head.add_row(Name(self.title, "bold"), Text(self.time, "dim"))
        height = options.height or console.height
        found = [*_rendered(head, console, options), [], *lines(self.tables, console, options, height - 2)]
        for line in found[:height]:
            yield from line
            yield Segment.line()


def plain(tables: Sequence[Table], width: int) -> str:
    """The whole tables as text without colors."""
    console = Console(file=io.StringIO(), width=width)
    found = lines(tables, console, console.options)
    return "\n".join("".join(segment.text for segment in line).rstrip() for line in found)


def lines(
    tables: Sequence[Table], console: Console, options: ConsoleOptions, height: int | None = None
) -> list[Line]:
    """Of each table the first rows that the height has room for, and how many more there are."""
    drawn = [_rendered(_drawn(table, options.max_width), console, options) for table in tables]
    given = [len(each) for each in drawn] if height is None else _given(drawn, height, tables)
    found: list[Line] = []
    for table, each, room in zip(tables, drawn, given, strict=True):
        found += [[], *each[:room]]
        if room < len(each):
            left = "" if table.columns[-1].wraps else f"{len(each) - room + 1} "
            found[-1:] = _rendered(Text(f"… and {left}more {table.name}", "dim"), console, options)[:1]
    return found[1:][:height]


def _rendered(drawn: Drawn | Text, console: Console, options: ConsoleOptions) -> list[Line]:
    return console.render_lines(drawn, options.update(height=None), pad=False)


def _drawn(table: Table, width: int) -> Drawn:
    """Columns of the highest rank go first where the width is short; rank 0 is cut instead."""
    shown = list(range(len(table.columns)))
    while (most := max(shown, key=lambda at: (table.columns[at].rank, at))) and table.columns[most].rank:
        texts = ([table.columns[at].title, *(row[at].text for row in table.rows)] for at in shown)
        natural = [max(map(cell_len, each)) for each in texts]
        if sum(natural) + _GAP * (len(shown) - 1) <= width:
            break
        shown.remove(most)
    drawn = Drawn(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    for at in shown:
        column = table.columns[at]
        drawn.add_column(Name(column.title.upper()), justify="right" if column.right else "left")
    for row in table.rows:
        cells = ((Text if table.columns[at].wraps else Name, row[at]) for at in shown)
        drawn.add_row(*(kind(cell.text, _STYLES[cell.mood]) for kind, cell in cells))
    return drawn


def _given(drawn: Sequence[list[Line]], height: int, tables: Sequence[Table]) -> list[int]:
    """Lines go one by one to each table that wants more in turn, to the urgent ones first."""
    given = [min(2, len(each)) for each in drawn]
    room = height - sum(given) - (len(drawn) - 1)
    for turn in ([at for at, table in enumerate(tables) if table.urgent], list(range(len(drawn)))):
        while room > 0 and (short := [at for at in turn if given[at] < len(drawn[at])]):
            for at in short[:room]:
                given[at] += 1
            room -= len(short[:room])
    return given
