"""Build the command of an engine process and the plan of each host."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from msgspec import field

from medley.command import (
    AnnotatedCommand,
    Command,
    Variable,
    keep_last_values,
    override_variables,
)
from medley.engine import sglang, vllm
from medley.engine.interface import Engine
from medley.engine.server_spec import ServerSpec
from medley.engine.shared_flags import (
    FlagReason,
    build_stacks_variable,
    drop_overridden_flags,
    list_common_variables,
    list_table_variables,
)
from medley.environment import container, payload
from medley.environment.container import Mount
from medley.environment.container_image import RAY_ROLE, ContainerEnvironment, name_serving_role
from medley.environment.payload.api_answers import MEDIA_HOSTS, NO_REASONING
from medley.environment.tools import NO_TOOLS, Tools
from medley.host_schema import HostTable
from medley.model.extra_files import NO_EXTRAS, ModelExtras
from medley.model.resolve import Weights
from medley.planner import Layout, group_by_host, list_devices, list_pipelines
from medley.planner.placement import PlacementOptions
from medley.planner.plan import NodeProcess, Plan
from medley.schema import EngineName
from medley.values import Value

_SERVER_SCRIPT = payload.FOLDER / "engine_server.py"
ENGINES: Mapping[EngineName, Engine] = {"vllm": vllm, "sglang": sglang}
_ENGINE_KEY_VARIABLES = ("VLLM_API_KEY",)
RANKS_PORT = 24_020
"""The port of the ranks' rendezvous on the first host, or a later port if it is taken; in Ray's range."""


class LaunchOrder(Value):
    """The part of a job that the engine's modules read: weights, server, placement and flags."""

    weights: Weights
    serving: ServerSpec
    placement: PlacementOptions = field(default_factory=PlacementOptions)
    engine_flags: tuple[str, ...] = ()
    model_extras: ModelExtras = NO_EXTRAS
    user_command: tuple[str, ...] = ()
    """The user's command, from `medley` on."""

    @property
    def engine(self) -> EngineName:
        return self.placement.engine

    @property
    def table_file(self) -> str | None:
        """The file of the model's table, if it adds flags for this engine."""
        model = self.weights.model
        return f"models/{self.weights.name}.toml" if model and model.args.get(self.placement.engine) else None


class Launch(Value):
    """The process that a host starts, with its plan and files."""

    plan: Plan
    annotated_command: AnnotatedCommand
    model_extras: ModelExtras = NO_EXTRAS
    files: Mapping[str, str] = field(default_factory=dict)
    """The text of each file that the process reads, by path."""
    file_arguments: tuple[tuple[str, str], ...] = ()
    """The arguments in these files, and their reasons."""

    @property
    def command(self) -> Command:
        return self.annotated_command.command

    def list_reasons(self) -> list[tuple[str, str]]:
        """Return titles with reasons: those of plan, flags, variables, then arguments in files."""
        return [
            *(("plan", reason) for reason in self.plan.why),
            *self.annotated_command.list_reasons(),
            *self.file_arguments,
        ]


class LaunchBuilder(Protocol):
    """The interface of `build_launch` and `Script.build_launch`."""

    def __call__(
        self,
        order: LaunchOrder,
        plan: Plan,
        table: HostTable,
        /,
        *,
        tools: Tools,
        environ: Mapping[str, str],
        cluster_variables: Iterable[Variable],
    ) -> Launch:
        """Return what one host starts; `cluster_variables`: the variables for ranks on several hosts."""


def list_launch_variables(
    order: LaunchOrder,
    plan: Plan,
    table: HostTable,
    tools: Tools,
    environ: Mapping[str, str],
    *,
    cluster_variables: Iterable[Variable] = (),
    engine_plan: Plan | None = None,
    script_variables: Iterable[Variable] = (),
) -> tuple[Variable, ...]:
    """Return a process's variables: table, toolchain, plan, cluster, engine, model extras, then a script's.

    `engine_plan`: the plan as the engine reads it, where it differs. Variables in cluster.toml win.
    """
    engine = ENGINES[order.engine]
    variables = (
        *list_table_variables(order.engine, plan, order.weights.model, environ),
        *tools.list_variables(environ.get("PATH", "")),
        *list_common_variables(plan, table, environ, is_local=order.weights.is_local),
        *cluster_variables,
        *engine.list_variables(order.serving, engine_plan or plan, table),
        *order.model_extras.list_variables(),
        *script_variables,
    )
    return override_variables(keep_last_values(variables), tools.host_variables)


