"""The part a host can take in a cluster: its environment, its Ray node, and what it must have in common."""

import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from medley import imaged, joining, membership, venv
from medley.engines import ENGINES
from medley.fabric import End
from medley.facts import Facts
from medley.imaged import Imaged
from medley.kind import Kind
from medley.launch import Tools
from medley.membership import Membership
from medley.problem import Problem
from medley.ray import Node, Place
from medley.reasoned import Flag, Reasoned
from medley.tables import Engine
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
    engine: Engine = "vllm"
    imaged: Imaged | None = None
    """What it runs out of instead."""

    @property
    def environment(self) -> Environment | Imaged:
        """The engine environment, or the image, with Ray in it."""
        if self.imaged:
            imaged.require_ray(self.imaged)
            return self.imaged
        there = environment(self.tools)
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
        return terms(self.environment)

    def started(self, start: Reasoned) -> Reasoned:
        """`ray start` as it is run here: in a container it has to stay."""
        if not self.imaged:
            return start
        stays = Flag(("--block",), None, "the container ends when Ray does")
        said = Variable("PYTHONUNBUFFERED", "1", "so that it is heard when Ray is up")
        inner = replace(start, flags=(*start.flags, stays), variables=(*start.variables, said))
        return self.imaged.contained(inner, imaged.RAY, detached=True)

    def kept(self, start: Reasoned) -> Reasoned:
        """`ray start` as a unit runs it: it stays as long as Ray does."""
        stays = Flag(("--block",), None, "who keeps it sees when it ends")
        plain = Flag(("--log-color",), "false", "it goes to a file")
        said = Variable("PYTHONUNBUFFERED", "1", "so that it is heard when Ray is up")
        inner = replace(start, flags=(*start.flags, stays, plain), variables=(*start.variables, said))
        return self.imaged.contained(inner, imaged.RAY) if self.imaged else inner

    def membership(self, role: str, head: str, end: End, token: Path) -> Membership:
        """As it is noted while it lasts."""
        there = self.environment
        place = "" if isinstance(there, Imaged) else str(there.path)
        image = self.imaged.choice.table if self.imaged else None
        return Membership(role, head, end.address, end.interface, place, str(token), image)

    def place(self, token: Path) -> Place:
        return Place(self.tools.binary / "ray", membership.folder(), token)

    def on(self, wiring: Wiring) -> Iterator[Variable]:
        """What every process of Ray's on this host inherits, besides Ray's own."""
        yield from self.settings
        yield from wiring.variables
        yield from self.named(wiring.end.address)

    def named(self, address: str) -> Iterator[Variable]:
        """How its engine learns this host's own address, where that is not what all learn it by."""
        if self.engine == "sglang":
            yield Variable("SGLANG_HOST_IP", address, "ranks find each other at the address that Ray knows")


def terms(environment: Environment | Imaged) -> dict[str, Any]:
    """What two hosts must have in common, as this one has it."""
    names = ("ray", *ENGINES)
    versions = (
        environment.versions(names)
        if isinstance(environment, Imaged)
        else venv.versions(environment.path, names)
    )
    engines = [
        f"{engine.TITLE} {versions[name].partition('+')[0]}"
        for name, engine in ENGINES.items()
        if versions[name]
    ]
    alike = {"ray": versions["ray"], "engine": " and ".join(engines)}
    return joining.terms(environment.parts, alike, socket.gethostname())


def environment(tools: Tools) -> Environment:
    """The engine environment, which has been built, or is the user's own."""
    there = venv.at(tools.binary.parent)
    if there is None:
        raise AssertionError(tools.binary)  # tools.ready raises, or leaves a manifest
    return there


def part(
    facts: Facts,
    kind: Kind,
    tools: Tools,
    *,
    slots: int | None,
    path: str,
    engine: Engine = "vllm",
    imaged: Imaged | None = None,
) -> Part:
    """The part of this host with these tools; `path` is the PATH we were started with."""
    return Part(
        tools=tools,
        slots=_slots(kind, facts, slots),
        threads=facts.cpu.threads,
        memory_bytes=facts.memory.total_bytes,
        settings=tuple(of_toolkit(tools.settings, tools.programs, path)),
        engine=engine,
        imaged=imaged,
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
