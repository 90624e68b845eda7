"""`medley bench MODEL --offline`: what the engine would be told of a model on this host alone."""

import platform

from medley import config, engine, store
from medley.bench.aim import require_room
from medley.bench.load import Load
from medley.bench.offline import Alone
from medley.cli import replay
from medley.cli.placing import shape_of
from medley.cli.planned import launched, planned
from medley.described import description
from medley.layout.choose import CONTEXT
from medley.placement import Wanted
from medley.recipe import Order
from medley.recognised import answers
from medley.tables import Engine
from medley.weights import ready, weights


def alone(
    model: str,
    load: Load,
    chosen: Engine,
    environment: str | None,
    flags: tuple[str, ...],
    *,
    dry_run: bool,
    typed: tuple[str, ...],
) -> Alone:
    found = weights(model, config.models(), store.cache(), typed)
    made = shape_of(found)
    require_room(load, found.name, made.context)
    if not dry_run:
        ready(found)
    wanted = Wanted(
        concurrency=max(load.concurrencies),
        context=load.tokens if load.tokens > CONTEXT else None,
        hosts=1,
        one_server=True,
        engine=chosen,
        launcher="solo",
    )
    order = Order(found, engine.Serving(found.target, found.name), wanted, flags, typed=typed)
    site = replay.site(())
    layout, told = planned(order, site, bare=False, launched="")
    started = launched(order, told, site, None, environment, dry_run=dry_run)
    what = description(order, started, layout)
    return Alone(what, started, made.vocabulary, (platform.node(), answers()))
