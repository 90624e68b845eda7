"""A live screen is a terminal taken over while something is shown on it, and given back as it was."""

import os
import select
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # imported when it is shown, to keep `medley --help` fast
    from rich.text import Text

    from medley.monitor.screen import Line

_LOOK_EVERY_S = 0.25
"""How soon a key or another size of the window is seen."""
_STYLES = {"title": "bold", "good": "green", "warn": "yellow", "bad": "bold red", "dim": "dim"}
Lines = Callable[[int, int], "Sequence[Line]"]
"""What to show in so many columns and lines."""


def is_possible() -> bool:
    """Whether stdout is a terminal that knows how to move its cursor."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb").lower() not in {"dumb", "unknown"}


def show(lines: Lines) -> None:
    """Until q is typed."""
    from rich.live import Live
    from rich.text import Text

    from medley.cli import terminal

    console = terminal.console(sys.stdout)
    shown: object = None
    with _unseen_typing() as typed, Live(Text(), console=console, screen=True, auto_refresh=False) as live:
        while True:
            width, height = console.size
            now = (width, height, found := lines(width, height))
            if now != shown:
                live.update(_text(found), refresh=True)
                shown = now
            if b"q" in typed(_LOOK_EVERY_S).lower():
                return


def _text(lines: "Sequence[Line]") -> "Text":
    from rich.text import Text

    found = Text(no_wrap=True, overflow="crop")
    for at, line in enumerate(lines):
        found.append("\n" if at else "")
        for span in line:
            found.append(span.text, _STYLES.get(span.mood, ""))
    return found


@contextmanager
def _unseen_typing() -> Iterator[Callable[[float], bytes]]:
    """Keys come at once and are not shown; the function waits so long for some. Ctrl-C interrupts as ever."""
    if not sys.stdin.isatty():
        yield _none
        return
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    changed = termios.tcgetattr(keyboard)
    changed[3] &= ~(termios.ICANON | termios.ECHO)
    changed[6][termios.VSUSP] = b"\0"  # a shell would be shown in the middle of our screen
    termios.tcsetattr(keyboard, termios.TCSADRAIN, changed)
    try:
        yield lambda limit_s: _typed(keyboard, limit_s)
    finally:
        # What was typed to us is not for the shell.
        termios.tcsetattr(keyboard, termios.TCSAFLUSH, before)


def _typed(keyboard: int, limit_s: float) -> bytes:
    if not select.select([keyboard], [], [], limit_s)[0]:
        return b""
    return os.read(keyboard, 64) or b"q"  # the terminal is gone


def _none(limit_s: float) -> bytes:
    time.sleep(limit_s)
    return b""
