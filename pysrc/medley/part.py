"""The part a host can take in a cluster: its environment, its Ray node, and what it must have in common."""

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medley import joining, membership, venv
from medley.facts import Facts
from medley.kind import Kind
from medley.launch import Tools
from medley.problem import Problem
from medley.ray import Node, Place
from medley.variables import Variable, of_toolkit
from medley.venv import Environment
from medley.wiring import Wiring


@dataclass(frozen=True)
class Part:
    tools: Tools
    """With Ray among its programs; not there yet, where nothing is to be started."""
    slots: int
    threads: int
    memory_bytes: int
    settings: tuple[Variable, ...]
    """The toolkit's variables, and PATH with its programs."""

    @property
    def environment(self) -> Environment:
        """The engine environment, which has been built, or is the user's own."""
        there = venv.at(self.tools.binary.parent)
        if there is None:
            raise AssertionError(self.tools.binary)  # tools.ready raises, or leaves a manifest
        if not (there.programs / "ray").exists():
            raise Problem(
                f"{there.path} cannot take part in a cluster",
                cause="it has no bin/ray",
                fix=f"{there.python} -m pip install ray, of the version that the other hosts have",
            )
        return there

    def node(self, wiring: Wiring) -> Node:
        return Node(wiring.end.address, self.slots, self.threads, self.memory_bytes)

    def terms(self) -> dict[str, Any]:
        versions = venv.versions(self.environment, ("ray", "vllm"))
        alike = {"ray": versions["ray"], "engine": versions["vllm"].partition("+")[0]}
        return joining.terms(self.environment.parts, alike, socket.gethostname())

    def place(self, token: Path) -> Place:
        return Place(self.tools.binary / "ray", membership.folder(), token)

    def on(self, wiring: Wiring) -> Iterator[Variable]:
        """What every process of Ray's on this host inherits, besides Ray's own."""
        yield from self.settings
        yield from wiring.variables


def part(facts: Facts, kind: Kind, tools: Tools, *, slots: int | None, path: str) -> Part:
    """The part of this host with these tools; `path` is the PATH we were started with."""
    return Part(
        tools=tools,
        slots=_slots(kind, facts, slots),
        threads=facts.cpu.threads,
        memory_bytes=facts.memory.total_bytes,
        settings=tuple(of_toolkit(tools.settings, tools.programs, path)),
    )


def _slots(kind: Kind, facts: Facts, asked: int | None) -> int:
    """One for each GPU; on a host without, one, or as many as it shall have."""
    if kind.host.device == "cpu":
        return asked or 1
    if asked and asked > len(facts.gpus):
        raise Problem(
            f"this host cannot have {asked} slots",
            cause=f"each is a GPU, and it has {len(facts.gpus)}",
            fix=f"--slots {len(facts.gpus)}, or leave it out",
        )
    return asked or len(facts.gpus)
