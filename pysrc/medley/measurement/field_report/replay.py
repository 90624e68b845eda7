"""Plan a model on the hosts of a field report, from their transcripts alone."""

from collections.abc import Callable, Mapping

from medley import config
from medley.engine import Serving
from medley.engine.launch import Order
from medley.environment.engine_source import EngineRequest
from medley.host import facts
from medley.host.kind import kind_of
from medley.measurement.field_report import PlannedStage, PlanRequest, ReportedLayout, ReportedPlan, Wishes
from medley.model.resolve import Weights
from medley.network.fabric.types import NetworkOptions
from medley.planner import Layout, hosts_of, named, pipelines
from medley.planner.candidates import FREE, Sizes
from medley.planner.placement import PlacementOptions
from medley.planner.topology import Topology
from medley.schema import Shape
from medley.serving.alternatives import placed, with_engine_sources
from medley.serving.steps import steps
from medley.transcript import Transcript


def reported(layout: Layout, called: Callable[[str], str] = str) -> ReportedLayout:
    """`called` gives hosts in a text their names in the report."""
    return ReportedLayout(
        layout=called(named(layout)),
        hosts=tuple(map(called, hosts_of(layout))),
        stages=tuple(
            PlannedStage(
                devices=tuple((called(one.host), one.index) for one in each.devices), layers=each.layers
            )
            for each in layout.stages
        ),
        replicas=len(pipelines(layout)),
        rdma=layout.link.rdma if layout.link else None,
        mbit=layout.link.mbit if layout.link else None,
    )


def planned(
    name: str, shape: Shape, answers: Mapping[str, Transcript], wishes: Wishes, asked: PlanRequest
) -> ReportedPlan:
    """As `medley plan --from` plans it for one stream; nothing that was measured here counts."""
    model, hosts = config.models().get(name), asked.hosts
    wanted = PlacementOptions(
        hosts=hosts,
        sizes=Sizes(replicas=1) if asked.spread else FREE,
        wishes=NetworkOptions(dict(wishes.link) or None, frozenset(wishes.exclude)),
        one_server=True,
        engine=asked.engine,
        launcher=None if hosts is None else "solo" if hosts == 1 else "ray",
    )
    order = Order(Weights(name, name, model), Serving(name, name), wanted, typed=("medley", "serve", name))
    known = {host: facts.facts(each) for host, each in answers.items()}
    site = Topology({host: (each, kind_of(each)) for host, each in known.items()})
    site = with_engine_sources(site, wanted, EngineRequest(), model)
    choice = placed(order, shape, site)
    told = choice.prediction
    return ReportedPlan(
        asked=asked,
        shape=shape,
        made=reported(choice.layout),
        tokens_per_s=told.tokens_per_s,
        low=told.low,
        high=told.high,
        ttft_s=told.ttft_s,
        why=choice.why,
        typed=tuple(f"on {step.host}: {step.typed}" for step in steps(order, choice, site)),
    )
