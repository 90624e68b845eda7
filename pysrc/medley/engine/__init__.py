"""An engine serves a model over HTTP; each module here says how one of them is told to, and how it fails."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Flag:
    """A flag we give an engine, all its spellings first, and why."""

    names: tuple[str, ...]
    value: str | None
    why: str

    def argv(self) -> tuple[str, ...]:
        return (self.names[0],) if self.value is None else (self.names[0], self.value)


@dataclass(frozen=True)
class Serving:
    """What an engine is asked to serve: where the weights are, under which name, at which address."""

    target: str
    name: str
    address: str
    port: int


def chosen(ours: Iterable[Flag], theirs: tuple[str, ...]) -> Iterator[Flag]:
    """Our flags, less those that the user gives in any spelling: what is typed wins."""
    given = {word.partition("=")[0] for word in theirs}
    return (flag for flag in ours if not given.intersection(flag.names))
