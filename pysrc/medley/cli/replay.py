"""The hosts a verb is about: those whose transcripts --from names, or else this one."""

import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:  # imported when a verb runs, to keep `medley --help` fast
    from collections.abc import Iterable, Iterator

    from medley.facts import Facts
    from medley.site import Site
    from medley.transcript import Transcript

T = TypeVar("T")


def site(files: "Iterable[str]", imagined: str | None = None, kind: str | None = None) -> "Site":
    """The hosts of these transcripts, or of `spark:2`, or this one; `kind` is one on the user's word."""
    from medley import measured
    from medley.imagined import imagined as hosts_of
    from medley.recognised import kind_of
    from medley.site import Site

    files = tuple(files)
    hosts = by_host(files) if imagined is None else hosts_of(imagined)
    known = measured.read() if imagined is None and not files else measured.NOTHING
    found = {name: (facts, kind_of(facts, kind)) for name, facts in hosts.items()}
    for name, (_, each) in found.items():
        if each.warning and imagined is None:
            where = f"{name}: " if len(found) > 1 else ""
            print(f"medley: {where}{each.warning}", file=sys.stderr)
    return Site(found, measured=known)


def found(files: "Iterable[str]") -> "Iterator[tuple[str, Facts]]":
    """Each file's facts, by its name; with no file, this host's."""
    from medley import facts
    from medley.recognised import answers

    files = tuple(files)
    if not files:
        yield platform.node(), facts.facts(answers())
    for file in files:
        yield file, facts.facts(answers(file))


def answers_by_host(files: "Iterable[str]") -> "dict[str, Transcript]":
    """What the hosts of these transcripts answered, each called after its file."""
    from medley.recognised import answers

    return _named((file, answers(file)) for file in files)


def by_host(files: "Iterable[str]") -> "dict[str, Facts]":
    """The same by host: each is called after its file, with a number where two would be called alike."""
    files = tuple(files)
    return _named(found(files)) if files else dict(found(()))


def _named(found: "Iterable[tuple[str, T]]") -> "dict[str, T]":
    named: dict[str, T] = {}
    for file, what in found:
        name = first = Path(file).stem
        number = 1
        while name in named:
            number += 1
            name = f"{first}-{number}"
        named[name] = what
    return named
