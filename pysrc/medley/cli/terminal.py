"""Print safely to a terminal, and ask a person there.

Names, logs, answers of models and words of other hosts may hold sequences that set a terminal's title, fill
its clipboard (OSC 52) or write over what stands there. All that is printed goes through here: colours stay,
and what is no text is shown as �. What draws for itself uses `console`, which does the same to its texts.
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

from medley.errors import Problem, in_words

if TYPE_CHECKING:
    from rich.console import Console

INSTEAD = "�"
_PIPE_COLUMNS = 10_000
# Colours and bold, then control characters, those that turn the writing round, and halves of pairs.
_COLOUR = r"\x1b\[[0-9;:]{0,40}m"
_ODD = re.compile(
    rf"(?P<kept>{_COLOUR}|\r(?=\n))|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def clean(text: str) -> str:
    return _ODD.sub(lambda found: found["kept"] or INSTEAD, text)


class Checked:
    """A stream whose disk may be full: a Problem, once, for stdout; on stderr nobody could read it."""

    def __init__(self, stream: TextIO, *, has_results: bool = True) -> None:
        self.own, self._has_results = stream, has_results

    def write(self, text: str) -> int:
        with self._explained():
            self.own.write(text)
        return len(text)

    def writelines(self, lines: Any) -> None:  # noqa: ANN401 - any iterable, as of a stream
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        with self._explained():
            self.own.flush()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            discard(self.own)
            if self._has_results:
                raise Problem(
                    "standard output cannot be written",
                    cause=in_words(error),
                    fix="make room on its disk, or write it to a file on another one",
                ) from error

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the stream has
        return getattr(self.own, name)


class Cleaned(Checked):
    """A stream whose every text is clean; all else is as it is of the stream itself."""

    def write(self, text: str) -> int:
        super().write(clean(text))
        return len(text)


def discard(stream: TextIO) -> None:
    """Let what the stream still holds, and all that comes, go nowhere."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def open_closed() -> None:
    """Open what the caller closed (>&-), so that no file or socket of ours gets the number of a stream."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null > number:  # a file has its number already
                os.close(null)
            setattr(sys, name, open(os.devnull, "w" if number else "r", encoding="utf-8"))  # noqa: SIM115, PTH123 - it stays open, as a stream


def install() -> None:
    """For all that is printed from here on; a character that the stream's encoding lacks becomes `?`."""
    open_closed()
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
        if not isinstance(stream, Cleaned):
            setattr(sys, name, Cleaned(stream, has_results=name == "stdout"))


def own(stream: TextIO) -> TextIO:
    """The stream itself, for sequences of ours."""
    return stream.own if isinstance(stream, Cleaned) else stream


def clear() -> None:
    """Begin again at the top of an empty screen."""
    print("\x1b[H\x1b[2J", end="", file=own(sys.stdout))


def console(stream: TextIO) -> "Console":
    """Rich's console on this stream: no text is read as markup, and a pipe has no width to fit."""
    from rich.console import Console
    from rich.segment import Segment

    class Clean(Console):
        def _render_buffer(self, buffer: Any) -> str:  # noqa: ANN401 - rich's own
            """Where rich makes one text of all: control codes of its own are marked as such there."""
            return super()._render_buffer(
                each if each.control else Segment(clean(each.text), each.style) for each in buffer
            )

    width = None if stream.isatty() else _PIPE_COLUMNS
    file: Any = Checked(own(stream), has_results=stream is sys.stdout)
    return Clean(file=file, width=width, highlight=False, markup=False, emoji=False)


@contextmanager
def outlive() -> Iterator[None]:
    """Go on without the terminal where it is closed while the body runs (SIGHUP)."""
    shown = [each for each in range(3) if os.isatty(each)]

    def leave(_number: int, _frame: object) -> None:
        null = os.open(os.devnull, os.O_RDWR)
        for each in shown:
            os.dup2(null, each)
        os.close(null)

    before = signal.signal(signal.SIGHUP, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


T = TypeVar("T")
_YES, _NO = {"y", "yes"}, {"n", "no"}


def is_possible() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def asked(question: str, default: str, reading: Callable[[str], T]) -> T:
    """`reading` makes of an answer what it means, or a Problem, which is said; then it is asked again."""
    while True:
        answer = input(f"{question} [{default}] ").strip() or default
        try:
            return reading(answer)
        except Problem as problem:
            print(f"  {problem.what}: {problem.cause}")


def agrees(question: str, *, default: bool) -> bool:
    return asked(question, "yes" if default else "no", _yes)


def _yes(answer: str) -> bool:
    if answer.lower() in _YES | _NO:
        return answer.lower() in _YES
    raise Problem(f"{answer!r} is not an answer", cause="it is yes or no", fix="y or n")


def require_root(what: str) -> None:
    if os.geteuid() != 0:
        # sudo has a PATH of its own.
        line = shlex.join(["sudo", os.path.abspath(sys.argv[0]), *sys.argv[1:]])  # noqa: PTH100 - keeps links
        raise Problem(f"only root can {what}", cause=f"you are user {os.geteuid()}", fix=line)
