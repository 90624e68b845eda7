"""The part a host can take in a cluster: its environment, its Ray node, and what it must have in common."""

import socket
from dataclasses import dataclass
from typing import Any

from medley import joining, toolkit, tools, venv
from medley.command import Command
from medley.kind import Kind
from medley.ray import Node
from medley.recognised import recognised
from medley.variables import of_toolkit
from medley.venv import Environment
from medley.watch import Watch
from medley.wire import Wire, variables


@dataclass(frozen=True)
class Part:
    kind: Kind
    environment: Environment
    slots: int
    threads: int
    memory_bytes: int
    settings: dict[str, str]
    """The toolkit's variables, and PATH with its programs."""

    def node(self, wire: Wire) -> Node:
        return Node(wire.address, self.slots, self.threads, self.memory_bytes)

    def terms(self) -> dict[str, Any]:
        versions = venv.versions(self.environment, ("ray", "vllm"))
        alike = {"ray": versions["ray"], "engine": versions["vllm"].partition("+")[0]}
        return joining.terms(self.environment.parts, alike, socket.gethostname())

    def on(self, wire: Wire, command: Command) -> Command:
        """A command of Ray's with everything that its processes inherit on this host."""
        bound = {each.name: each.value for each in variables(wire)}
        return command.with_env({**self.settings, **bound})


def part(*, kind: str | None, path: str, watch: Watch) -> Part:
    """The part of this host, its environment built if need be; `path` is the PATH we were started with."""
    facts, found = recognised(kind)
    chain = toolkit.find(found.name, watch=watch)
    name = tools.environment(found, None)
    environment = venv.ready(name, chain, driver=found.host.driver, watch=watch)
    folders = (str(environment.programs), *(chain.path if chain else ()))
    settings = of_toolkit(chain.variables if chain else {}, folders, path)
    return Part(
        kind=found,
        environment=environment,
        slots=len(facts.gpus) or 1,
        threads=facts.cpu.threads,
        memory_bytes=facts.memory.total_bytes,
        settings={each.name: each.value for each in settings},
    )
