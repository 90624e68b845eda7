"""Describe this host as a node of a cluster: tools, slots, memory and the environment of its Ray."""

import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import field

from medley import storage
from medley.cluster import membership, ray
from medley.cluster.membership import Membership
from medley.cluster.ray import Node
from medley.command import AnnotatedCommand, Flag, Variable, override_variables
from medley.engine.launch import ENGINES
from medley.engine.shared_flags import build_stacks_variable
from medley.environment import container_image, engine_source, virtualenv
from medley.environment.container_image import ContainerEnvironment
from medley.environment.tools import Tools
from medley.environment.virtualenv import Environment
from medley.errors import Problem
from medley.host.facts import Facts
from medley.host.kind import Kind
from medley.network.fabric.choice import Endpoint
from medley.network.fabric.per_host import HostNetwork
from medley.schema import (
    DEFAULT_ENGINE,
    EngineName,
)
from medley.values import Value


class NodeSpec(Value):
    """A host as a node of a cluster: its engine's tools, slots, memory and variables."""

    tools: Tools
    """The tools of the engine environment, Ray among them; it may not exist yet in a dry run."""
    slots: int
    threads: int
    memory_bytes: int
    tool_variables: tuple[Variable, ...]
    engine: EngineName = DEFAULT_ENGINE
    container_environment: ContainerEnvironment | None = None
    user_variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> Environment | ContainerEnvironment:
        if self.container_environment:
            container_image.require_ray(self.container_environment)
            return self.container_environment
        virtual_environment = find_environment(self.tools)
        if not storage.exists(virtual_environment.programs / "ray"):
            raise Problem(
                f"{virtual_environment.path} cannot join a cluster",
                cause="it has no bin/ray",
                fix=f"{virtual_environment.python} -m pip install ray==VERSION  "
                "# the version of the other hosts",
            )
        return virtual_environment

    def build_head_command(
        self, host_network: HostNetwork, token: Path, *, dashboard: bool = False
    ) -> AnnotatedCommand:
        node, node_variables = self._build_node(host_network, token), self._list_variables(host_network)
        return ray.build_head_command(node, dashboard=dashboard, extra_variables=node_variables)

    def build_worker_command(
        self, host_network: HostNetwork, token: Path, head_address: str
    ) -> AnnotatedCommand:
        """Return the `ray start` that joins the head at HOST:PORT."""
        return ray.build_worker_command(
            self._build_node(host_network, token),
            head_address=head_address,
            extra_variables=self._list_variables(host_network),
        )

    def _build_node(self, host_network: HostNetwork, token: Path) -> Node:
        return Node(
            host_network.endpoint.address,
            self.slots,
            self.threads,
            self.memory_bytes,
            program=self.tools.program_folder / "ray",
            temporary_folder=membership.get_ray_folder(),
            token_file=token,
        )

    def _list_variables(self, host_network: HostNetwork) -> Iterator[Variable]:
        node_variables = [*self.tool_variables, *host_network.variables]
        if (
            self.container_environment
            and build_stacks_variable().name not in self.container_environment.spec.image.names
        ) or self.tools.program_folder.parts:
            node_variables.append(build_stacks_variable())
        node_variables += ENGINES[self.engine].list_node_variables(host_network.endpoint.address)
        yield from override_variables(node_variables, self.user_variables)

    @property
    def nccl(self) -> tuple[int, ...]:
        user_nccl = self.tools.user_nccl
        return (
            user_nccl.version
            if user_nccl
            else self.environment.nccl_version or engine_source.find_oldest_nccl(self.engine)
        )

    def collect_terms(self) -> dict[str, Any]:
        return collect_terms(self.environment)

    def wrap_start(self, start: AnnotatedCommand) -> AnnotatedCommand:
        """Return `ray start` as this host runs it; in a container it stays in the foreground."""
        if not self.container_environment:
            return start
        blocking = _add_block_flag(start, "the container ends when Ray does")
        return self.container_environment.wrap_launch(blocking, container_image.RAY_ROLE, detached=True)

    def wrap_unit_start(self, start: AnnotatedCommand) -> AnnotatedCommand:
        """Return `ray start` as a unit runs it, in the foreground."""
        log_flag = Flag(("--log-color",), "false", "the output goes to a file")
        blocking = _add_block_flag(start, "the supervisor notices when Ray ends", log_flag)
        return (
            self.container_environment.wrap_launch(blocking, container_image.RAY_ROLE)
            if self.container_environment
            else blocking
        )

    def build_membership(self, role: str, head: str, endpoint: Endpoint, token: Path) -> Membership:
        environment = self.environment
        environment_path = "" if isinstance(environment, ContainerEnvironment) else str(environment.path)
        image, user_nccl = (
            self.container_environment.selection.table if self.container_environment else None,
            self.tools.user_nccl,
        )
        return Membership(
            role,
            head,
            endpoint.address,
            endpoint.interface,
            environment_path,
            str(token),
            image,
            dict(self.user_variables),
            nccl=str(user_nccl.path) if user_nccl else None,
            nccl_written=user_nccl.user_path if user_nccl else None,
        )


def _add_block_flag(start: AnnotatedCommand, why: str, *flags: Flag) -> AnnotatedCommand:
    block_flag = Flag(("--block",), None, why)
    unbuffered = Variable("PYTHONUNBUFFERED", "1", "its output shows that Ray is up without a delay")
    return start.replace(flags=(*start.flags, block_flag, *flags), variables=(*start.variables, unbuffered))


def collect_terms(environment: Environment | ContainerEnvironment) -> dict[str, Any]:
    """Return the versions and parts that all hosts of a cluster must share."""
    versions = environment.find_versions(("ray", *ENGINES))
    engine_versions = ((engine.TITLE, versions[name]) for name, engine in ENGINES.items())
    engines = (f"{title} {version.partition('+')[0]}" for title, version in engine_versions if version)
    parts, engine = dict(environment.parts), " and ".join(engines)
    return {
        "host": socket.gethostname(),
        "parts": parts,
        "python": parts["python"],
        "ray": versions["ray"],
        "engine": engine,
    }


def find_environment(tools: Tools) -> Environment:
    """Return the engine environment, built by medley or the user."""
    virtual_environment = virtualenv.open_environment(tools.program_folder.parent)
    if virtual_environment is None:
        raise AssertionError(tools.program_folder)  # tools.ready raises, or leaves a manifest
    return virtual_environment


def build_node_spec(
    facts: Facts,
    kind: Kind,
    tools: Tools,
    *,
    slots: int | None,
    path: str,
    engine: EngineName = DEFAULT_ENGINE,
    container_environment: ContainerEnvironment | None = None,
    user_variables: Mapping[str, str] = MappingProxyType({}),
) -> NodeSpec:
    """Return this host as a node; `path` is the PATH of medley, `user_variables` those of cluster.toml."""
    if kind.table.device != "cpu" and slots and slots > len(facts.gpus):
        raise Problem(
            f"this host cannot have {slots} slots",
            cause=f"each slot is a GPU, and it has {len(facts.gpus)}",
            fix=f"leave --slots out, or: --slots {len(facts.gpus)}",
        )
    return NodeSpec(
        tools=tools,
        slots=slots or (1 if kind.table.device == "cpu" else len(facts.gpus)),
        threads=facts.cpu.threads,
        memory_bytes=facts.memory.total_bytes,
        tool_variables=tuple(tools.list_variables(path)),
        engine=engine,
        container_environment=container_environment,
        user_variables=user_variables,
    )
