"""Draw the tables of all hosts with rich."""

import io
from collections.abc import Iterator, Mapping, Sequence

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table as RichTable
from rich.text import Text

from medley.measurement.monitor import rows
from medley.measurement.monitor.rates import Rates
from medley.measurement.monitor.rows import (
    EMPTY_CELL,
    Cell,
    Column,
    Row,
    Table,
    build_memory_cell,
    build_share_cell,
)
from medley.measurement.monitor.sample import RaySample
from medley.measurement.monitor.watch import HostStatus
from medley.planner.report import make_printable
from medley.values import Value

_MAX_AGE_S = 10
_COLUMN_GAP = 2
_MIN_NAME_WIDTH = 6
"""The width from which a name has room for an ellipsis."""
_STYLES = {"": "", "good": "green", "warn": "yellow", "bad": "bold red", "dim": "dim"}
_HOST_COLUMNS = (
    Column("host"),
    Column("cpu", right=True),
    Column("load", right=True, rank=3),
    Column("memory in use", right=True),
    Column("gpu memory", rank=1),
    Column("ray"),
    Column("seen", right=True, rank=2),
)
_TROUBLE_COLUMNS = (Column("trouble"), Column("what, and what to do", wraps=True))
Line = list[Segment]


def build_tables(statuses: Mapping[str, HostStatus]) -> tuple[Table, ...]:
    """Return the tables that have rows."""
    rates = {name: status.rates for name, status in statuses.items() if status.rates and not status.problem}
    host_rows = tuple(_build_host_row(name, status) for name, status in statuses.items())
    tables = (
        Table("hosts", _HOST_COLUMNS, host_rows, urgent=True),
        Table("engines", rows.ENGINE_COLUMNS, tuple(rows.list_engines(rates)), urgent=True),
        Table("gpus", rows.GPU_COLUMNS, tuple(rows.list_gpus(rates))),
        Table("links", rows.LINK_COLUMNS, tuple(rows.list_links(rates))),
        Table("rdma ports", rows.PORT_COLUMNS, tuple(rows.list_ports(rates))),
        Table("troubles", _TROUBLE_COLUMNS, tuple(_list_troubles(statuses)), urgent=True),
    )
    return tuple(table for table in tables if table.rows)


def format_title(statuses: Mapping[str, HostStatus], interval_s: float) -> str:
    """Return the headline: the number of hosts, how many do not answer, and the interval."""
    silent = sum(status.problem is not None for status in statuses.values())
    hosts = f"{len(statuses)} host{'s' if len(statuses) > 1 else ''}"
    unanswered = f", {silent} of them without an answer" if silent else ""
    return f"medley top: {hosts}{unanswered}; every {interval_s:g} s"


def _build_host_row(name: str, status: HostStatus) -> Row:
    """Return a host's row; if it does not answer now, its last values are dim."""
    title, rates = make_printable(name), status.rates
    age = _build_age_cell(status)
    if rates is None:
        state = Cell("no answer", "bad") if status.problem else Cell("asked", "dim")
        return (Cell(title, "bad" if status.problem else ""), state, *[EMPTY_CELL] * 4, age)
    used_bytes = rates.memory.total_bytes - rates.memory.available_bytes
    cells: Row = (
        build_share_cell(rates.cpu_busy),
        Cell(f"{rates.load:.1f}/{rates.threads}") if rates.load is not None else EMPTY_CELL,
        build_memory_cell(used_bytes, rates.memory.total_bytes, warns=True),
        _build_gpu_memory_cell(rates),
        _build_ray_cell(rates.ray),
    )
    if status.problem:
        dim_cells = (Cell(cell.text, "dim") for cell in cells[1:])
        return (Cell(title, "bad"), Cell(f"silent {status.age_s:.0f} s", "bad"), *dim_cells, age)
    return (Cell(title, "warn" if rates.slow else ""), *cells, age)


def _build_age_cell(status: HostStatus) -> Cell:
    """Return the age of the last sample; it is red if the host is silent or the sample is old."""
    is_old = bool(status.problem) or (status.age_s or 0) > _MAX_AGE_S
    if status.age_s is None:
        return Cell("never", "bad" if is_old else "dim")
    return Cell(f"{status.age_s:.0f} s ago", "bad" if is_old else "")


def _build_gpu_memory_cell(rates: Rates) -> Cell:
    """Return the memory of all GPUs together."""
    if rates.unified:
        return Cell("the same: one pool")
    gpus = [gpu for gpu in rates.gpus if gpu.memory_total_bytes]
    if not gpus:
        return Cell("no GPU answers", "bad") if rates.gpus_silent else Cell("no GPU", "dim")
    used_bytes = sum(gpu.memory_used_bytes or 0 for gpu in gpus)
    return build_memory_cell(used_bytes, sum(gpu.memory_total_bytes or 0 for gpu in gpus))


def _build_ray_cell(ray: RaySample | None) -> Cell:
    if ray is None:
        return EMPTY_CELL
    if not ray.alive:
        return Cell(f"{ray.role}, gone", "bad")
    slots = f", {ray.taken:g} of {ray.slots:g}" if ray.slots is not None and ray.taken is not None else ""
    return Cell(f"{ray.role}{slots}", "good")


