"""Compare a Problem by its fields: a change of words breaks only the tests of words."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest

from medley.errors import Problem

_CAUSE, _FIX, _MORE, _WRAPPED = "  cause: ", "  fix:   ", " " * 9, " " * 8
_BEFORE, _AFTER = r"(?:^|(?<=[\s(]))", r"(?=$|\s+(?:[#(]|(?:or|and|then|lists|shows)\b)|[;,:)]+(?:\s|$))"


def problem_in(text: str | Iterable[str]) -> Problem:
    """Return the only Problem in text or lines that were printed."""
    found = problems_in(text)
    assert len(found) == 1, text
    return found[0]


def problems_in(text: str | Iterable[str]) -> list[Problem]:
    """Return every printed Problem; a line that a terminal wrapped in `what` is joined again."""
    lines = text.split("\n") if isinstance(text, str) else [line.rstrip("\n") for line in text]
    return [_at(lines, number) for number, line in enumerate(lines) if line.startswith(_CAUSE) and number]


def assert_problem(
    problem: Problem,
    *names: str,
    cause: str | Iterable[str] = (),
    fix: str | Iterable[str] = (),
    status: int = 1,
) -> None:
    """Fail unless `what` has these names, `cause` these facts, and `fix` exactly these whole commands."""
    shown = f"{problem!s}\n  exit status {problem.status}"
    assert [each for each in names if each not in problem.what] == [], shown
    assert [each for each in _several(cause) if each not in problem.cause] == [], shown
    assert [each for each in _several(fix) if not _is_command(each, problem.fix)] == [], shown
    assert problem.status == status, shown


@contextmanager
def raises_problem(
    *names: str, cause: str | Iterable[str] = (), fix: str | Iterable[str] = (), status: int = 1
) -> Iterator[pytest.ExceptionInfo[Problem]]:
    """Fail unless the block raises a Problem that `assert_problem` accepts."""
    with pytest.raises(Problem) as caught:
        yield caught
    assert_problem(caught.value, *names, cause=cause, fix=fix, status=status)


def _at(lines: list[str], cause: int) -> Problem:
    first = cause - 1
    while first and lines[first].startswith(_WRAPPED):
        first -= 1
    what = " ".join(
        [lines[first].removeprefix("medley: "), *(each.strip() for each in lines[first + 1 : cause])]
    )
    causes, after = _field(lines, cause)
    assert after < len(lines), lines
    assert lines[after].startswith(_FIX), lines[after]
    fixes, _ = _field(lines, after)
    return Problem(what, cause=causes, fix=fixes)


def _field(lines: list[str], first: int) -> tuple[str, int]:
    after = first + 1
    while after < len(lines) and lines[after].startswith(_MORE):
        after += 1
    return "\n".join(line[len(_MORE) :] for line in lines[first:after]), after


def _several(of: str | Iterable[str]) -> Iterable[str]:
    return of.splitlines() if isinstance(of, str) else of


def _is_command(command: str, fix: str) -> bool:
    return re.search(_BEFORE + re.escape(command) + _AFTER, fix, re.MULTILINE) is not None
