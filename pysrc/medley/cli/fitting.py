"""Fitting is what the doctor says of a model: how it would lie on these hosts, or why it cannot."""

from typing import TYPE_CHECKING

from medley.problem import Problem

if TYPE_CHECKING:  # imported when it is asked for, to keep `medley --help` fast
    from medley.doctor.shapes import Case


def fits(
    model: str, case: "Case", typed: tuple[str, ...], files: tuple[str, ...]
) -> "tuple[str, Problem | None]":
    """On the hosts whose kind is known; `typed` was what asks, of the hosts of these files, if any."""
    from medley import config, store
    from medley.cli.placing import shape_of
    from medley.engine import Serving
    from medley.instead import placed
    from medley.layout.words import named
    from medley.placement import Wanted
    from medley.recipe import Order
    from medley.site import Site
    from medley.weights import weights

    hosts = {name: (host.facts, host.kind) for name, host in case.hosts.items() if host.kind}
    if not hosts:
        return "", Problem(
            "nothing can be said of where it would lie",
            cause="no host here is of a known kind",
            fix="mend what keeps them from being recognised, which is said above",
        )
    try:
        found = weights(model, config.models(), store.cache(), typed)
        wanted = Wanted(wishes=case.wishes, engine=case.engine)
        plan = ("medley", "plan", model, *(("--from", *files) if files else ()))
        order = Order(found, Serving(found.target, found.name), wanted, typed=plan)
        chosen = placed(order, shape_of(found), Site(hosts))
    except Problem as problem:
        return "", problem
    free = min(rank.free_bytes for rank in chosen.fit.ranks)
    return f"{found.name} fits: {named(chosen.layout)}; {free / (1 << 30):.1f} GiB to spare at least", None
