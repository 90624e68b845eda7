"""Build the command of an engine process, per-host plans, and the choice of launcher."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from medley.command import AnnotatedCommand, Command, Variable, merged, overridden
from medley.engine import (
    Engine,
    Serving,
    Why,
    chosen,
    serve_on_socket,
    sglang,
    stacks,
    table_variables,
    variables,
    vllm,
)
from medley.environment import container
from medley.environment.container import Mount
from medley.environment.container_image import RAY, ContainerEnvironment, role
from medley.environment.tools import BARE, Tools
from medley.errors import Problem
from medley.host_schema import HostTable
from medley.model.extra_files import NOTHING, ModelExtras
from medley.model.resolve import Weights
from medley.planner import Layout, by_host, devices_of, pipelines
from medley.planner.placement import PlacementOptions
from medley.planner.plan import Launcher, Nodes, Plan
from medley.schema import EngineName

ENGINES: Mapping[EngineName, Engine] = {"vllm": vllm, "sglang": sglang}
_ENGINE_KEYS = ("VLLM_API_KEY",)
RANKS_PORT = 24_020
"""The port of the ranks' rendezvous on the first host, or one after it; in Ray's range."""


@dataclass(frozen=True)
class Order:
    """The model to serve, and the user's options."""

    weights: Weights
    serving: Serving
    wanted: PlacementOptions = field(default_factory=PlacementOptions)
    extra: tuple[str, ...] = ()
    beside: ModelExtras = NOTHING
    typed: tuple[str, ...] = ()
    """The user's command, from `medley` on."""

    @property
    def table(self) -> str | None:
        """The file of flags that the model's table adds for this engine."""
        model = self.weights.model
        return f"models/{self.weights.name}.toml" if model and model.args.get(self.wanted.engine) else None


@dataclass(frozen=True)
class Launch:
    """One process to start, and the plan behind it."""

    plan: Plan
    reasoned: AnnotatedCommand
    beside: ModelExtras = NOTHING
    files: Mapping[str, str] = field(default_factory=dict)
    told: tuple[tuple[str, str], ...] = ()
    """The arguments in these files, and their reasons."""

    @property
    def command(self) -> Command:
        return self.reasoned.command

    def why(self) -> list[tuple[str, str]]:
        return [*(("plan", reason) for reason in self.plan.why), *self.reasoned.why(), *self.told]


def launch(
    order: Order,
    plan: Plan,
    host: HostTable,
    *,
    tools: Tools = BARE,
    environ: Mapping[str, str] = MappingProxyType({}),
    cluster: Iterable[Variable] = (),
) -> Launch:
    """Return an engine's command on a host; `cluster` are variables for ranks on several hosts."""
    engine, weights, serving = ENGINES[order.wanted.engine], order.weights, order.serving
    ours = merged(
        (
            *table_variables(order.wanted.engine, plan, weights.model, environ),
            *tools.variables(environ.get("PATH", "")),
            *variables(plan, host, environ, local=weights.local),
            *cluster,
            *engine.variables(serving, plan, host),
            *order.beside.variables(),
        )
    )
    ours = overridden(ours, tools.table)
    told = (*engine.flags(serving, plan, host, weights.model), *order.beside.flags(engine.PROGRAM))
    made = AnnotatedCommand(
        engine.words(tools.binary, serving, plan), tuple(chosen(told, order.extra)), ours, order.extra
    )
    if tools.binary.parts:
        made = replace(made, variables=merged((*made.variables, stacks())))
    if serving.folder:
        # vLLM would ask its own programs, too, for the key of a variable in the user's shell.
        keys = tuple(name for name in _ENGINE_KEYS if name in environ)
        made = replace(made, unset=(*made.unset, *keys))
    if tools.binary.parts and serving.folder and not (plan.nodes and plan.nodes.rank):
        made = serve_on_socket(made, serving, str(tools.binary / "python"))
    return Launch(plan, made, order.beside)


def out_of(found: ContainerEnvironment, made: Launch, serving: Serving, *, over_ray: bool) -> Launch:
    """Run the launch in a container of the image; `over_ray`: next to the container of this host's Ray."""
    target, beside = Path(serving.target), container.name(RAY) if over_ray else None
    model = (Mount(target, "the model"),) if target.is_absolute() else ()
    sockets = (Mount(serving.folder, Why.SOCKET, writable=True),) if serving.folder else ()
    mounts = (*found.spec.mounts, *model, *sockets)
    near = replace(found, spec=replace(found.spec, beside=beside, mounts=mounts))
    inner = made.reasoned
    if serving.folder:
        inner = serve_on_socket(inner, serving, str(found.python))
    if stacks().name not in found.spec.image.names:
        inner = replace(inner, variables=merged((*inner.variables, stacks())))
    return replace(made, reasoned=near.contained(inner, role(serving.port)))


def launcher(asked: Launcher | None, *, hosts: int | None, role: str | None) -> tuple[Launcher, str]:
    """Choose the launcher, with the reason; `role`: this host's in a Ray cluster."""
    if asked is None:
        if role is not None and hosts != 1:
            return "ray", "Ray starts the ranks: this host is the head of a cluster"
        if (hosts or 1) > 1:
            return "mp", "each host starts its own ranks: there is no Ray cluster"
        return "solo", "everything runs on this host"
    if asked == "mp" and (hosts or 1) < 2:  # noqa: PLR2004 - several
        raise Problem(
            "--launcher mp is for several hosts",
            cause=f"--hosts is {hosts or 'not given'}, so the number of hosts is unknown",
            fix="--launcher mp --hosts 2, and on each other host: medley join HEAD",
        )
    if asked == "mp" and role is not None:
        raise Problem(
            "--launcher mp cannot run on a host of a Ray cluster",
            cause=f"this host is its {role}, and Ray manages the devices",
            fix="leave --launcher out to use Ray; or end the cluster: medley ray-stop",
        )
    if asked == "solo" and (hosts or 1) > 1:
        raise Problem(
            "--launcher solo is for one host", cause=f"--hosts is {hosts}", fix="leave one of them out"
        )
    return asked, f"--launcher {asked}, as requested"


def in_no_image() -> Problem:
    return Problem(
        "without Ray a model cannot run in a container",
        cause="medley join starts the engine environment of its host",
        fix="medley ray-head --image IMAGE, and the same on ray-worker; or leave --image out",
    )


def not_shown(hosts: int, *, script: bool) -> Problem:
    """Explain that a dry run without Ray has no hosts to plan for."""
    what = "a script without Ray" if script else "a model without Ray"
    here = "run it: each host prints its command; for only this host: --hosts 1 --dry-run"
    return Problem(
        f"{what} cannot be planned before its hosts have joined",
        cause="the plan needs the facts that hosts send when they join",
        fix=here if script else f"name their kinds: --dry-run --launcher mp --hosts spark:{hosts}",
    )


def nodes(plan: Plan, layout: Layout, addresses: Mapping[str, str], port: int) -> dict[str, Plan]:
    """Return the plan of each host in order of ranks; `port` is the rendezvous on the first host."""
    found, before = {}, 0
    hosts = by_host(devices_of(layout))
    for rank, (host, held) in enumerate(hosts.items()):
        copies = sum(stages[0].devices[0].host == host for stages in pipelines(layout))
        found[host] = replace(
            plan,
            nodes=Nodes(len(hosts), rank, addresses[next(iter(hosts))], port, addresses[host]),
            gpus=tuple(device.index for device in held if device.kind != "cpu"),
            replicas_here=copies,
            replicas_before=before,
        )
        before += copies
    return found
