"""Prepare a launch: options to job, topology, plan and command."""

import os
import platform
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

from medley import config, credentials, storage
from medley.cluster import membership, ray_serving
from medley.cluster.membership import Membership
from medley.cluster.ray_serving import Taken
from medley.cluster.rendezvous_head import Meeting
from medley.engine import Serving, Tls, flags, launch, parser, unread_variables
from medley.engine.launch import Launch, Order
from medley.environment import (
    container_image,
    container_runtime,
    engine_source,
    packaged_model,
    tools,
)
from medley.environment.container_image import ContainerEnvironment, ImageRequest
from medley.environment.engine_source import EngineRequest
from medley.environment.tools import BARE
from medley.errors import Problem
from medley.host import facts
from medley.host.facts import Facts
from medley.host.kind import Kind, answers, kind_of
from medley.model import resolve, shape
from medley.model.resolve import Weights
from medley.model.trust import Trust
from medley.network import tcp
from medley.network.ports import RENDEZVOUS_PORT
from medley.planner import Layout, compatibility, devices, list_devices, list_hosts, list_pipelines, loading
from medley.planner.choose import Choice
from medley.planner.context import allows_longer_context, find_maker_flags
from medley.planner.cpu import read_dtype
from medley.planner.host_order import PARTITION_VARIABLES
from medley.planner.placement import PlacementOptions, place_without_shape
from medley.planner.plan import (
    EngineOptions,
    Launcher,
    Plan,
    adapt_to_version,
    balance_experts,
    plan_engine,
    plan_without_shape,
)
from medley.planner.topology import Topology
from medley.progress import Output, Progress
from medley.schema import EngineName, Shape
from medley.serving import chat_parsers
from medley.serving.alternatives import placed, with_engine_sources
from medley.serving.extras import find_extras
from medley.serving.launch_engine import image_of, ranks_nccl, version_of
from medley.serving.script import Script, in_image, placeable

_MOST_HOSTS = 64


@dataclass(frozen=True)
class Listens:
    """Where a server is to listen, under which name, and who may ask it."""

    address: str = "127.0.0.1"
    port: int = 8000
    name: str | None = None
    key: str | None = None
    """What --api-key said."""
    origins: tuple[str, ...] = ()
    """Origins of web pages whose requests are answered."""
    tls: Tls | None = None


@dataclass(frozen=True)
class Options:
    """What to start, on which hosts, and out of what, as a user asked for it."""

    model: str
    wanted: PlacementOptions
    """Of its placement; `prepare` adds the engine, the launcher and the number of hosts."""
    flags: tuple[str, ...] = ()
    typed: tuple[str, ...] = ()
    trust: Trust = field(default_factory=Trust)
    engine: EngineName | None = None
    launcher: Launcher | None = None
    hosts: str | None = None
    wait_s: float | None = None
    """How long to wait for the hosts."""
    join_port: int = RENDEZVOUS_PORT
    kind: str | None = None
    environment: str | None = None
    image: ImageRequest | None = None
    nccl: str | None = None
    """A libnccl.so.2 in place of the engine environment's, where there is no image."""
    unplanned: bool = False
    dry_run: bool = False
    elsewhere: Topology | None = None
    """Recorded or hypothetical hosts, on which nothing can be started."""
    listens: Listens = Listens()
    script: Script | None = None
    """Runs instead of a server, to its end."""

    @property
    def count(self) -> int | None:
        """How many hosts, where --hosts names a number."""
        if self.hosts is None:
            return 1 if self.launcher == "solo" else None
        if self.elsewhere:
            return None
        if not self.hosts.isdecimal() or not 1 <= int(self.hosts) <= _MOST_HOSTS:
            raise Problem(
                f"--hosts {self.hosts} is not valid",
                cause=f"a cluster has 1 to {_MOST_HOSTS} hosts",
                fix="--hosts 2, or leave it out to let the plan decide",
            )
        return int(self.hosts)


