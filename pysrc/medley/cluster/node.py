"""Describe this host as a node of a cluster: tools, slots, memory and the environment of its Ray."""

import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from medley import storage
from medley.cluster import membership, ray
from medley.cluster.membership import Membership
from medley.cluster.ray import Node
from medley.command import AnnotatedCommand, Flag, Variable, override_variables
from medley.engine import build_stacks_variable
from medley.engine.launch import ENGINES
from medley.environment import container_image, engine_source, virtualenv
from medley.environment.container_image import ContainerEnvironment
from medley.environment.tools import Tools
from medley.environment.virtualenv import Environment
from medley.errors import Problem
from medley.host.facts import Facts
from medley.host.kind import Kind
from medley.network.fabric.per_host import HostNetwork
from medley.network.fabric.types import Endpoint
from medley.schema import (
    DEFAULT_ENGINE,
    EngineName,
)


@dataclass(frozen=True)
class NodeSpec:
    tools: Tools
    """With Ray among its programs; may not exist yet in a dry run."""
    slots: int
    threads: int
    memory_bytes: int
    settings: tuple[Variable, ...]
    engine: EngineName = DEFAULT_ENGINE
    imaged: ContainerEnvironment | None = None
    table: Mapping[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> Environment | ContainerEnvironment:
        if self.imaged:
            container_image.require_ray(self.imaged)
            return self.imaged
        there = environment(self.tools)
        if not storage.exists(there.programs / "ray"):
            raise Problem(
                f"{there.path} cannot join a cluster",
                cause="it has no bin/ray",
                fix=f"{there.python} -m pip install ray==VERSION  # the version of the other hosts",
            )
        return there

    def head(self, wiring: HostNetwork, token: Path, *, dashboard: bool = False) -> AnnotatedCommand:
        node, more = self._node(wiring, token), self._variables(wiring)
        return ray.head(node, dashboard=dashboard, more=more)

    def worker(self, wiring: HostNetwork, token: Path, head: str) -> AnnotatedCommand:
        """Return the `ray start` that joins the head at HOST:PORT."""
        return ray.worker(self._node(wiring, token), to=head, more=self._variables(wiring))

    def _node(self, wiring: HostNetwork, token: Path) -> Node:
        return Node(
            wiring.endpoint.address,
            self.slots,
            self.threads,
            self.memory_bytes,
            program=self.tools.binary / "ray",
            temporary=membership.folder(),
            token=token,
        )

    def _variables(self, wiring: HostNetwork) -> Iterator[Variable]:
        ours = [*self.settings, *wiring.variables]
        if (
            self.imaged and build_stacks_variable().name not in self.imaged.spec.image.names
        ) or self.tools.binary.parts:
            ours.append(build_stacks_variable())
        ours += ENGINES[self.engine].list_node_variables(wiring.endpoint.address)
        yield from override_variables(ours, self.table)

    @property
    def nccl(self) -> tuple[int, ...]:
        own = self.tools.nccl
        return own.version if own else self.environment.nccl or engine_source.find_oldest_nccl(self.engine)

    def terms(self) -> dict[str, Any]:
        return terms(self.environment)

    def started(self, start: AnnotatedCommand) -> AnnotatedCommand:
        """Return `ray start` as run here; in a container it must stay in the foreground."""
        if not self.imaged:
            return start
        inner = _blocking(start, "the container ends when Ray does")
        return self.imaged.wrap_launch(inner, container_image.RAY_ROLE, detached=True)

    def kept(self, start: AnnotatedCommand) -> AnnotatedCommand:
        """Return `ray start` as a unit runs it, in the foreground."""
        plain = Flag(("--log-color",), "false", "the output goes to a file")
        inner = _blocking(start, "the supervisor notices when Ray ends", plain)
        return self.imaged.wrap_launch(inner, container_image.RAY_ROLE) if self.imaged else inner

    def membership(self, role: str, head: str, end: Endpoint, token: Path) -> Membership:
        there = self.environment
        place = "" if isinstance(there, ContainerEnvironment) else str(there.path)
        image, own = self.imaged.selection.table if self.imaged else None, self.tools.nccl
        return Membership(
            role,
            head,
            end.address,
            end.interface,
            place,
            str(token),
            image,
            dict(self.table),
            nccl=str(own.path) if own else None,
            nccl_written=own.user_path if own else None,
        )


def _blocking(start: AnnotatedCommand, why: str, *more: Flag) -> AnnotatedCommand:
    stays = Flag(("--block",), None, why)
    said = Variable("PYTHONUNBUFFERED", "1", "its output shows that Ray is up without a delay")
    return replace(start, flags=(*start.flags, stays, *more), variables=(*start.variables, said))


def terms(environment: Environment | ContainerEnvironment) -> dict[str, Any]:
    """Return the versions and parts that all hosts of a cluster must share."""
    found = environment.find_versions(("ray", *ENGINES))
    there = ((engine.TITLE, found[name]) for name, engine in ENGINES.items())
    engines = (f"{title} {version.partition('+')[0]}" for title, version in there if version)
    parts, engine = dict(environment.parts), " and ".join(engines)
    return {
        "host": socket.gethostname(),
        "parts": parts,
        "python": parts["python"],
        "ray": found["ray"],
        "engine": engine,
    }


def environment(tools: Tools) -> Environment:
    """Return the engine environment, built by medley or the user."""
    there = virtualenv.open_environment(tools.binary.parent)
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
    engine: EngineName = DEFAULT_ENGINE,
    imaged: ContainerEnvironment | None = None,
    table: Mapping[str, str] = MappingProxyType({}),
) -> NodeSpec:
    """Describe this host; `path` is the PATH of medley, `table` its variables of cluster.toml."""
    if kind.host.device != "cpu" and slots and slots > len(facts.gpus):
        raise Problem(
            f"this host cannot have {slots} slots",
            cause=f"each slot is a GPU, and it has {len(facts.gpus)}",
            fix=f"leave --slots out, or: --slots {len(facts.gpus)}",
        )
    return NodeSpec(
        tools=tools,
        slots=slots or (1 if kind.host.device == "cpu" else len(facts.gpus)),
        threads=facts.cpu.threads,
        memory_bytes=facts.memory.total_bytes,
        settings=tuple(tools.list_variables(path)),
        engine=engine,
        imaged=imaged,
        table=table,
    )
