"""Print commands with their reasons, JSON, tables and Problems; wrap and color text for a terminal.

Piped or written to a file, text stays as it is: no color, and as wide as it must be.
"""

import json
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from medley import config, storage
from medley.cli.progress import start_progress
from medley.cli.terminal import create_console
from medley.command import Command, quote_path
from medley.errors import Problem, describe_error, format_field
from medley.progress import Output
from medley.unusable_file import UnusableFile

if TYPE_CHECKING:
    from medley.serving.typed_commands import LaunchStep


def print_result(table: object, lines: Iterable[str], *, as_json: bool) -> None:
    """Print the result of a verb, as one JSON value or as lines; the lines are not computed for JSON."""
    for line in [json.dumps(table)] if as_json else map(config.resolve_pages, lines):
        print(line, flush=True)


def print_command(command: Command, why: Iterable[tuple[str, str]], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(build_command_table(command, why)))
        return
    for what, reason in why:
        print(f"medley: {what}: {reason}", file=sys.stderr)
    print(command)


def build_command_table(command: Command, why: Iterable[tuple[str, str]]) -> dict[str, Any]:
    return {
        "command": str(command),
        "argv": command.argv,
        "env": command.env,
        "unset": command.unset,
        "secrets": command.secrets,
        "why": [{"what": what, "why": reason} for what, reason in why],
    }


def print_steps(steps: "Iterable[LaunchStep]", *, as_json: bool) -> None:
    """Print the command to type on each host, and the command that it starts there."""
    if as_json:
        print(json.dumps([build_step_table(step) for step in steps]))
        return
    for step in steps:
        for reason in step.why:
            print(f"medley: plan: {reason}", file=sys.stderr)
        for what, reason in step.started_process.list_reasons():
            print(f"medley: {step.host}: {what}: {reason}", file=sys.stderr)
        print(f"on {step.host}: {step.shell_text}", file=sys.stderr)
        if step.image:
            print(f"medley: {step.host}: in a container of {step.image}", file=sys.stderr)
        print(step.started_process.command)


def build_step_table(step: "LaunchStep") -> dict[str, Any]:
    why = (*(("plan", reason) for reason in step.why), *step.started_process.list_reasons())
    return {
        "host": step.host,
        "type": step.shell_text,
        "image": step.image,
        **build_command_table(step.started_process.command, why),
    }


def build_dry_run_problem(verb: str, switch: str) -> Problem:
    return Problem(
        f"{switch} names other hosts, so nothing can be started here",
        cause="it goes with --dry-run alone",
        fix=f"medley {verb} --dry-run {switch}",
    )


def create_output() -> Output:
    """Return the output for a launch that a verb starts."""
    return Output(
        start_progress(), say=print_message, detail=print_message, out=print_line, error=_print_error
    )


def print_message(text: object) -> None:
    """Print a message of medley's own on stderr; a Problem in color on a terminal."""
    parts = format_problem(text, "medley: ") if isinstance(text, Problem) else [f"medley: {text}"]
    _print_error(config.resolve_pages("\n".join(parts)))


def format_problem(problem: Problem, lead: str = "", stream: TextIO | None = None) -> Iterator[str]:
    """Yield problem, cause and fix, for stderr by default; the fix stays whole, to be pasted."""
    stream = stream or sys.stderr
    yield paint(fit(f"{lead}{problem.what}", stream), "bold red", stream)
    yield paint(fit(format_field("cause", problem.cause), stream), "dim", stream)
    yield paint(format_field("fix", problem.fix), "green", stream)


def print_line(text: str) -> None:
    """Print in one write, also with PYTHONUNBUFFERED: both streams may be one pipe."""
    print(f"{text}\n", end="", flush=True)


def _print_error(text: str) -> None:
    """Print a text on stderr after what is on stdout already, because both streams may be one pipe."""
    if sys.stdout:
        with suppress(BrokenPipeError):
            sys.stdout.flush()
    print(f"{text}\n", end="", file=sys.stderr, flush=True)


_MIN_COLUMNS = 40
_DEFAULT_COLUMNS = 80
_BACKSLASH_COLUMNS = 3
_LABEL_PATTERN = re.compile(r"\s*(?:[\w-]+: +)?")
_COLUMN_PATTERN = re.compile(r"\S {2,}(?=\S)")
_MAX_COLUMN_START = 40
"""The last place where a column of a table begins, in characters."""
_NUMBER_PATTERN = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[+-]\d+)?(?: ?[A-Za-zµ%/]+)?|-|")
_FIX_PATTERN = re.compile(r" *(?:fix\b|medley |sudo |[\w.-]+ \$ )|.*\\$")


_STYLES = {"up": "green", "current": "green", "failed": "red", "does not answer": "red", "gone": "red"}


