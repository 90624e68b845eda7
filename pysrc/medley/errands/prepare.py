"""Prepare: the engine environment of this host, built where need be, and what must be alike on all."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from medley import facts, tools, transcript
from medley.part import Part, part
from medley.recognised import kind_of


def run(asked: Mapping[str, Any], note: Callable[[str], None]) -> Mapping[str, Any]:
    """`asked`: the host's `transcript`, and of cluster.toml its `kind`, `env`, `slots`, and the `engine`."""
    ours = prepared(asked, Told(note))
    there = ours.environment
    return {"terms": ours.terms(), "slots": ours.slots, "environment": str(getattr(there, "path", ""))}


def prepared(asked: Mapping[str, Any], watch: "Told") -> Part:
    found = facts.facts(transcript.parse(asked["transcript"]))
    kind = kind_of(found, asked["kind"])
    prepare = tools.expected if asked.get("dry") else tools.ready
    chosen = prepare(kind, asked["env"], engine=asked["engine"], watch=watch)
    path = os.environ.get("PATH", "")
    return part(found, kind, chosen, slots=asked["slots"], path=path, engine=asked["engine"])


class Told:
    """A watch whose stages and notes are told to who asked."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self.note = note

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self.note(f"{name} …")
        yield

    def line(self, text: str) -> None: ...
