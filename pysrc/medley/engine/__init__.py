"""An engine serves a model over HTTP; each module here says how one of them is told to, and how it fails."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from medley.reasoned import Flag


@dataclass(frozen=True)
class Serving:
    """What an engine is asked to serve: where the weights are, under which name, at which address."""

    target: str
    name: str
    address: str = "127.0.0.1"
    port: int = 8000
    key: Path | None = None
    """The file of the key that requests must give."""


def chosen(ours: Iterable[Flag], theirs: tuple[str, ...]) -> Iterator[Flag]:
    """Our flags, less those that the user gives in any spelling: what is typed wins."""
    given = {word.partition("=")[0] for word in theirs}
    return (flag for flag in ours if not given.intersection(flag.names))
