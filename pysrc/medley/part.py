"""The part a host can take in a cluster: its environment, its Ray node, and what it must have in common."""

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medley import joining, membership, toolkit, tools, venv
from medley.facts import Facts
from medley.kind import Kind
from medley.problem import Problem
from medley.ray import Node, Place
from medley.variables import Variable, of_toolkit
from medley.venv import Environment
from medley.watch import Watch
from medley.wiring import Wiring


@dataclass(frozen=True)
class Part:
    kind: Kind
    environment: Environment
    slots: int
    threads: int
    memory_bytes: int
    settings: tuple[Variable, ...]
    """The toolkit's variables, and PATH with its programs."""

    def node(self, wiring: Wiring) -> Node:
        return Node(wiring.end.address, self.slots, self.threads, self.memory_bytes)

    def terms(self) -> dict[str, Any]:
        versions = venv.versions(self.environment, ("ray", "vllm"))
        alike = {"ray": versions["ray"], "engine": versions["vllm"].partition("+")[0]}
        return joining.terms(self.environment.parts, alike, socket.gethostname())

    def place(self, token: Path) -> Place:
        return Place(self.environment.programs / "ray", membership.folder(), token)

    def on(self, wiring: Wiring) -> Iterator[Variable]:
        """What every process of Ray's on this host inherits, besides Ray's own."""
        yield from self.settings
        yield from wiring.variables


def part(facts: Facts, kind: Kind, *, slots: int | None, path: str, watch: Watch) -> Part:
    """The part of this host, its environment built if need be; `path` is the PATH we were started with."""
    chain = toolkit.find(kind.name, watch=watch)
    name = tools.environment(kind, None)
    environment = venv.ready(name, chain, driver=kind.host.driver, watch=watch)
    folders = (str(environment.programs), *(chain.path if chain else ()))
    settings = of_toolkit(chain.variables if chain else {}, folders, path)
    return Part(
        kind=kind,
        environment=environment,
        slots=_slots(kind, facts, slots),
        threads=facts.cpu.threads,
        memory_bytes=facts.memory.total_bytes,
        settings=tuple(settings),
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
