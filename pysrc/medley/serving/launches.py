"""Build what each host starts for a plan; servers, scripts, dry runs and benchmarks all use it."""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from msgspec import field

from medley.cluster import ray_serving
from medley.cluster.membership import Membership
from medley.cluster.ray_serving import SlotUse
from medley.cluster.rendezvous_head import Rendezvous
from medley.command import Variable
from medley.engine import refused_flags, unread_variables
from medley.engine.accepted_flags import AcceptedFlags, read_source_flags
from medley.engine.launch import (
    ENGINES,
    RANKS_PORT,
    Launch,
    LaunchBuilder,
    LaunchOrder,
    build_launch,
    plan_nodes,
    run_in_container,
)
from medley.environment import engine_source
from medley.environment.tools import NO_TOOLS, Tools
from medley.errors import Problem
from medley.network.fabric import per_host
from medley.planner import Layout, list_hosts
from medley.planner.plan import Plan, adapt_to_version
from medley.planner.site import Site
from medley.progress import Output
from medley.serving import chat_parsers
from medley.serving.extras import require_shown_models
from medley.serving.launch_engine import HostEngine, override_with_host_variables, prepare_engine
from medley.serving.launch_plan import plan_job
from medley.serving.prepare import Job
from medley.values import Value


class HostPrograms(Value):
    """The programs and variables of a host that its launch needs besides its plan."""

    tools: Tools = NO_TOOLS
    environ: Mapping[str, str] = field(default_factory=dict)
    """The variables of the user's shell."""
    head_variables: tuple[Variable, ...] = ()
    """The variables of the user's shell on the head, which a host that joined it gets too."""


class RayEndpoint(Value):
    """The address of a Ray cluster, HOST:PORT, and the file of its token."""

    address: str
    token_file: Path


class PreparedLaunch(Value):
    """The launch on this host, with the hosts and slots that its ranks take."""

    order: LaunchOrder
    launch: Launch
    layout: Layout
    cluster: Membership | None = None
    """The Ray cluster whose slots it takes."""
    slots: SlotUse | None = None
    """The slots of the cluster that it takes."""
    rendezvous: Rendezvous | None = None
    """The hosts that joined it without Ray."""

    @property
    def ray_cluster(self) -> Membership | None:
        """The cluster whose Ray starts the ranks; None where the engine starts them by itself."""
        return self.cluster if self.launch.plan.launcher == "ray" else None


def prepare_launch(job: Job, site: Site, output: Output) -> PreparedLaunch:
    """Plan a job on these hosts; return the command on the first of them that has a rank."""
    job_plan = plan_job(job, site, output)
    layout, plan = job_plan.layout, job_plan.plan
    cluster = job.cluster if plan.launcher == "ray" else None
    used_site = site.select_hosts(list_hosts(layout))
    name, host = next(iter(used_site.hosts.items()))
    engine = prepare_engine(job, host, cluster, output.progress)
    _require_supported(job, engine)
    accepted_flags = _read_accepted_flags(job, engine, output)
    order = _adapt_order(job, accepted_flags, output)
    require_shown_models(order, plan, job.request.trust, is_start=not job.request.dry_run)
    plan = adapt_to_version(
        plan, order.engine, engine.version, order.serving.choose_chat_format(order.weights.model)
    )
    tools = (
        override_with_host_variables(engine.tools, cluster, frozenset(os.environ))
        if cluster
        else engine.tools
    )
    launches = build_launches(
        order,
        layout,
        plan,
        used_site,
        build=job.build_launch,
        host_programs={name: HostPrograms(tools, os.environ)},
        ray=RayEndpoint(cluster.head, Path(cluster.token)) if cluster else None,
        note=output.progress.note,
    )
    launch = launches[name]
    planned_flags = launch.annotated_command.flags
    refused_flags.require_known_flags(
        accepted_flags, planned_flags, order.engine_flags, table_file=order.table_file
    )
    if engine.image:
        launch = run_in_container(engine.image, launch, order.serving, over_ray=cluster is not None)
    slots = ray_serving.count_slots(layout, site) if job.cluster else None
    return PreparedLaunch(order, launch, layout, job.cluster, slots)


def build_launches(
    order: LaunchOrder,
    layout: Layout,
    plan: Plan,
    site: Site,
    *,
    build: LaunchBuilder = build_launch,
    host_programs: Mapping[str, HostPrograms] = MappingProxyType({}),
    ray: RayEndpoint | None = None,
    port: int = RANKS_PORT,
    note: Callable[[str], object] = lambda _: None,
) -> dict[str, Launch]:
    """Return the launch of each host: without Ray every host starts its ranks, with Ray only the first.

    `site`: the hosts of the layout, with the address of each where there are several. `port`: the ranks'
    rendezvous on the first host. `note` gets the reasons for the network of Ray's ranks.
    """
    plans = {list_hosts(layout)[0]: plan}
    if plan.launcher == "mp":
        plans = plan_nodes(plan, layout, site.addresses, port)
    launches = {}
    for host, host_plan in plans.items():
        programs = host_programs.get(host, HostPrograms())
        variables = list(programs.head_variables)
        if plan.launcher != "solo":
            variables += _list_cluster_variables(
                order, site, host, environ=programs.environ, ray=ray, note=note
            )
        launches[host] = build(
            order,
            host_plan,
            site.hosts[host].kind.table,
            tools=programs.tools,
            environ=programs.environ,
            cluster_variables=variables,
        )
    return launches


def _list_cluster_variables(
    order: LaunchOrder,
    site: Site,
    host: str,
    *,
    environ: Mapping[str, str],
    ray: RayEndpoint | None,
    note: Callable[[str], object],
) -> Iterator[Variable]:
    """Yield the network variables of a host's ranks, and for Ray its address and token."""
    options = site.complete_options(order.placement.network, order.engine)
    fabric, network_variables = per_host.choose_running_cluster_network(
        site.facts, site.addresses, host, options, environ
    )
    if ray is None:
        yield from network_variables
        return
    for line in (*fabric.why, *map(str, fabric.findings)):
        note(line)
    yield from ray_serving.list_variables(order.engine, ray.address, ray.token_file, network_variables)


def _require_supported(job: Job, engine: HostEngine) -> None:
    """Raise a Problem if this release of the engine lacks the model, or ignores a variable of its launch."""
    order = job.order
    unread_variables.require_read_launch_variables(os.environ, order.weights, order.engine, engine.version)
    if gap := engine_source.find_model_gap(order.weights.model, order.engine, engine.version):
        raise Problem(
            f"{order.weights.name} cannot be served with this {ENGINES[order.engine].TITLE}",
            cause=gap,
            fix="--image or --env with a newer one; a Jetson Orin on JetPack 6: docs/how-to/jetson-orin.md",
        )


def _adapt_order(job: Job, accepted_flags: AcceptedFlags | None, output: Output) -> LaunchOrder:
    """Return the order with a chat format that the engine's parsers can read."""
    order = job.order
    chat_format = order.serving.choose_chat_format(order.weights.model)
    chat, notes = chat_parsers.drop_missing_parsers(chat_format, ENGINES[order.engine], accepted_flags)
    for line in notes:
        output.say(line)
    return order.replace(serving=order.serving.replace(chat=chat))


def _read_accepted_flags(job: Job, engine: HostEngine, output: Output) -> AcceptedFlags | None:
    """Return the flags that the engine's parser accepts; a dry run does not start a program for it."""
    return read_source_flags(
        job.order.engine,
        engine.image or engine.tools.program_folder,
        engine.version,
        can_run=not job.request.dry_run,
        progress=output.progress,
    )
