"""List the commands to type on each host for a plan."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from medley import credentials
from medley.cluster.node import NodeSpec, part
from medley.cluster.ray_serving import over_ray
from medley.command import AnnotatedCommand, Variable
from medley.engine import Serving, flags, parser
from medley.engine.launch import RANKS_PORT, Order, build_launch, plan_nodes
from medley.environment.engine_source import EngineRequest, EngineSource
from medley.environment.tools import BARE
from medley.network import ports
from medley.network.fabric import per_host
from medley.network.fabric.types import Endpoint, NetworkOptions
from medley.planner import Layout, list_devices, list_hosts, list_pipelines
from medley.planner.choose import Choice
from medley.planner.context import LONGER_CONTEXT_VARIABLES
from medley.planner.fit import compute_fit
from medley.planner.host_order import PARTITION_VARIABLES
from medley.planner.plan import adapt_to_version
from medley.planner.topology import Topology
from medley.progress import Output
from medley.schema import EngineName
from medley.serving.alternatives import placed, with_engine_sources
from medley.serving.prepare import Job, plan_of, shape_of

_TOKEN = ".local/state/medley/token"  # noqa: S105 - where a head keeps it, from its own home folder


@dataclass(frozen=True)
class Step:
    host: str
    typed: str
    starts: AnnotatedCommand
    """The process that it starts, without the variables of that host's toolchain."""
    image: str | None = None
    """The container image, if any."""
    why: tuple[str, ...] = ()
    joins: bool = False
    """Whether it starts a part of a Ray cluster, which `medley up` does on all hosts."""
    source: tuple[str, ...] = ()
    """The switch that chooses its engine and the value, which cluster.toml has as a key of the host."""


def hypothetical(job: Job, site: Topology, output: Output) -> Iterator[Step]:
    """Return the commands for hypothetical hosts, where each replica is a separate server."""
    options, order = job.options, job.order
    asked = EngineRequest(options.image.image if options.image else None, options.environment)
    site = with_engine_sources(site, order.placement, asked, order.weights.model)
    order = replace(order, placement=replace(order.placement, one_server=order.placement.launcher == "mp"))
    return steps(order, placed(order, shape_of(order.weights, output.watch), site), site)


