"""A recipe is what to type on which host so that a model runs as it was placed, and what that starts."""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from medley import carry, membership, ray, token, wiring
from medley.beside import NOTHING, Beside
from medley.engine import Serving
from medley.engines import ENGINES
from medley.fabric import End, Wishes, fabric
from medley.launch import BARE, launch
from medley.layout.choose import CONTEXT, Choice
from medley.layout.fit import fit
from medley.layout.order import VARIABLE
from medley.layout.shapes import Layout
from medley.layout.words import devices, hosts, pipelines
from medley.nodes import RANKS_PORT, nodes
from medley.part import Part, part
from medley.placement import Wanted, cached
from medley.plan import balanced, plan, understood
from medley.predict import Prediction
from medley.reasoned import Reasoned
from medley.site import Site
from medley.tables import Engine, Shape
from medley.variables import Variable
from medley.weights import Weights

_TOKEN = ".local/state/medley/token"  # noqa: S105 - where a head keeps it, from its own home folder


@dataclass(frozen=True)
class Step:
    host: str
    typed: str
    """As a person types it there."""
    starts: Reasoned
    """The process that it comes to, but for what the toolchain of that host adds."""
    image: str | None = None
    """In a container of which it is started, if in one."""
    why: tuple[str, ...] = ()
    """The plan's own reasons."""


@dataclass(frozen=True)
class Order:
    """What is to be served, and how it was asked for."""

    weights: Weights
    serving: Serving
    wanted: Wanted = field(default_factory=Wanted)
    extra: tuple[str, ...] = ()
    beside: Beside = NOTHING
    typed: tuple[str, ...] = ()
    """What asked for it, from `medley` on."""


