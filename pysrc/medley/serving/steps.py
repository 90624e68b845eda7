"""List the commands to type on each host for a plan."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from medley import credentials
from medley.cluster.node import NodeSpec, part
from medley.cluster.ray_serving import over_ray
from medley.command import AnnotatedCommand, Variable
from medley.engine import Serving, flags, parser
from medley.engine.launch import RANKS_PORT, Order, launch, nodes
from medley.environment.engine_source import EngineRequest, EngineSource
from medley.environment.tools import BARE
from medley.network import ports
from medley.network.fabric import fabric, per_host
from medley.network.fabric.types import Endpoint, NetworkOptions
from medley.planner import Layout, devices_of, hosts_of, pipelines
from medley.planner.choose import Choice
from medley.planner.context import LONGER
from medley.planner.fit import fit
from medley.planner.host_order import VARIABLE
from medley.planner.plan import understood
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
    site = with_engine_sources(site, order.wanted, asked, order.weights.model)
    order = replace(order, wanted=replace(order.wanted, one_server=order.wanted.launcher == "mp"))
    return steps(order, placed(order, shape_of(order.weights, output.watch), site), site)


def steps(order: Order, choice: Choice, site: Topology) -> Iterator[Step]:
    """Yield the commands in order, one replica after the other."""
    copies = pipelines(choice.layout)
    if order.wanted.launcher == "mp" and len(hosts_of(choice.layout)) > 1:
        yield from _without_ray(order, choice, site)
        return
    if len(copies) == 1:
        yield from _of_pipeline(order, choice, site)
        return
    each = replace(order.wanted, concurrency=-(-order.wanted.concurrency // len(copies)), one_server=True)
    work = replace(choice.work, load=replace(choice.work.load, concurrency=each.concurrency))
    ports = dict.fromkeys(site.hosts, order.serving.port)
    for stages in copies:
        layout = replace(choice.layout, stages=stages, replicas=())
        host = hosts_of(layout)[0]
        serving = replace(order.serving, port=ports[host])
        ports[host] += 1
        one = replace(choice, layout=layout, fit=fit(work, layout))
        yield from _of_pipeline(replace(order, wanted=each, serving=serving), one, site)


def _of_pipeline(order: Order, choice: Choice, site: Topology) -> Iterator[Step]:
    wanted, (first, *others) = order.wanted, hosts_of(choice.layout)
    cluster: tuple[Variable, ...] = ()
    addresses: dict[str, str] = {}
    if others:
        facts = {host: site.facts[host] for host in (first, *others)}
        wishes = site.wishes(wanted.wishes, wanted.engine)
        found = fabric(facts, wishes).ends
        ends = {host: found[host] for host in facts}
        if not site.order:
            yield from joining(wishes, site, ends, wanted.engine)
        addresses = {host: end.address for host, end in ends.items()}
        _, wired = per_host.running_cluster_network(facts, addresses, first, wishes, {})
        cluster = tuple(over_ray(wanted.engine, _gcs(addresses[first]), credentials.token_path(), wired))
    told, origin = plan_of(order, choice, site, "ray" if others else "solo"), site.origin(first)
    chat = order.serving.format(order.weights.model)
    told = understood(told, wanted.engine, origin.versions.get(wanted.engine), chat)
    if others:
        told = replace(told, places=tuple(addresses[device.host] for device in devices_of(choice.layout)))
    started = launch(order, told, site.hosts[first][1].host, cluster=cluster)
    _require_flags(order, started.reasoned, origin)
    split = f"{VARIABLE[wanted.engine]}={wanted.partition} " if wanted.partition else ""
    # A cluster's engine is from the environment of its Ray.
    typed = (
        split + _longer(order, choice) + _serve(order, choice.layout, site, () if others else origin.typed)
    )
    yield Step(first, typed, started.reasoned, site.image(first), told.why)


def _without_ray(order: Order, choice: Choice, site: Topology) -> Iterator[Step]:
    """Yield the server on the first host, then the command of each host that joins it."""
    wanted, used = order.wanted, hosts_of(choice.layout)
    facts = {host: site.facts[host] for host in used}
    wishes = site.wishes(wanted.wishes, wanted.engine)
    addresses = {host: end.address for host, end in fabric(facts, wishes).ends.items()}
    told = plan_of(order, choice, site, "mp")
    join = f"ssh {shlex.quote(used[0])} cat {_TOKEN} | medley join {addresses[used[0]]} --token-file -"
    for host, own in nodes(told, choice.layout, addresses, RANKS_PORT).items():
        _, wired = per_host.running_cluster_network(facts, addresses, host, wishes, {})
        started = launch(order, own, site.hosts[host][1].host, cluster=wired).reasoned
        environment = site.origin(host).typed
        if host == used[0]:
            _require_flags(order, started, site.origin(host))
            typed = _longer(order, choice) + _serve(order, choice.layout, site, environment)
            yield Step(host, typed, started, why=told.why)
        else:
            yield Step(host, " ".join((join, shlex.join(environment))).rstrip(), started)


def _require_flags(order: Order, made: AnnotatedCommand, origin: EngineSource) -> None:
    """Raise a Problem for flags that a lock's release would refuse; an image's is not known here."""
    engine, version = order.wanted.engine, origin.versions.get(order.wanted.engine)
    if version and not origin.image:
        flags.require_taken(parser.of_release(engine, version), made.flags, order.extra, table=order.table)


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
    typed = shlex.join(("medley", "ray-head", *link, *named, *site.origin(head).typed))
    yield Step(
        head, typed, ours.head(own, secret), site.image(head), joins=True, source=site.origin(head).typed
    )
    for host in others:
        source = site.origin(host).typed
        both = {name: site.facts[name] for name in (head, host)}
        wired = per_host.worker_network(both, host, (head, at), wishes, {})
        ours = _part(host, site, engine)
        typed = f"ssh {shlex.quote(head)} cat {_TOKEN} | medley ray-worker {at} --token-file -"
        typed = " ".join((typed, *named, shlex.join(source))).rstrip()
        started = ours.worker(wired, secret, _gcs(at))
        yield Step(host, typed, started, site.image(host), joins=True, source=source)


def _part(host: str, site: Topology, engine: EngineName) -> NodeSpec:
    facts, kind = site.hosts[host]
    return part(facts, kind, BARE, slots=None, path="", engine=engine)


def _gcs(head: str) -> str:
    return f"{head}:{ports.RayPorts.gcs}"


def _longer(order: Order, choice: Choice) -> str:
    """The user's own variable for a context that neither config.json nor the maker gives."""
    wanted = order.wanted
    return f"{LONGER[wanted.engine]}=1 " if choice.work.beyond_config and wanted.longer_context else ""


