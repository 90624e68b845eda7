"""Retyped is a command line with something else in it: another word, a switch set or left out."""

from collections.abc import Iterable, Iterator, Sequence

_ENDS = "--"
"""What stands after it is another program's."""


def renamed(line: Sequence[str], old: str, new: str) -> tuple[str, ...]:
    """With another word, by itself or as a switch's value."""
    return tuple(_renamed(word, old, new) for word in line)


def switched(line: Sequence[str], name: str, value: str) -> tuple[str, ...]:
    """With this switch, and this value of it alone."""
    own, others = _halves(without(line, [name]))
    return (*own, name, value, *others)


def without(line: Sequence[str], names: Iterable[str]) -> tuple[str, ...]:
    """With none of these switches, each of which has a value."""
    own, others = _halves(line)
    return (*_kept(own, frozenset(names)), *others)


def _renamed(word: str, old: str, new: str) -> str:
    name, equals, value = word.partition("=")
    return (
        f"{name}={new}" if equals and name.startswith("--") and value == old else new if word == old else word
    )


def _halves(line: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    at = line.index(_ENDS) if _ENDS in line else len(line)
    return tuple(line[:at]), tuple(line[at:])


def _kept(own: Sequence[str], names: frozenset[str]) -> Iterator[str]:
    words = iter(own)
    for word in words:
        if word in names:
            next(words, None)
        elif word.partition("=")[0] not in names:
            yield word
