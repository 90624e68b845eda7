"""Prepare: the engine environment of this host, built where need be, and what must be alike on all."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from medley import chosen, facts, tools, transcript
from medley.launch import BARE
from medley.part import Part, part
from medley.recognised import kind_of


def run(asked: Mapping[str, Any], note: Callable[[str], None]) -> Mapping[str, Any]:
    """`asked`: the host's `transcript`; of cluster.toml its `kind`, `env`, `image`, `slots`, the `engine`."""
    ours = prepared(asked, Told(note))
    return {"terms": ours.terms(), "slots": ours.slots}


def prepared(asked: Mapping[str, Any], watch: "Told") -> Part:
    found = facts.facts(transcript.parse(asked["transcript"]))
    kind = kind_of(found, asked["kind"])
    dry, engine = bool(asked.get("dry")), asked["engine"]
    image = None
    if asked["image"]:
        choice = chosen.wanted(asked["image"]).choice(kind, dry_run=dry, watch=watch)
        image = chosen.ready(choice, (found, kind), engine, dry_run=dry, watch=watch)
    prepare = tools.expected if dry else tools.ready
    tool = BARE if image else prepare(kind, asked["env"], engine=engine, joins=True, watch=watch)
    path = os.environ.get("PATH", "")
    return part(found, kind, tool, slots=asked["slots"], path=path, engine=engine, imaged=image)


class Told:
    """A watch whose stages and notes are told to who asked."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self._note(f"{name} …")
        yield

    def line(self, text: str) -> None: ...

    def note(self, text: str) -> None:
        self._note(text)