def _serve(order: Order, layout: Layout, site: Topology, environment: tuple[str, ...]) -> str:
    engines = ("--", *order.extra) if order.extra else ()
    return shlex.join((*_switches(order, layout, site), *environment, *engines))


def _switches(order: Order, layout: Layout, site: Topology) -> Iterator[str]:
    wanted, used = order.wanted, hosts_of(layout)
    found = order.weights
    # A folder by its path, because its name may be that of a known model.
    yield from ("medley", "serve", found.name if found.model else found.target)
    if len(used) > 1 or site.order:
        yield from ("--hosts", str(len(used)))
    elif len(devices_of(layout)) < sum(device.host == used[0] for device in site.devices()):
        yield from ("--gpus", ",".join(str(device.index) for device in devices_of(layout)))
    if wanted.balanced:
        yield "--eplb"
    yield from order.beside.typed()
    for name, value, usual in (
        ("--launcher", wanted.launcher, None),
        ("--engine", wanted.engine, "vllm"),
        ("--kv-type", wanted.kv_type, "auto"),
        ("--for", wanted.goal, "latency"),
        ("--concurrency", wanted.concurrency, 1),
        ("--context", wanted.context, None),
        ("--tp", wanted.sizes.tensor, None),
        ("--pp", wanted.sizes.stages, None),
        ("--transport", wanted.wishes.transport, None),
        ("--served-model-name", order.serving.name, found.name),
        ("--host", order.serving.address, Serving.address),
        ("--port", order.serving.port, Serving.port),
    ):
        if value != usual:
            yield from (name, str(value))