def format_table(
    headers: Sequence[str], rows: Iterable[Sequence[str]], *, optional: Sequence[str] = ()
) -> list[str]:
    """Align rows for stdout below bold headers, numbers to the right; only a terminal limits the width.

    No word is broken, so that names can be copied. Where the words of a row do not fit side by side, columns
    that are `optional` are left out in this order. The terminal wraps lines that are too long even then.
    """
    table_rows = list(rows)
    max_columns = _read_columns(sys.stdout) if sys.stdout.isatty() else None
    columns = [[header, *(row[index] for row in table_rows)] for index, header in enumerate(headers)]
    for name in optional:
        if max_columns and _compute_min_width(columns) > max_columns:
            columns = [column for column in columns if column[0] != name]
    is_right_aligned = [
        any(cell[:1].isdigit() for cell in cells) and all(map(_NUMBER_PATTERN.fullmatch, cells))
        for _, *cells in columns
    ]
    widths = _compute_widths(columns, max_columns)
    lines = []
    for index, row in enumerate(zip(*columns, strict=True)):
        wrapped_cells = [_wrap_cell(cell, width) for cell, width in zip(row, widths, strict=True)]
        for parts in zip_longest(*wrapped_cells, fillvalue=""):
            cells = map(_align_cell, parts, widths, is_right_aligned)
            lines.append("  ".join(cells).rstrip() if index else paint("  ".join(cells).rstrip(), "bold"))
    return lines if any(headers) else lines[1:]


def _align_cell(cell: str, width: int, is_right_aligned: bool) -> str:  # noqa: FBT001 - one of a column's settings
    from rich.cells import cell_len

    gap = " " * (width - cell_len(cell))
    painted = paint(cell, style) if (style := _STYLES.get(cell)) else cell
    return f"{gap}{painted}" if is_right_aligned else f"{painted}{gap}"


def _compute_widths(columns: Sequence[Sequence[str]], max_columns: int | None) -> list[int]:
    """Return the width of each column; the widest wrap at words where all are wider than `max_columns`."""
    from rich.cells import cell_len

    widths = [max(map(cell_len, cells)) for cells in columns]
    min_widths = [_measure_longest_word(cells) for cells in columns]
    excess = sum(widths) + 2 * (len(widths) - 1) - max_columns if max_columns else 0
    while excess > 0 and (
        wrappable := [index for index, width in enumerate(widths) if width > min_widths[index]]
    ):
        widest = max(wrappable, key=lambda index: widths[index])
        widths[widest] -= 1
        excess -= 1
    return widths


def _wrap_cell(cell: str, width: int) -> list[str]:
    from rich.cells import cell_len

    if cell_len(cell) <= width:
        return [cell]
    return textwrap.wrap(cell, width, break_long_words=False, break_on_hyphens=False)


def _measure_longest_word(cells: Iterable[str]) -> int:
    from rich.cells import cell_len

    return max((cell_len(word) for cell in cells for word in cell.split()), default=0)


def _compute_min_width(columns: Sequence[Sequence[str]]) -> int:
    """Return the width at which no word is broken, with two spaces between columns."""
    return sum(map(_measure_longest_word, columns)) + 2 * (len(columns) - 1)


def paint(text: str, style: str, stream: TextIO | None = None) -> str:
    """Return the text, in rich's style if the stream, stdout by default, is a terminal."""
    stream = stream or sys.stdout
    if not (text and stream.isatty()):
        return text
    drawn = create_console(stream)
    with drawn.capture() as captured:
        drawn.print(text, style=style, soft_wrap=True, end="")
    return captured.get()


def fit(text: str, stream: TextIO | None = None, *, hanging_indent: int | None = None) -> str:
    """Wrap lines for this stream, stdout by default; a wrapped line goes on at column `hanging_indent`."""
    stream = stream or sys.stdout
    if not stream.isatty():
        return text
    columns = _read_columns(stream)
    return "\n".join(wrap_line(line, columns, hanging_indent) for line in text.split("\n"))


def compute_command_width(max_width: int) -> int:
    """Return the width of a command on stdout that is broken by backslashes, which come on top."""
    return (
        min(max_width, max(_MIN_COLUMNS, _read_columns(sys.stdout)) - _BACKSLASH_COLUMNS)
        if sys.stdout.isatty()
        else max_width
    )


def wrap_line(line: str, columns: int, hanging_indent: int | None = None) -> str:
    """Break a line before its words, but never a fix, because it is there to be pasted."""
    if len(line) <= columns or columns < _MIN_COLUMNS or _FIX_PATTERN.match(line):
        return line
    indent = " " * (_find_indent(line) if hanging_indent is None else hanging_indent)
    return textwrap.fill(
        line, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _read_columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or _DEFAULT_COLUMNS
    except OSError:
        return _DEFAULT_COLUMNS


def _find_indent(line: str) -> int:
    """Return the column where its words begin: after the columns of a table, a label or the indent."""
    columns = [match.end() for match in _COLUMN_PATTERN.finditer(line[:_MAX_COLUMN_START])]
    label = _LABEL_PATTERN.match(line)
    return max([*columns[-1:], label.end() if label else 0])


def save_text(name: str, text: str, example: str = "--svg plan.svg") -> None:
    """Write a file as a whole, and only over a file: as root, /dev/null too could be replaced."""
    cause, fix = None, f"name a file in a folder that you can write: {example}"
    try:
        path = Path(name).resolve()
        if path.exists() and not path.is_file():
            cause = "it is a folder or a device, not a file"
        elif not path.parent.is_dir():
            cause = f"there is no folder {path.parent}"
            fix = fix if path.parent.exists() else f"mkdir -p {quote_path(path.parent)}"
        else:
            storage.write_text(path, text)
    except UnusableFile as problem:
        cause = problem.cause
    except OSError as error:
        cause = describe_error(error)
    if cause:
        raise Problem(f"{name or 'a file without a name'} cannot be written", cause=cause, fix=fix)
