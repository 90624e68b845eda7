"""Plan a model on the hosts of a field report, from their transcripts alone."""

from collections.abc import Callable, Mapping
from typing import Literal

from medley import config
from medley.engine.launch import LaunchOrder
from medley.engine.server_spec import ServerSpec
from medley.environment.engine_source import EngineRequest
from medley.host import facts
from medley.host.kind import SiteHost, find_kind
from medley.measurement.field_report.report import (
    PlannedStage,
    PlanRequest,
    ReportedLayout,
    ReportedPlan,
    Wishes,
)
from medley.model.resolve import Weights
from medley.network.fabric.choice import NetworkOptions
from medley.planner import Layout, describe_layout, list_hosts, list_pipelines
from medley.planner.candidates import NO_FORCED_SIZES, ForcedSizes
from medley.planner.placement import PlacementOptions
from medley.planner.site import Site
from medley.schema import Shape
from medley.serving.alternatives import plan_order
from medley.serving.engine_sources import add_engine_sources
from medley.serving.typed_commands import list_steps
from medley.transcript import Transcript


def report_layout(layout: Layout, rename: Callable[[str], str] = str) -> ReportedLayout:
    """Return the layout for the report; `rename` replaces the names of hosts in a text."""
    return ReportedLayout(
        layout=rename(describe_layout(layout)),
        hosts=tuple(map(rename, list_hosts(layout))),
        stages=tuple(
            PlannedStage(
                devices=tuple((rename(device.host), device.index) for device in stage.devices),
                layers=stage.layers,
            )
            for stage in layout.stages
        ),
        replicas=len(list_pipelines(layout)),
        rdma=layout.link.rdma if layout.link else None,
        mbit=layout.link.mbit if layout.link else None,
    )


def plan_model(
    name: str, shape: Shape, answers: Mapping[str, Transcript], wishes: Wishes, request: PlanRequest
) -> ReportedPlan:
    """Plan one stream as `medley plan --from` does; measurements of this host have no influence."""
    model, hosts = config.load_models().get(name), request.hosts
    launcher: Literal["solo", "ray"] | None = None
    if hosts is not None:
        launcher = "solo" if hosts == 1 else "ray"
    options = PlacementOptions(
        host_count=hosts,
        sizes=ForcedSizes(replicas=1) if request.spread else NO_FORCED_SIZES,
        network=NetworkOptions(dict(wishes.link) or None, frozenset(wishes.exclude)),
        needs_one_server=True,
        engine=request.engine,
        launcher=launcher,
    )
    command = ("medley", "serve", name)
    order = LaunchOrder(Weights(name, name, model), ServerSpec(name, name), options, user_command=command)
    facts_by_host = {host: facts.read_facts(host_answers) for host, host_answers in answers.items()}
    site = Site(
        {host: SiteHost(host_facts, find_kind(host_facts)) for host, host_facts in facts_by_host.items()}
    )
    site = add_engine_sources(site, options, EngineRequest(), model)
    choice = plan_order(order, shape, site)
    prediction = choice.prediction
    return ReportedPlan(
        asked=request,
        shape=shape,
        made=report_layout(choice.layout),
        tokens_per_s=prediction.tokens_per_s,
        low=prediction.low,
        high=prediction.high,
        ttft_s=prediction.ttft_s,
        why=choice.why,
        typed=tuple(f"on {step.host}: {step.shell_text}" for step in list_steps(order, choice, site)),
    )
