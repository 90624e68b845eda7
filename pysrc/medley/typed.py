"""Typed is a recipe as text: what to type on each host, and below it what that starts, to be pasted too."""

from collections.abc import Iterable, Iterator
from shlex import quote

from medley.command import Command
from medley.recipe import Step

_INDENT, WIDE = 3, 100


def typed(steps: Iterable[Step], wide: int = WIDE) -> Iterator[str]:
    for step in steps:
        yield f"on {step.host}: {step.typed}"
        if step.image:
            yield f"{' ' * _INDENT} # in a container of {step.image}"
        yield from _wrapped(step.starts.command, wide)


def _wrapped(command: Command, wide: int) -> Iterator[str]:
    """One variable or flag after the other, as many as a line holds."""
    line = " " * _INDENT
    for word in _words(command):
        if len(line) + len(word) > wide:
            yield f"{line} \\"
            line = " " * _INDENT
        line += f" {word}"
    yield line


def _words(command: Command) -> Iterator[str]:
    """Its parts as a shell reads them, a flag and its value together."""
    if command.unset:
        yield " ".join(("env", *(f"-u {name}" for name in command.unset)))
    yield from command.assignments()
    program, *rest = command.argv
    found = [quote(program)]
    for word in rest:
        if word.startswith("-"):
            yield " ".join(found)
            found = []
        found.append(quote(word))
    yield " ".join(found)
