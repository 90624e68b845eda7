"""Plan a model on the hosts of a field report, from their transcripts alone, and compare two such plans."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from medley import config
from medley.engine import Serving
from medley.engine.launch import Order
from medley.environment.engine_source import EngineRequest
from medley.host import facts
from medley.host.kind import kind_of
from medley.measurement.field_report import PlannedStage, ReportedLayout, ReportedPlan, Wishes
from medley.model.resolve import Weights
from medley.network.fabric.types import NetworkOptions
from medley.planner import Layout, named, pipelines
from medley.planner.candidates import FREE, Sizes
from medley.planner.placement import PlacementOptions
from medley.planner.topology import Topology
from medley.schema import EngineName, Shape
from medley.serving.alternatives import placed, with_engine_sources
from medley.serving.steps import steps
from medley.transcript import Transcript

_EQUAL = 1e-6
"""Two processors may round the last digits of a prediction otherwise."""
_FIGURES = ("tokens_per_s", "low", "high", "ttft_s")


def reported(layout: Layout, called: Callable[[str], str] = str) -> ReportedLayout:
    """`called` gives each host its name in the report."""
    copies = [
        tuple(
            replace(stage, devices=tuple(replace(one, host=called(one.host)) for one in stage.devices))
            for stage in stages
        )
        for stages in pipelines(layout)
    ]
    return ReportedLayout(
        layout=named(replace(layout, stages=copies[0], replicas=tuple(copies[1:]))),
        stages=tuple(
            PlannedStage(devices=tuple((one.host, one.index) for one in each.devices), layers=each.layers)
            for each in copies[0]
        ),
        replicas=len(copies),
        rdma=layout.link.rdma if layout.link else None,
        mbit=layout.link.mbit if layout.link else None,
    )


def planned(
    name: str,
    shape: Shape,
    answers: Mapping[str, Transcript],
    wishes: Wishes,
    *,
    engine: EngineName,
    hosts: int | None,
    spread: bool,
) -> ReportedPlan:
    """As `medley plan --from` plans it for one stream; nothing that was measured here counts."""
    model = config.models().get(name) if name in config.models() else None
    wanted = PlacementOptions(
        hosts=hosts,
        sizes=Sizes(replicas=1) if spread else FREE,
        wishes=NetworkOptions(dict(wishes.link) or None, frozenset(wishes.exclude)),
        one_server=True,
        engine=engine,
        launcher=None if hosts is None else "solo" if hosts == 1 else "ray",
    )
    order = Order(Weights(name, name, model), Serving(name, name), wanted, typed=("medley", "serve", name))
    known = {host: facts.facts(each) for host, each in answers.items()}
    site = Topology({host: (each, kind_of(each)) for host, each in known.items()})
    site = with_engine_sources(site, wanted, EngineRequest(), model)
    choice = placed(order, shape, site)
    told = choice.prediction
    return ReportedPlan(
        **dict(reported(choice.layout)),
        engine=engine,
        hosts=hosts,
        spread=spread,
        shape=shape,
        tokens_per_s=told.tokens_per_s,
        low=told.low,
        high=told.high,
        ttft_s=told.ttft_s,
        why=choice.why,
        typed=tuple(f"on {step.host}: {step.typed}" for step in steps(order, choice, site)),
    )


def differences(then: ReportedPlan, now: ReportedPlan) -> Iterator[str]:
    """Yield what a plan says otherwise than an earlier one, a line each."""
    for key in ReportedPlan.model_fields:
        before, after = getattr(then, key), getattr(now, key)
        same = math.isclose(before, after, rel_tol=_EQUAL) if key in _FIGURES else before == after
        if isinstance(before, tuple) and not same:
            yield from (f"{key}: - {each}" for each in before if each not in after)
            yield from (f"{key}: + {each}" for each in after if each not in before)
        elif not same:
            yield f"{key}: {before} then, {after} now"