@dataclass(frozen=True)
class Job:
    """A model or a script that can be planned and started."""

    options: Options
    order: Order
    joined: Membership | None = None
    """The cluster that it runs over."""
    by: Launcher | None = None
    """What starts its ranks; None on hosts that are elsewhere."""
    why: str = ""
    """The reason for this launcher."""

    @property
    def launch(self) -> Callable[..., Launch]:
        """Make a launch of the order, a plan and a host."""
        return self.options.script.launch if self.options.script else launch.build_launch


@dataclass(frozen=True)
class Launched:
    """A launch, and the hosts that it takes."""

    order: Order
    launch: Launch
    layout: Layout
    joined: Membership | None = None
    taken: Taken | None = None
    """Of the cluster's slots."""
    meeting: Meeting | None = None
    """The hosts that joined it without Ray."""

    @property
    def over_ray(self) -> Membership | None:
        """The cluster whose hosts have its ranks; None where the engine starts them by itself."""
        return self.joined if self.launch.plan.launcher == "ray" else None


def prepare(options: Options, output: Output) -> Job:
    """Find the model, the cluster and the launcher, and refuse early what cannot be started."""
    starts, watch = not options.dry_run, output.watch
    found = resolve.weights(options.model, config.models(), storage.cache(), options.typed)
    if found.notice:
        output.say(found.notice)
    if not options.script:
        flags.require_no_server_flags(options.flags)
    listens = _listens(options, found, watch)
    by, why = (None, "") if options.elsewhere else _launcher(options)
    joined = ray_serving.cluster(options.count) if by in {"ray", "solo"} else None
    engine = ray_serving.engine(joined, options.engine) if joined else options.engine or "vllm"
    if options.script and joined and joined.image:
        raise in_image()
    if starts:
        resolve.ready(found)
    else:
        resolve.require_weights(found)
    extra = find_extras(found, options.trust, options.flags, engine, starts=starts, watch=watch)
    wanted = replace(
        options.wanted,
        engine=engine,
        partition=os.environ.get(PARTITION_VARIABLES[engine]),
        longer_context=allows_longer_context(os.environ, engine),
        hosts=options.count,
        launcher=by or options.launcher,
        one_server=True,
        dtype=read_dtype(options.flags),
    )
    if options.script:
        wanted = placeable(wanted, by)
        if (options.wanted.sizes.replicas or 1) > 1 or wanted.goal == "throughput":
            # Its replicas may have to find each other.
            experts = not options.unplanned and shape_of(found, watch).experts > 0
            options = replace(options, script=replace(options.script, experts=experts, port=tcp.free_port()))
    if not options.script:
        chat = chat_parsers.format_of(found, options.flags)
        for warning_ in chat_parsers.warnings(chat, launch.ENGINES[engine], options.flags):
            output.say(warning_)
        listens = replace(listens, chat=chat_parsers.launch_format(chat, options.flags))
    order = Order(found, listens, wanted, options.flags, extra, options.typed)
    return Job(options, order, joined, by, why)


def topology(job: Job, output: Output) -> Topology:
    """Return the hosts it may run on: those that were named, the cluster's, or this one."""
    options = job.options
    if options.elsewhere:
        return options.elsewhere
    if job.joined:
        return ray_serving.site(job.joined, options.count, options.wait_s or 0, output.watch)
    return this_host(options.kind, output.say)


def this_host(kind: str | None, say: Callable[[str], None]) -> Topology:
    """Return this host alone; `kind` is one on the user's word."""
    found = facts.facts(answers())
    taken_for = kind_of(found, kind)
    if taken_for.warning:
        say(taken_for.warning)
    return Topology({platform.node(): (found, taken_for)}, measurements=devices.read_measurements())


