"""Visiting is looking at the hosts that may make a cluster, all at once; who is away has its reason."""

from collections.abc import Mapping
from dataclasses import replace

from medley import config, facts, recognised, transcript
from medley.cluster import Cluster
from medley.everyone import Everyone, counted, is_here
from medley.problem import Problem
from medley.prospects import Prospect
from medley.visit import Visit
from medley.watch import Watch

_LOOK_LIMIT_S = 90


def visits(chosen: Mapping[str, Prospect], watch: Watch) -> dict[str, Visit]:
    """All of them at once, by their names in the cluster."""
    hosts = {name: {"ssh": each.target} for name, each in chosen.items()}
    cluster = config.build({"hosts": hosts}, Cluster, "the hosts")
    with watch.stage(f"look at {counted(chosen)}"), Everyone(cluster, watch) as everyone:
        looks = everyone.ask("look", lambda _: {}, limit_s=_LOOK_LIMIT_S)
        made = {}
        for name, each in chosen.items():
            found = Visit(name, each.target, is_here(cluster, name), problem=everyone.failed.get(name))
            if name in looks:
                called = str(everyone.remotes[name].greeting.get("host", ""))
                found = _seen(replace(found, called=called), str(looks[name]["transcript"]))
            made[name] = found
    return made


def _seen(visit: Visit, said: str) -> Visit:
    found = facts.facts(transcript.parse(said))
    try:
        return replace(visit, facts=found, kind=recognised.kind_of(found))
    except Problem as problem:
        return replace(visit, facts=found, problem=problem)
