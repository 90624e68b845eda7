"""A recipe is what to type on which host so that a model runs as it was placed, and what that starts."""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from medley import carry, membership, ray, token, wiring
from medley.engine import Serving
from medley.fabric import End, Wishes, fabric
from medley.kind import Kind
from medley.launch import BARE, launch
from medley.layout.choose import CONTEXT, Choice
from medley.layout.fit import fit
from medley.layout.order import VARIABLE
from medley.layout.shapes import Layout
from medley.layout.words import devices, hosts, pipelines
from medley.part import Part, part
from medley.placement import Wanted
from medley.plan import plan
from medley.predict import Prediction
from medley.reasoned import Reasoned
from medley.site import Site
from medley.tables import Shape
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
    why: tuple[str, ...] = ()
    """The plan's own reasons."""


@dataclass(frozen=True)
class Order:
    """What is to be served, and how it was asked for."""

    weights: Weights
    serving: Serving
    wanted: Wanted = field(default_factory=Wanted)
    extra: tuple[str, ...] = ()


def steps(order: Order, shape: Shape, choice: Choice[Prediction], site: Site) -> Iterator[Step]:
    """In the order in which they are to be typed, a replica after the other."""
    copies = pipelines(choice.layout)
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


def over_ray(head: str, secret: Path, wired: Iterable[Variable]) -> Iterator[Variable]:
    """What an engine needs that places its ranks on the hosts of this cluster, and lets them talk."""
    yield from ray.variables(secret)
    yield Variable("RAY_ADDRESS", head, "this cluster, and none that vLLM would start itself")
    yield from wired
    yield carry.variable()


def _of_pipeline(order: Order, shape: Shape, choice: Choice[Prediction], site: Site) -> Iterator[Step]:
    used = hosts(choice.layout)
    facts = {host: site.hosts[host][0] for host in used}
    cluster: tuple[Variable, ...] = ()
    if len(used) > 1:
        wishes = site.wishes(order.wanted.wishes)
        found = fabric(facts, wishes).ends
        ends = {host: found[host] for host in used}
        if not site.order:
            yield from _joining(wishes, site, ends)
        addresses = {host: end.address for host, end in ends.items()}
        _, wired = wiring.of_all(facts, addresses, used[0], wishes, {})
        cluster = tuple(over_ray(_gcs(ends[used[0]]), token.path(), wired))
    kind = site.hosts[used[0]][1]
    told = plan(
        shape,
        choice,
        facts,
        order.weights.model,
        context=order.wanted.context,
        over_ray=len(used) > 1,
    )
    started = launch(
        order.weights, kind.host, told, order.serving, tools=BARE, path="", cluster=cluster, extra=order.extra
    )
    split = f"{VARIABLE['vllm']}={order.wanted.partition} " if order.wanted.partition else ""
    typed = split + shlex.join((*_serve(order, choice.layout, site), *_environment(kind), *_engines(order)))
    yield Step(used[0], typed, started.reasoned, told.why)


def _joining(wishes: Wishes, site: Site, ends: Mapping[str, End]) -> Iterator[Step]:
    """Ray on each of these hosts, the first its head."""
    head, *others = ends
    at, secret = ends[head].address, token.path()
    place = ray.Place(Path("ray"), membership.folder(), secret)
    own = wiring.of_head(head, site.facts[head], wishes, {})
    by_itself = wishes.link is None and own.end.interface == ends[head].interface
    link = () if by_itself else ("--link", ends[head].interface)
    if link:
        own = wiring.of_head(head, site.facts[head], replace(wishes, link=link[1]), {})
    ours = _part(head, site)
    start = ray.head(place, ours.node(own), ray.Ports(), dashboard=False, more=ours.on(own))
    yield Step(head, shlex.join(("medley", "ray-head", *link, *_environment(site.hosts[head][1]))), start)
    for host in others:
        both = {name: site.facts[name] for name in (head, host)}
        wired = wiring.of_worker(both, host, (head, at), wishes, {})
        ours = _part(host, site)
        start = ray.worker(place, ours.node(wired), ray.Ports(), to=_gcs(ends[head]), more=ours.on(wired))
        typed = f"ssh {shlex.quote(head)} cat {_TOKEN} | medley ray-worker {at} --token-file -"
        typed = " ".join((typed, *_environment(site.hosts[host][1])))
        yield Step(host, typed, start)


def _part(host: str, site: Site) -> Part:
    facts, kind = site.hosts[host]
    return part(facts, kind, BARE, slots=None, path="")


def _environment(kind: Kind) -> tuple[str, ...]:
    """A kind of host that has no environment of ours needs the user's own virtualenv."""
    return () if "vllm" in kind.host.environments else ("--env", "VENV")


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
    for name, value, usual in (
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
