"""Talking is asking a person at a terminal: a line, its default in brackets, until the answer makes sense."""

import sys
from collections.abc import Callable
from typing import TypeVar

from medley.problem import Problem

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
    raise Problem(f"{answer!r} is no answer", cause="it is yes or no", fix="y or n")
