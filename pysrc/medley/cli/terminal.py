"""Print safely to a terminal, and ask a person there.

Names, logs, answers of models and words of other hosts may hold sequences that set a terminal's title, fill
its clipboard (OSC 52) or write over what stands there. All output passes through this module: it keeps
colours and replaces other control characters by �. Rich output uses `create_console`, which does the same.
"""

import io
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from medley.errors import Problem, describe_error

if TYPE_CHECKING:
    from rich.console import Console

REPLACEMENT = "�"
_PIPE_COLUMNS = 10_000
# Colours and bold of letters: no hidden text (8), and no background that hides it.
_STYLE = r"(?:0?[0-479]|2[1-57-9]|3[0-79]|9[0-7]|38;5;\d{1,3}|38;2(?:;\d{1,3}){3})"
_COLOR = rf"\x1b\[(?:{_STYLE}(?:;{_STYLE}){{0,9}})?m"
# Control characters, hidden line breaks, what turns the writing round, halves of pairs, and invisible tags.
_HARMFUL_CHARS = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
    r"\U000e0000-\U000e007f"
)
_CONTROL_CHARS_PATTERN = re.compile(rf"(?P<kept>{_COLOR}|\r(?=\n))|[{_HARMFUL_CHARS}]")


def clean_text(text: str) -> str:
    return _CONTROL_CHARS_PATTERN.sub(lambda match: match["kept"] or REPLACEMENT, text)


class CheckedStream:
    """A stream whose disk may be full: stdout raises a Problem, once; on stderr nobody could read it."""

    def __init__(self, stream: TextIO, *, has_results: bool = True) -> None:
        self.original, self._has_results = stream, has_results

    def write(self, text: str) -> int:
        with self._explain_errors():
            self.original.write(text)
        return len(text)

    def writelines(self, lines: Any) -> None:  # noqa: ANN401 - any iterable, as of a stream
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        with self._explain_errors():
            self.original.flush()

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            discard_output(self.original)
            if self._has_results:
                raise Problem(
                    "standard output cannot be written",
                    cause=describe_error(error),
                    fix="make room on its disk, or write it to a file on another one",
                ) from error

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - an attribute of any type
        return getattr(self.original, name)


class CleanStream(CheckedStream):
    """A stream that cleans every text it writes; its other attributes are the original stream's."""

    def write(self, text: str) -> int:
        super().write(clean_text(text))
        return len(text)


def discard_output(stream: TextIO) -> None:
    """Discard the text that the stream has buffered, and all later text."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def open_closed_streams() -> None:
    """Open the streams that the caller closed (>&-), so that no file or socket gets their numbers."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null > number:  # an open file already has this number
                os.close(null)
            setattr(sys, name, open(os.devnull, "w" if number else "r", encoding="utf-8"))  # noqa: SIM115, PTH123 - it stays open, as a stream


def install_streams() -> None:
    """Clean all later output; a character that the stream's encoding lacks becomes `?`."""
    open_closed_streams()
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
        if not isinstance(stream, CleanStream):
            setattr(sys, name, CleanStream(stream, has_results=name == "stdout"))


def get_original(stream: TextIO) -> TextIO:
    """Return the stream itself, for medley's own control sequences."""
    return stream.original if isinstance(stream, CleanStream) else stream


def clear_screen() -> None:
    """Clear the screen, and put the cursor at its top."""
    print("\x1b[H\x1b[2J", end="", file=get_original(sys.stdout))


def create_console(stream: TextIO) -> "Console":
    """Return Rich's console on this stream: no text is read as markup, and a pipe has no width to fit."""
    from rich.console import Console
    from rich.segment import Segment

    class CleanConsole(Console):
        def _render_buffer(self, buffer: Any) -> str:  # noqa: ANN401 - rich's own
            """Clean the texts before rich joins them; rich marks its own control codes."""
            return super()._render_buffer(
                segment if segment.control else Segment(clean_text(segment.text), segment.style)
                for segment in buffer
            )

    width = None if stream.isatty() else _PIPE_COLUMNS
    file: Any = CheckedStream(get_original(stream), has_results=stream is sys.stdout)
    return CleanConsole(file=file, width=width, highlight=False, markup=False, emoji=False)


@contextmanager
def survive_hangup() -> Iterator[None]:
    """Go on without the terminal if it is closed while the body runs (SIGHUP)."""
    terminal_numbers = [number for number in range(3) if os.isatty(number)]

    def close_terminal(_number: int, _frame: object) -> None:
        null = os.open(os.devnull, os.O_RDWR)
        for terminal_number in terminal_numbers:
            os.dup2(null, terminal_number)
        os.close(null)

    old_handler = signal.signal(signal.SIGHUP, close_terminal)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, old_handler)


T = TypeVar("T")
_YES, _NO = {"y", "yes"}, {"n", "no"}


def can_ask() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def ask(question: str, default: str, parse: Callable[[str], T]) -> T:
    """Return the value that `parse` makes of the answer; print its Problem, and ask again."""
    while True:
        answer = input(f"{question} [{default}] ").strip() or default
        try:
            return parse(answer)
        except Problem as problem:
            print(f"  {problem.what}: {problem.cause}")


def ask_yes_no(question: str, *, default: bool) -> bool:
    return ask(question, "yes" if default else "no", _parse_yes_no)


def _parse_yes_no(answer: str) -> bool:
    if answer.lower() in _YES | _NO:
        return answer.lower() in _YES
    raise Problem(f"{answer!r} is not an answer", cause="it is yes or no", fix="y or n")


def require_root(action: str) -> None:
    if os.geteuid() != 0:
        # sudo has a PATH of its own.
        command = shlex.join(["sudo", os.path.abspath(sys.argv[0]), *sys.argv[1:]])  # noqa: PTH100 - keeps links
        raise Problem(f"only root can {action}", cause=f"you are user {os.geteuid()}", fix=command)