def steps(order: Order, shape: Shape, choice: Choice[Prediction], site: Site) -> Iterator[Step]:
    """In the order in which they are to be typed, a replica after the other."""
    shape, copies = cached(shape, order.wanted), pipelines(choice.layout)
    if order.wanted.launcher == "mp" and len(hosts(choice.layout)) > 1:
        yield from _without_ray(order, shape, choice, site)
        return
    if len(copies) == 1:
        yield from _of_pipeline(order, shape, choice, site)
        return
    each = replace(order.wanted, concurrency=-(-order.wanted.concurrency // len(copies)), one_server=True)
    context = each.context or min(shape.context, CONTEXT)
    ports = dict.fromkeys(site.hosts, order.serving.port)
    for stages in copies:
        layout = replace(choice.layout, stages=stages, replicas=())
        host = hosts(layout)[0]
        serving = replace(order.serving, port=ports[host])
        ports[host] += 1
        one = replace(choice, layout=layout, fit=fit(shape, layout, context, each.concurrency))
        yield from _of_pipeline(replace(order, wanted=each, serving=serving), shape, one, site)


def over_ray(engine: Engine, head: str, secret: Path, wired: Iterable[Variable]) -> Iterator[Variable]:
    """What an engine needs that places its ranks on the hosts of this cluster, and lets them talk."""
    yield from ray.variables(secret)
    yield Variable("RAY_ADDRESS", head, "this cluster, and none that the engine would start itself")
    yield from wired
    yield carry.variable(engine)
    if engine == "sglang":
        own = head.partition(":")[0]
        yield Variable("SGLANG_HOST_IP", own, "ranks find this one at the address that Ray knows")


def _of_pipeline(order: Order, shape: Shape, choice: Choice[Prediction], site: Site) -> Iterator[Step]:
    used = hosts(choice.layout)
    facts = {host: site.hosts[host][0] for host in used}
    cluster: tuple[Variable, ...] = ()
    ends: Mapping[str, End] = {}
    if len(used) > 1:
        wishes = site.wishes(order.wanted.wishes)
        found = fabric(facts, wishes).ends
        ends = {host: found[host] for host in used}
        if not site.order:
            yield from _joining(wishes, site, ends, order.wanted.engine)
        addresses = {host: end.address for host, end in ends.items()}
        _, wired = wiring.of_all(facts, addresses, used[0], wishes, {})
        cluster = tuple(over_ray(order.wanted.engine, _gcs(ends[used[0]]), token.path(), wired))
    kind = site.hosts[used[0]][1]
    told = plan(
        shape,
        choice,
        facts,
        order.weights.model,
        context=order.wanted.context,
        launcher="ray" if len(used) > 1 else "solo",
        arguments=site.arguments(used, order.wanted.engine, shape),
    )
    if order.wanted.balanced:
        told = balanced(told, shape)
    version = site.version(used[0], order.wanted.engine)
    told = understood(told, order.wanted.engine, version, order.weights.model)
    if told.launcher == "ray":
        addresses = {host: end.address for host, end in ends.items()}
        told = replace(told, places=tuple(addresses[device.host] for device in devices(choice.layout)))
    started = launch(
        ENGINES[order.wanted.engine],
        order.weights,
        kind.host,
        told,
        order.serving,
        tools=BARE,
        environ={},
        cluster=cluster,
        extra=order.extra,
        beside=order.beside,
    )
    split = f"{VARIABLE[order.wanted.engine]}={order.wanted.partition} " if order.wanted.partition else ""
    # Over a cluster it is of what its Ray runs from.
    environment = site.typed(used[0]) if len(used) == 1 else ()
    typed = split + shlex.join((*_serve(order, choice.layout, site), *environment, *_engines(order)))
    yield Step(used[0], typed, started.reasoned, site.image(used[0]), told.why)


def _without_ray(order: Order, shape: Shape, choice: Choice[Prediction], site: Site) -> Iterator[Step]:
    """The server on the first host, which waits for the others; then what each of those runs for it."""
    wanted, used = order.wanted, hosts(choice.layout)
    facts = {host: site.facts[host] for host in used}
    wishes = site.wishes(wanted.wishes)
    addresses = {host: end.address for host, end in fabric(facts, wishes).ends.items()}
    needed = site.arguments(used, wanted.engine, shape)
    told = plan(
        shape, choice, facts, order.weights.model, context=wanted.context, launcher="mp", arguments=needed
    )
    if wanted.balanced:
        told = balanced(told, shape)
    join = f"ssh {shlex.quote(used[0])} cat {_TOKEN} | medley join {addresses[used[0]]} --token-file -"
    for host, own in nodes(told, choice.layout, addresses, RANKS_PORT).items():
        _, wired = wiring.of_all(facts, addresses, host, wishes, {})
        kind = site.hosts[host][1]
        started = launch(
            ENGINES[wanted.engine],
            order.weights,
            kind.host,
            own,
            order.serving,
            tools=BARE,
            environ={},
            cluster=wired,
            extra=order.extra,
            beside=order.beside,
        )
        environment = site.typed(host)
        serve = shlex.join((*_serve(order, choice.layout, site), *environment, *_engines(order)))
        typed = serve if host == used[0] else " ".join((join, shlex.join(environment))).rstrip()
        yield Step(host, typed, started.reasoned, why=told.why if host == used[0] else ())


def _joining(wishes: Wishes, site: Site, ends: Mapping[str, End], engine: Engine) -> Iterator[Step]:
    """Ray on each of these hosts, the first its head."""
    head, *others = ends
    named = () if engine == "vllm" else ("--engine", engine)
    at, secret = ends[head].address, token.path()
    place = ray.Place(Path("ray"), membership.folder(), secret)
    own = wiring.of_head(head, site.facts[head], wishes, {})
    by_itself = wishes.link is None and own.end.interface == ends[head].interface
    link = () if by_itself else ("--link", ends[head].interface)
    if link:
        own = wiring.of_head(head, site.facts[head], replace(wishes, link=link[1]), {})
    ours = _part(head, site, engine)
    start = ray.head(place, ours.node(own), ray.Ports(), dashboard=False, more=ours.on(own))
    typed = shlex.join(("medley", "ray-head", *link, *named, *site.typed(head)))
    yield Step(head, typed, start, site.image(head))
    for host in others:
        both = {name: site.facts[name] for name in (head, host)}
        wired = wiring.of_worker(both, host, (head, at), wishes, {})
        ours = _part(host, site, engine)
        start = ray.worker(place, ours.node(wired), ray.Ports(), to=_gcs(ends[head]), more=ours.on(wired))
        typed = f"ssh {shlex.quote(head)} cat {_TOKEN} | medley ray-worker {at} --token-file -"
        typed = " ".join((typed, *named, shlex.join(site.typed(host)))).rstrip()
        yield Step(host, typed, start, site.image(host))


def _part(host: str, site: Site, engine: Engine) -> Part:
    facts, kind = site.hosts[host]
    return part(facts, kind, BARE, slots=None, path="", engine=engine)


def _engines(order: Order) -> tuple[str, ...]:
    return ("--", *order.extra) if order.extra else ()


def _gcs(head: End) -> str:
    return f"{head.address}:{ray.Ports().gcs}"


def _serve(order: Order, layout: Layout, site: Site) -> Iterator[str]:
    """The verb and the switches that lead to this layout on these hosts."""
    wanted, used = order.wanted, hosts(layout)
    found = order.weights
    # A folder by its path: its name alone may be that of a known model, and says nothing elsewhere.
    yield from ("medley", "serve", found.name if found.model else found.target)
    if len(used) > 1 or site.order:
        yield from ("--hosts", str(len(used)))
    elif len(devices(layout)) < sum(device.host == used[0] for device in site.devices()):
        yield from ("--gpus", ",".join(str(device.index) for device in devices(layout)))
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
