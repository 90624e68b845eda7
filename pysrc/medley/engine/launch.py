"""The engines by name; the command of one engine process; per-host plans; choice of launcher."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from medley.command import AnnotatedCommand, Command, Variable, merged, overridden
from medley.engine import Engine, Serving, chosen, guarded, sglang, table_variables, variables, vllm
from medley.environment import container
from medley.environment.container import Mount
from medley.environment.container_image import RAY, ContainerEnvironment, role
from medley.environment.tools import BARE, Tools
from medley.errors import Problem
from medley.model.extra_files import NOTHING, ModelExtras
from medley.model.resolve import Weights
from medley.planner import Layout, by_host, devices_of, pipelines
from medley.planner.placement import PlacementOptions
from medley.planner.plan import Launcher, Nodes, Plan
from medley.schema import EngineName, HostTable

ENGINES: Mapping[EngineName, Engine] = {"vllm": vllm, "sglang": sglang}
RANKS_PORT = 24_020
"""Where ranks find each other on the first host, or at a port after it; in the same range as Ray's."""


@dataclass(frozen=True)
class Order:
    """What is to be served, and how it was asked for."""

    weights: Weights
    serving: Serving
    wanted: PlacementOptions = field(default_factory=PlacementOptions)
    extra: tuple[str, ...] = ()
    """The engine's own flags, as the user gave them."""
    beside: ModelExtras = NOTHING
    typed: tuple[str, ...] = ()
    """What asked for it, from `medley` on."""


@dataclass(frozen=True)
class Launch:
    """One process to start, and the plan behind it."""

    plan: Plan
    reasoned: AnnotatedCommand
    beside: ModelExtras = NOTHING
    files: Mapping[str, str] = field(default_factory=dict)
    """Files it needs: their text by name."""
    told: tuple[tuple[str, str], ...] = ()
    """What the process is told in these, and why."""

    @property
    def command(self) -> Command:
        return self.reasoned.command

    def why(self) -> list[tuple[str, str]]:
        """Each decision and its reason, in the order of the command."""
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
    """Return the command of an order's engine on a host by this plan; `environ` is the user's.

    `cluster` has the variables that an engine needs whose ranks are on several hosts.
    """
    engine, weights, serving = ENGINES[order.wanted.engine], order.weights, order.serving
    ours = merged(
        (
            *table_variables(order.wanted.engine, weights.model, environ),
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
    if tools.binary.parts and not (plan.nodes and plan.nodes.rank):
        made = guarded(made, serving, str(tools.binary / "python"))
    return Launch(plan, made, order.beside)


def out_of(found: ContainerEnvironment, made: Launch, serving: Serving, *, over_ray: bool) -> Launch:
    """The same, run in a container of the image; `over_ray`: beside that of this host's Ray."""
    target, beside = Path(serving.target), container.name(RAY) if over_ray else None
    model = (Mount(target, "the model"),) if target.is_absolute() else ()
    near = replace(found, spec=replace(found.spec, beside=beside, mounts=(*found.spec.mounts, *model)))
    inner = guarded(made.reasoned, serving, str(found.python))
    return replace(made, reasoned=near.contained(inner, role(serving.port)))


def launcher(asked: Launcher | None, *, hosts: int | None, role: str | None) -> tuple[Launcher, str]:
    """Which one, and why; `hosts`: as many as were asked for, `role`: this host's in a cluster of Ray's."""
    if asked is None:
        if role is not None and hosts != 1:
            return "ray", "Ray starts the ranks: this host heads a cluster"
        if (hosts or 1) > 1:
            return "mp", "each host starts its own ranks: no Ray cluster is here"
        return "solo", "all of it is on this host"
    if asked == "mp" and (hosts or 1) < 2:  # noqa: PLR2004 - several
        raise Problem(
            "--launcher mp is for several hosts",
            cause=f"--hosts is {hosts or 'not given'}, and nobody says how many will join",
            fix="--launcher mp --hosts 2, and on each other host: medley join HEAD",
        )
    if asked == "mp" and role is not None:
        raise Problem(
            "this host is in a Ray cluster, whose hosts' devices are its own",
            cause=f"it is its {role}",
            fix="leave --launcher out: then Ray starts the ranks; or end the cluster: medley ray-stop",
        )
    if asked == "solo" and (hosts or 1) > 1:
        raise Problem(
            "--launcher solo is for one host", cause=f"--hosts is {hosts}", fix="leave one of them out"
        )
    return asked, f"--launcher {asked}, as asked"


def in_no_image() -> Problem:
    return Problem(
        "without Ray a model does not run out of an image",
        cause="medley join starts the engine environment of its host",
        fix="medley ray-head --image IMAGE, and the same on ray-worker; or leave --image out",
    )


def not_shown(hosts: int, *, script: bool) -> Problem:
    """A dry run without Ray has no hosts to plan for."""
    what = "what runs without Ray" if script else "a model without Ray"
    here = "run it: each host prints its command; --hosts 1 --dry-run shows that of this host alone"
    return Problem(
        f"{what} cannot be shown before its hosts have joined",
        cause="each tells what it is when it joins, and the plan is made of that",
        fix=here if script else f"name their kinds: --dry-run --launcher mp --hosts spark:{hosts}",
    )


def nodes(plan: Plan, layout: Layout, addresses: Mapping[str, str], port: int) -> dict[str, Plan]:
    """By host, in the order of their processes: that of the ranks, or of the replicas.

    `addresses`: of each host on the network they share; `port`: of the first, where its others find it.
    """
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