def steps(order: Order, choice: Choice, site: Topology) -> Iterator[Step]:
    """Yield the commands in order, one replica after the other."""
    copies = list_pipelines(choice.layout)
    if order.placement.launcher == "mp" and len(list_hosts(choice.layout)) > 1:
        yield from _without_ray(order, choice, site)
        return
    if len(copies) == 1:
        yield from _of_pipeline(order, choice, site)
        return
    each = replace(
        order.placement, concurrency=-(-order.placement.concurrency // len(copies)), one_server=True
    )
    work = replace(choice.workload, load=replace(choice.workload.load, concurrency=each.concurrency))
    ports = dict.fromkeys(site.hosts, order.serving.port)
    for stages in copies:
        layout = replace(choice.layout, stages=stages, replicas=())
        host = list_hosts(layout)[0]
        serving = replace(order.serving, port=ports[host])
        ports[host] += 1
        one = replace(choice, layout=layout, fit=compute_fit(work, layout))
        yield from _of_pipeline(replace(order, placement=each, serving=serving), one, site)


def _of_pipeline(order: Order, choice: Choice, site: Topology) -> Iterator[Step]:
    wanted, (first, *others) = order.placement, list_hosts(choice.layout)
    cluster: tuple[Variable, ...] = ()
    addresses: dict[str, str] = {}
    if others:
        facts = {host: site.facts[host] for host in (first, *others)}
        network = choice.network or site.build_network(wanted.network, wanted.engine)
        wishes, ends = network.options, network.list_ends(facts)
        if not site.rank_order:
            yield from joining(wishes, site, ends, wanted.engine)
        addresses = {host: end.address for host, end in ends.items()}
        _, wired = per_host.running_cluster_network(facts, addresses, first, wishes, {})
        cluster = tuple(over_ray(wanted.engine, _gcs(addresses[first]), credentials.token_path(), wired))
    told, origin = plan_of(order, choice, site, "ray" if others else "solo"), site.find_engine_source(first)
    chat = order.serving.choose_chat_format(order.weights.model)
    told = adapt_to_version(told, wanted.engine, origin.versions.get(wanted.engine), chat)
    if others:
        told = replace(told, places=tuple(addresses[device.host] for device in list_devices(choice.layout)))
    started = build_launch(order, told, site.hosts[first][1].host, cluster=cluster)
    _require_flags(order, started.annotated_command, origin)
    split = f"{PARTITION_VARIABLES[wanted.engine]}={wanted.partition} " if wanted.partition else ""
    # A cluster's engine is from the environment of its Ray.
    typed = (
        split + _longer(order, choice) + _serve(order, choice.layout, site, () if others else origin.typed)
    )
    yield Step(first, typed, started.annotated_command, site.find_image(first), told.why)


def _without_ray(order: Order, choice: Choice, site: Topology) -> Iterator[Step]:
    """Yield the server on the first host, then the command of each host that joins it."""
    wanted, used = order.placement, list_hosts(choice.layout)
    facts = {host: site.facts[host] for host in used}
    network = choice.network or site.build_network(wanted.network, wanted.engine)
    wishes = network.options
    addresses = {host: end.address for host, end in network.list_ends(used).items()}
    told = plan_of(order, choice, site, "mp")
    join = f"ssh {shlex.quote(used[0])} cat {_TOKEN} | medley join {addresses[used[0]]} --token-file -"
    for host, own in plan_nodes(told, choice.layout, addresses, RANKS_PORT).items():
        _, wired = per_host.running_cluster_network(facts, addresses, host, wishes, {})
        started = build_launch(order, own, site.hosts[host][1].host, cluster=wired).annotated_command
        environment = site.find_engine_source(host).typed
        if host == used[0]:
            _require_flags(order, started, site.find_engine_source(host))
            typed = _longer(order, choice) + _serve(order, choice.layout, site, environment)
            yield Step(host, typed, started, why=told.why)
        else:
            yield Step(host, " ".join((join, shlex.join(environment))).rstrip(), started)


def _require_flags(order: Order, made: AnnotatedCommand, origin: EngineSource) -> None:
    """Raise a Problem for flags that a lock's release would refuse; an image's is not known here."""
    engine, version = order.placement.engine, origin.versions.get(order.placement.engine)
    if version and not origin.image:
        flags.require_known_flags(
            parser.read_release_parser(engine, version), made.flags, order.engine_flags, table=order.table
        )


def joining(
    wishes: NetworkOptions, site: Topology, ends: Mapping[str, Endpoint], engine: EngineName
) -> Iterator[Step]:
    """Yield the commands of Ray on these hosts, the first of which is the head."""
    head, *others = ends
    named = () if engine == "vllm" else ("--engine", engine)
    at, secret = ends[head].address, credentials.token_path()
    own = per_host.head_network(head, site.facts[head], wishes, {})
    by_itself = wishes.link is None and own.end.interface == ends[head].interface
    link = () if by_itself else ("--link", ends[head].interface)
    if link:
        own = per_host.head_network(head, site.facts[head], replace(wishes, link=link[1]), {})
    ours = _part(head, site, engine)
    typed = shlex.join(("medley", "ray-head", *link, *named, *site.find_engine_source(head).typed))
    yield Step(
        head,
        typed,
        ours.head(own, secret),
        site.find_image(head),
        joins=True,
        source=site.find_engine_source(head).typed,
    )
    for host in others:
        source = site.find_engine_source(host).typed
        both = {name: site.facts[name] for name in (head, host)}
        wired = per_host.worker_network(both, host, (head, at), wishes, {})
        ours = _part(host, site, engine)
        typed = f"ssh {shlex.quote(head)} cat {_TOKEN} | medley ray-worker {at} --token-file -"
        typed = " ".join((typed, *named, shlex.join(source))).rstrip()
        started = ours.worker(wired, secret, _gcs(at))
        yield Step(host, typed, started, site.find_image(host), joins=True, source=source)


def _part(host: str, site: Topology, engine: EngineName) -> NodeSpec:
    facts, kind = site.hosts[host]
    return part(facts, kind, BARE, slots=None, path="", engine=engine)


def _gcs(head: str) -> str:
    return f"{head}:{ports.RayPorts.gcs}"


def _longer(order: Order, choice: Choice) -> str:
    """The user's own variable for a context that neither config.json nor the maker gives."""
    wanted = order.placement
    return (
        f"{LONGER_CONTEXT_VARIABLES[wanted.engine]}=1 "
        if choice.workload.is_beyond_config and wanted.longer_context
        else ""
    )


def _serve(order: Order, layout: Layout, site: Topology, environment: tuple[str, ...]) -> str:
    engines = ("--", *order.engine_flags) if order.engine_flags else ()
    return shlex.join((*_switches(order, layout, site), *environment, *engines))


def _switches(order: Order, layout: Layout, site: Topology) -> Iterator[str]:
    wanted, used = order.placement, list_hosts(layout)
    found = order.weights
    # A folder by its path, because its name may be that of a known model.
    yield from ("medley", "serve", found.name if found.model else found.target)
    if len(used) > 1 or site.rank_order:
        yield from ("--hosts", str(len(used)))
    elif len(list_devices(layout)) < sum(device.host == used[0] for device in site.list_devices()):
        yield from ("--gpus", ",".join(str(device.index) for device in list_devices(layout)))
    if wanted.balanced:
        yield "--eplb"
    yield from order.model_extras.typed()
    for name, value, usual in (
        ("--launcher", wanted.launcher, None),
        ("--engine", wanted.engine, "vllm"),
        ("--kv-type", wanted.kv_type, "auto"),
        ("--for", wanted.goal, "latency"),
        ("--concurrency", wanted.concurrency, 1),
        ("--context", wanted.context, None),
        ("--tp", wanted.sizes.tensor, None),
        ("--pp", wanted.sizes.stages, None),
        ("--transport", wanted.network.transport, None),
        ("--served-model-name", order.serving.name, found.name),
        ("--host", order.serving.address, Serving.address),
        ("--port", order.serving.port, Serving.port),
    ):
        if value != usual:
            yield from (name, str(value))