def _list_troubles(statuses: Mapping[str, HostStatus]) -> Iterator[Row]:
    """Yield a row for everything that is wrong on a host."""
    for host, status in statuses.items():
        name, rates = Cell(make_printable(host), "bad"), status.rates
        if status.problem:
            text = f"{status.problem.what}: {status.problem.cause}; {status.problem.fix}"
            yield (name, Cell(make_printable(text), "bad"))
        for text in rates.slow if rates else ():
            yield (name, Cell(make_printable(text), "warn"))
        if rates and rates.gpus_silent:
            yield (name, Cell(make_printable(rates.gpus_silent), "bad"))
        for engine in rates.engines if rates else ():
            if engine.silent:
                yield (name, Cell(make_printable(f"{engine.model}: {engine.silent}"), "warn"))
        if rates and rates.ray and not rates.ray.alive:
            yield (name, Cell("its Ray is gone: medley status says more", "bad"))


class ShortenedText(Value):
    """A text on one line that keeps beginning and end if it is too long, because names differ at the end."""

    text: str
    style: str = ""

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, max(1, cell_len(self.text))).with_maximum(options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text, width = self.text, options.max_width
        if cell_len(text) > width > _MIN_NAME_WIDTH:
            half = (width - 1) // 2
            end = text[-half:] if cell_len(text[-half:]) <= half else ""
            text = f"{set_cell_size(text, width - 1 - cell_len(end))}…{end}"
        yield Text(text, self.style, no_wrap=True, overflow="crop", end="")


class Screen(Value):
    """A title and the time above the tables, as one live screen."""

    title: str
    time: str
    tables: tuple[Table, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        head = RichTable.grid(padding=(0, _COLUMN_GAP, 0, 0), pad_edge=False, expand=True)
        head.add_column(ratio=1)
        head.add_column(justify="right", no_wrap=True)
        head.add_row(ShortenedText(self.title, "bold"), Text(self.time, "dim"))
        height = options.height or console.height
        body = draw_lines(self.tables, console, options, height - 2)
        lines = [*_render(head, console, options), [], *body]
        for line in lines[:height]:
            yield from line
            yield Segment.line()


def format_plain(tables: Sequence[Table], width: int) -> str:
    """Return the whole tables as text without colors."""
    console = Console(file=io.StringIO(), width=width)
    lines = draw_lines(tables, console, console.options)
    return "\n".join("".join(segment.text for segment in line).rstrip() for line in lines)


def draw_lines(
    tables: Sequence[Table], console: Console, options: ConsoleOptions, height: int | None = None
) -> list[Line]:
    """Return the first lines of each table that the height has room for, and the number of hidden rows."""
    drawings = [_render(_draw_table(table, options.max_width), console, options) for table in tables]
    if height is None:
        heights = [len(drawing) for drawing in drawings]
    else:
        heights = _share_height(drawings, height, tables)
    lines: list[Line] = []
    for table, drawing, table_height in zip(tables, drawings, heights, strict=True):
        lines += [[], *drawing[:table_height]]
        if table_height < len(drawing):
            count = "" if table.columns[-1].wraps else f"{len(drawing) - table_height + 1} "
            lines[-1:] = _render(Text(f"… and {count}more {table.name}", "dim"), console, options)[:1]
    return lines[1:][:height]


def _render(drawing: RichTable | Text, console: Console, options: ConsoleOptions) -> list[Line]:
    return console.render_lines(drawing, options.update(height=None), pad=False)


def _draw_table(table: Table, width: int) -> RichTable:
    drawing = RichTable(box=None, padding=(0, _COLUMN_GAP, 0, 0), pad_edge=False, header_style="bold")
    indexes = _choose_columns(table, width)
    for index in indexes:
        column = table.columns[index]
        drawing.add_column(ShortenedText(column.title.upper()), justify="right" if column.right else "left")
    for row in table.rows:
        cells = ((Text if table.columns[index].wraps else ShortenedText, row[index]) for index in indexes)
        drawing.add_row(*(text_type(cell.text, _STYLES[cell.mood]) for text_type, cell in cells))
    return drawing


def _choose_columns(table: Table, width: int) -> list[int]:
    """Leave out columns, the highest rank first, until the others fit; rank 0 stays, with its texts cut."""
    widths = [
        max(map(cell_len, (column.title, *(row[index].text for row in table.rows))))
        for index, column in enumerate(table.columns)
    ]
    chosen = list(range(len(table.columns)))
    while sum(widths[index] for index in chosen) + _COLUMN_GAP * (len(chosen) - 1) > width:
        least_important = max(chosen, key=lambda index: (table.columns[index].rank, index))
        if not table.columns[least_important].rank:
            break
        chosen.remove(least_important)
    return chosen


def _share_height(drawings: Sequence[list[Line]], height: int, tables: Sequence[Table]) -> list[int]:
    """Give lines in turn to each table that needs more, to the urgent tables first."""
    heights = [min(2, len(drawing)) for drawing in drawings]
    free_lines = height - sum(heights) - (len(drawings) - 1)
    urgent = [index for index, table in enumerate(tables) if table.urgent]
    for indexes in (urgent, range(len(drawings))):
        while free_lines > 0 and (
            cut := [index for index in indexes if heights[index] < len(drawings[index])]
        ):
            for index in cut[:free_lines]:
                heights[index] += 1
            free_lines -= len(cut[:free_lines])
    return heights