def launched(job: Job, site: Topology, output: Output) -> Launched:
    """Plan it on these hosts, and return the command on the first of them that has a rank."""
    options, order, watch = job.options, job.order, output.watch
    engine = order.placement.engine
    layout, plan = planned(job, site, output)
    over_ray = job.joined if plan.launcher == "ray" else None
    used = site.keep_hosts(list_hosts(layout))
    _, kind = host = next(iter(used.hosts.values()))
    image, found = _image(job, host, watch, over_ray=over_ray is not None), BARE
    # In a cluster the engine is of the environment whose Ray runs, however this host would choose now.
    named = options.environment or (over_ray.environment if over_ray else None)
    if image is None:
        dry_run, joins, nccl = options.dry_run, over_ray is not None, ranks_nccl(options.nccl, over_ray)
        found = tools.ready(kind, named, engine=engine, joins=joins, nccl=nccl, dry_run=dry_run, watch=watch)
        if not dry_run:
            packaged_model.ready(order.weights, found.binary / "python", watch)
    elif not options.dry_run:
        packaged_model.require(order.weights)
    cluster = (
        tuple(ray_serving.settings(over_ray, used, order.placement, os.environ, watch)) if over_ray else ()
    )
    version = version_of(image, found, kind, engine, named)
    unread_variables.require_read_launch_variables(os.environ, order.weights, engine, version)
    if lacks := engine_source.unknown(order.weights.model, engine, version):
        raise Problem(
            f"{order.weights.name} cannot be served with this {launch.ENGINES[engine].TITLE}",
            cause=lacks,
            fix="--image or --env with a newer one; a Jetson Orin on JetPack 6: docs/how-to/jetson-orin.md",
        )
    takes = parser.read_source_parser(
        engine, image or found.binary, version, ask=not options.dry_run, watch=watch
    )
    chat, notes = chat_parsers.readable(
        order.serving.choose_chat_format(order.weights.model), launch.ENGINES[engine], takes
    )
    for note in notes:
        output.say(note)
    order = replace(order, serving=replace(order.serving, chat=chat))
    plan = adapt_to_version(plan, engine, version, chat)
    if over_ray:
        # What is exported where `serve` is typed wins, as everywhere.
        of_table = {name: value for name, value in over_ray.table.items() if name not in os.environ}
        found = replace(found, table=of_table)
    made = job.launch(order, plan, kind.host, tools=found, environ=os.environ, cluster=cluster)
    flags.require_known_flags(takes, made.annotated_command.flags, order.engine_flags, table=order.table)
    if image:
        made = launch.run_in_container(image, made, order.serving, over_ray=over_ray is not None)
    taken = ray_serving.taken(layout, site) if job.joined else None
    return Launched(order, made, layout, job.joined, taken)


def planned(job: Job, site: Topology, output: Output) -> tuple[Layout, Plan]:
    """Return layout and plan; where it is unplanned or its shape unknown, as the user cuts it."""
    order, found, wanted = job.order, job.order.weights, job.order.placement
    engine = wanted.engine
    site = replace(site, has_own_engine=_is_own(job), has_nix_toolkit=engine_source.is_pinned())
    image = job.options.image.image if job.options.image else None
    if job.options.elsewhere or image == "default":
        asked = EngineRequest(image, job.options.environment)
        site = with_engine_sources(site, wanted, asked, found.model)
    try:
        made = None if job.options.unplanned else shape_of(found, output.watch)
    except Problem as problem:
        output.say(f"not planned: {problem.what}: {problem.cause}")
        made = None
    choice = placed(order, made, site) if made else None
    if choice and output.detail is not output.say:  # else they are said with all other reasons
        for warning_ in choice.warnings:
            output.say(warning_)
    layout = choice.layout if choice else place_without_shape(site, wanted)
    compatibility.require_flag_values(site, list_hosts(layout), engine, order.engine_flags)
    by: Launcher = "solo" if len(list_hosts(layout)) == 1 else wanted.launcher or "ray"
    if choice:
        told = plan_of(order, choice, site, by)
        told = told if by == "solo" else replace(told, why=(*told.why, job.why))
    else:
        if wanted.goal != "latency":
            output.say(f"--for {wanted.goal} chooses a layout, and without a plan it has no effect")
        options = EngineOptions(
            wanted.context, wanted.concurrency, wanted.kv_type, wanted.balanced, engine, order.engine_flags
        )
        told = plan_without_shape(layout, site.facts, found.model, launcher=by, options=options)
    if by != "ray":
        return layout, told
    places = tuple(site.addresses.get(device.host, device.host) for device in list_devices(layout))
    first = [site.addresses.get(stages[0].devices[0].host, "") for stages in list_pipelines(layout)]
    return layout, replace(told, places=places, replicas_here=first.count(places[0]))