def build_launch(
    order: LaunchOrder,
    plan: Plan,
    table: HostTable,
    *,
    tools: Tools = NO_TOOLS,
    environ: Mapping[str, str] = MappingProxyType({}),
    cluster_variables: Iterable[Variable] = (),
) -> Launch:
    """Return an engine's command on a host; `cluster_variables`: the variables for ranks on several hosts."""
    engine, weights, serving = ENGINES[order.engine], order.weights, order.serving
    launch_variables = list_launch_variables(
        order, plan, table, tools, environ, cluster_variables=cluster_variables
    )
    engine_flags = (
        *engine.list_flags(serving, plan, table, weights.model),
        *order.model_extras.list_flags(order.engine),
    )
    command = AnnotatedCommand(
        engine.build_argv(tools.program_folder, serving, plan),
        tuple(drop_overridden_flags(engine_flags, order.engine_flags)),
        launch_variables,
        order.engine_flags,
    )
    has_programs = bool(tools.program_folder.parts)
    if has_programs:
        command = command.replace(variables=keep_last_values((*command.variables, build_stacks_variable())))
    if serving.socket_folder:
        # With a key in the user's shell, vLLM would require it of medley's requests on the socket too.
        keys = tuple(name for name in _ENGINE_KEY_VARIABLES if name in environ)
        command = command.replace(unset=(*command.unset, *keys))
    if has_programs and serving.socket_folder and not (plan.node_process and plan.node_process.rank):
        command = serve_on_socket(command, serving, str(tools.program_folder / "python"))
    return Launch(plan, command, order.model_extras)


def run_in_container(
    environment: ContainerEnvironment, launch: Launch, serving: ServerSpec, *, over_ray: bool
) -> Launch:
    """Return the launch in a container of the image; `over_ray`: next to the container of this host's Ray."""
    target, ray_container = Path(serving.target), container.name_container(RAY_ROLE) if over_ray else None
    model = (Mount(target, "the model"),) if target.is_absolute() else ()
    sockets = (
        (Mount(serving.socket_folder, FlagReason.SOCKET, is_writable=True),) if serving.socket_folder else ()
    )
    mounts = (*environment.spec.mounts, *model, *sockets)
    spec = environment.spec.replace(pid_container=ray_container, mounts=mounts)
    command = launch.annotated_command
    if serving.socket_folder:
        command = serve_on_socket(command, serving, str(environment.python))
    if build_stacks_variable().name not in environment.spec.image.names:
        command = command.replace(variables=keep_last_values((*command.variables, build_stacks_variable())))
    container_command = environment.replace(spec=spec).wrap_launch(command, name_serving_role(serving.port))
    return launch.replace(annotated_command=container_command)


def plan_nodes(plan: Plan, layout: Layout, addresses: Mapping[str, str], port: int) -> dict[str, Plan]:
    """Return the plan of each host in the order of ranks; `port`: of the rendezvous on the first host."""
    plans, replicas_before = {}, 0
    hosts = group_by_host(list_devices(layout))
    for rank, (host, devices) in enumerate(hosts.items()):
        replicas = sum(stages[0].devices[0].host == host for stages in list_pipelines(layout))
        plans[host] = plan.replace(
            node_process=NodeProcess(len(hosts), rank, addresses[next(iter(hosts))], port, addresses[host]),
            gpus=tuple(device.index for device in devices if device.kind != "cpu"),
            replicas_here=replicas,
            replicas_before=replicas_before,
        )
        replicas_before += replicas
    return plans


def serve_on_socket(command: AnnotatedCommand, serving: ServerSpec, python: str) -> AnnotatedCommand:
    """Return the command with `payload/engine_server.py` before it, whose socket Caddy and medley use."""
    program, *arguments = (Path(command.words[0]).name, *command.words[1:])
    argv = command.words if program == "python" else (python, str(_SERVER_SCRIPT), program, *arguments)
    added_variables = [Variable("MEDLEY_SOCKET", str(serving.socket), FlagReason.SOCKET)]
    if hosts := os.environ.get(MEDIA_HOSTS):
        added_variables.append(Variable(MEDIA_HOSTS, hosts, "set by you: requests may name their media"))
    if serving.chat and serving.chat.has_no_reasoning_parser:
        why = "a request's thinking is left out: no parser reads it"
        added_variables.append(Variable(NO_REASONING, "1", why))
    return command.replace(words=argv, variables=keep_last_values((*command.variables, *added_variables)))
