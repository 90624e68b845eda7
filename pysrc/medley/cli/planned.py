"""What an order comes to on a site: its layout and what the engine is told, or what to type on each host."""

import os
from collections.abc import Callable
from dataclasses import replace

from medley import dialect, origin, origins, spreading, tools, venv
from medley.cli.placing import shape_of
from medley.cli.progress import watch
from medley.cli.reasons import show_steps
from medley.cli.served import say
from medley.engines import ENGINES
from medley.imaged import Imaged
from medley.instead import placed
from medley.kind import Kind
from medley.launch import BARE, Launch, Tools, launch
from medley.layout.shapes import Layout
from medley.layout.words import devices, hosts, pipelines
from medley.membership import Membership
from medley.origin import Asked
from medley.placement import cached, unplaced
from medley.plan import Launcher, Plan, balanced, plan, understood, unplanned
from medley.problem import Problem
from medley.recipe import Order, steps
from medley.site import Site
from medley.tables import Engine


def what_if(order: Order, site: Site, asked: Asked, *, as_json: bool) -> None:
    """On hosts that are not a cluster here, where replicas are servers of their own."""
    site = origins.chosen(site, order.wanted, asked, order.weights.model)
    one = order.wanted.launcher == "mp"
    order = replace(order, wanted=replace(order.wanted, one_server=one))
    made = shape_of(order.weights)
    show_steps(steps(order, made, placed(order, made, site), site), as_json=as_json)


def planned(order: Order, site: Site, *, bare: bool, launched: str) -> tuple[Layout, Plan]:
    """Where its ranks lie, and what the engine is told; `bare` or unknown: as the user cuts it.

    `launched` is why its launcher is the one that the order has.
    """
    found, wanted = order.weights, order.wanted
    try:
        made = None if bare else shape_of(found)
    except Problem as problem:
        say(f"not planned: {problem.what}: {problem.cause}")
        made = None
    if made is None:
        layout = unplaced(site, wanted)
        return layout, unplanned(layout, site.facts, found.model, launcher=_launcher(layout, order))
    choice = placed(order, made, site)
    by = _launcher(choice.layout, order)
    shape = cached(made, wanted)
    needed = site.arguments(hosts(choice.layout), wanted.engine, shape)
    told = plan(shape, choice, site.facts, found.model, context=wanted.context, launcher=by, arguments=needed)
    if wanted.balanced:
        told = balanced(told, made)
    places = tuple(site.addresses.get(device.host, device.host) for device in devices(choice.layout))
    why = (*told.why, launched) if by != "solo" else told.why
    first = places[0] if places else ""
    here = sum(
        site.addresses.get(stages[0].devices[0].host, "") == first for stages in pipelines(choice.layout)
    )
    return choice.layout, replace(
        told, places=places if by == "ray" else (), replicas_here=here if by == "ray" else 1, why=why
    )


def _launcher(layout: Layout, order: Order) -> Launcher:
    return "solo" if len(hosts(layout)) == 1 else order.wanted.launcher or "ray"


def launched(
    order: Order,
    plan: Plan,
    site: Site,
    joined: Membership | None,
    source: Imaged | str | None,
    *,
    dry_run: bool,
    make: Callable[..., Launch] = launch,
) -> Launch:
    """The command on the first host of this site; `joined`: over all of them; `make`: out of all that.

    `source` is an image, or what --env said.
    """
    _, kind = site.first
    engine = ENGINES[order.wanted.engine]
    chosen = BARE
    if not isinstance(source, Imaged):
        # In a cluster the engine is of the environment whose Ray runs, however this host would choose now.
        named = joined.environment if joined and not source else source
        ready = tools.expected if dry_run else tools.ready
        chosen = ready(kind, named, engine=order.wanted.engine, joins=joined is not None, watch=watch())
        dialect.require_known(engine, chosen.binary, order.extra, ask=not dry_run, watch=watch())
    cluster = spreading.settings(joined, site, order.wanted, os.environ, watch()) if joined else ()
    version = _version(source, chosen, kind, order.wanted.engine)
    _require_known(order, version)
    plan = understood(plan, order.wanted.engine, version, order.weights.model)
    made = make(
        engine,
        order.weights,
        kind.host,
        plan,
        order.serving,
        tools=chosen,
        environ=os.environ,
        cluster=tuple(cluster),
        extra=order.extra,
        beside=order.beside,
    )
    return source.launched(made, order.serving, over_ray=bool(joined)) if isinstance(source, Imaged) else made


def _version(source: Imaged | str | None, chosen: Tools, kind: Kind, engine: Engine) -> str | None:
    """Of the engine that will run, where it is known; an image nobody looked into is as hosts/ has it."""
    if not isinstance(source, Imaged):
        return venv.versions(chosen.binary.parent, (engine,))[engine] if chosen.binary.parts else None
    if source.held:
        return source.versions((engine,))[engine]
    default = kind.host.container
    return default.holds.get(engine) if source.choice.image.name == default.image else None


def _require_known(order: Order, version: str | None) -> None:
    lacks = origin.unknown(order.weights.model, order.wanted.engine, version)
    if lacks:
        raise Problem(
            f"{order.weights.name} cannot be served out of this {ENGINES[order.wanted.engine].TITLE}",
            cause=lacks,
            fix="--image or --env with a newer one; a Jetson Orin on JetPack 6: docs/orin.md",
        )