def _is_own(job: Job) -> bool:
    """Whether an engine on one host is from an image or the user's own virtualenv, as `_image` chooses."""
    options = job.options
    if options.environment:
        return options.environment not in config.recipes()
    return bool(options.image or (job.joined and job.joined.image))


def plan_of(order: Order, choice: Choice, site: Topology, by: Launcher) -> Plan:
    """Return the plan of a choice on these hosts; `by` starts its ranks."""
    wanted, model, shape = order.placement, order.weights.model, choice.workload.shape
    hosts = list_hosts(choice.layout)
    of_kinds, variables = compatibility.list_engine_settings(
        site, hosts, wanted.engine, shape, order.engine_flags
    )
    needed = (*of_kinds, *loading.list_loader_arguments(choice, site, wanted.engine))
    if choice.workload.is_beyond_config and (longer := find_maker_flags(shape, wanted.engine)):
        needed = (*needed, (longer, "the maker's way to a context longer than config.json's"))
    found = plan_engine(
        choice,
        site.facts,
        model,
        context=wanted.context,
        launcher=by,
        arguments=needed,
        variables=variables,
        cache_in_bytes=compatibility.needs_cache_bytes(site, hosts, wanted.engine, order.engine_flags),
        engine=wanted.engine,
        flags=order.engine_flags,
    )
    return balance_experts(found, shape.experts) if wanted.balanced else found


def shape_of(found: Weights, watch: Progress) -> Shape:
    """Return a model's shape; what has to be asked of the hub takes a while."""
    asked = not found.local and not (found.model and found.model.shape)
    with watch.stage(f"ask the hub for the shape of {found.target}") if asked else nullcontext():
        return shape.shape(found, watch)


def _listens(options: Options, found: Weights, watch: Progress) -> Serving:
    if options.script:
        return Serving(found.target, found.name)
    asked = options.listens
    if asked.origins:
        credentials.require_origins(asked.origins, asked.key)
    # A page's requests come from a browser of this host, so the key is what tells them from other pages'.
    reached = "0.0.0.0" if asked.origins else asked.address  # noqa: S104 - compared, not bound
    key = credentials.choose_keys(asked.key, reached, make=not options.dry_run)
    if not options.dry_run:
        if options.image and container_runtime.remove_leftover(container_image.role(asked.port)):
            watch.note(f"ended a leftover container on port {asked.port}")
        tcp.require_free(asked.address, asked.port)
    return Serving(
        found.target,
        asked.name or found.name,
        asked.address,
        asked.port,
        key,
        origins=asked.origins,
        tls=asked.tls,
        socket_folder=None if options.elsewhere else storage.sockets() / str(asked.port),
    )


def _launcher(options: Options) -> tuple[Launcher, str]:
    cluster = membership.noted()
    role = cluster.role if cluster else None
    by, why = launch.choose_launcher(options.launcher, hosts=options.count, role=role)
    if by == "mp" and options.image:
        raise launch.container_without_ray_problem()
    if by == "mp" and options.dry_run:
        raise launch.dry_run_without_ray_problem(options.count or 2, is_script=options.script is not None)
    return by, why


def _image(
    job: Job, host: tuple[Facts, Kind], watch: Progress, *, over_ray: bool
) -> ContainerEnvironment | None:
    options = job.options
    return image_of(
        options.image,
        job.joined if over_ray or not options.environment else None,
        host,
        job.order.placement.engine,
        over_ray=over_ray,
        elsewhere=options.elsewhere is not None,
        dry_run=options.dry_run,
        watch=watch,
    )
