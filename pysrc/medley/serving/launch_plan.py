"""Plan a job on its site: the layout of its ranks, and the plan of its engine."""

from medley import config
from medley.engine.launch import LaunchOrder
from medley.environment import engine_source
from medley.environment.engine_source import EngineRequest
from medley.errors import Problem
from medley.model import shape
from medley.planner import Layout, compatibility, list_devices, list_hosts, list_pipelines, loading
from medley.planner.choose import Choice
from medley.planner.context import find_maker_flags
from medley.planner.plan import (
    EngineOptions,
    Launcher,
    Plan,
    balance_experts,
    plan_engine,
    plan_without_shape,
)
from medley.planner.site import Site
from medley.planner.unplanned import place_without_shape
from medley.progress import Output
from medley.schema import Shape
from medley.serving.alternatives import plan_order
from medley.serving.engine_sources import add_engine_sources
from medley.serving.prepare import Job
from medley.values import Value


class JobPlan(Value):
    """The layout of a job's ranks, and the plan of its engine."""

    layout: Layout
    plan: Plan


def plan_job(job: Job, site: Site, output: Output) -> JobPlan:
    """Plan a job on these hosts; without a plan or a known shape, use the user's sizes."""
    order, placement = job.order, job.order.placement
    site = _complete_site(job, site)
    model_shape = None if job.request.is_unplanned else _read_shape(job, output)
    if model_shape is None:
        layout = place_without_shape(site, placement)
        compatibility.require_flag_values(site, list_hosts(layout), placement.engine, order.engine_flags)
        if placement.goal != "latency":
            output.say(f"--for {placement.goal} chooses a layout, and without a plan it has no effect")
        plan = _plan_without_shape(order, layout, site, _choose_launcher(job, layout))
    else:
        choice = plan_order(order, model_shape, site)
        if output.detail is not output.say:  # else print_launch prints them
            for warning in choice.warnings:
                output.say(warning)
        layout = choice.layout
        compatibility.require_flag_values(site, list_hosts(layout), placement.engine, order.engine_flags)
        plan = build_plan(order, choice, site, _choose_launcher(job, layout))
        if plan.launcher != "solo":
            plan = plan.replace(why=(*plan.why, job.launcher_reason))
    return JobPlan(layout, _add_places(plan, layout, site) if plan.launcher == "ray" else plan)


def build_plan(order: LaunchOrder, choice: Choice, site: Site, launcher: Launcher) -> Plan:
    """Return the engine's plan for a choice on these hosts; `launcher` starts its ranks."""
    placement, model, model_shape = order.placement, order.weights.model, choice.workload.shape
    hosts, engine = list_hosts(choice.layout), placement.engine
    kind_arguments, variables = compatibility.list_engine_settings(
        site, hosts, engine, model_shape, order.engine_flags
    )
    arguments = [*kind_arguments, *loading.list_loader_arguments(choice, site, engine)]
    maker_flags = find_maker_flags(model_shape, engine) if choice.workload.is_beyond_config else None
    if maker_flags:
        arguments.append((maker_flags, "the maker's way to a context longer than config.json's"))
    plan = plan_engine(
        choice,
        site.facts,
        model,
        context=placement.context,
        launcher=launcher,
        arguments=tuple(arguments),
        variables=variables,
        cache_in_bytes=compatibility.needs_cache_bytes(site, hosts, engine, order.engine_flags),
        engine=engine,
        flags=order.engine_flags,
    )
    return balance_experts(plan, model_shape.experts) if placement.balances_experts else plan


def _complete_site(job: Job, site: Site) -> Site:
    """Return the site with the engines that its hosts run."""
    request, order = job.request, job.order
    site = site.replace(
        has_user_engine=_has_user_engine(job), has_nix_toolkit=engine_source.has_nix_toolkit()
    )
    image = request.image.image if request.image else None
    if request.other_site or image == "default":
        engine_request = EngineRequest(image, request.environment)
        site = add_engine_sources(site, order.placement, engine_request, order.weights.model)
    return site


def _has_user_engine(job: Job) -> bool:
    """Return whether an engine on one host is from an image or the user's own virtualenv."""
    request = job.request
    if request.environment:
        return request.environment not in config.load_recipes()
    return bool(request.image or (job.cluster and job.cluster.image))


def _read_shape(job: Job, output: Output) -> Shape | None:
    try:
        return shape.find_shape(job.order.weights, output.progress)
    except Problem as problem:
        output.say(f"not planned: {problem.what}: {problem.cause}")
        return None


def _choose_launcher(job: Job, layout: Layout) -> Launcher:
    return "solo" if len(list_hosts(layout)) == 1 else job.order.placement.launcher or "ray"


def _plan_without_shape(order: LaunchOrder, layout: Layout, site: Site, launcher: Launcher) -> Plan:
    placement = order.placement
    options = EngineOptions(
        placement.context,
        placement.concurrency,
        placement.kv_type,
        placement.balances_experts,
        placement.engine,
        order.engine_flags,
    )
    return plan_without_shape(layout, site.facts, order.weights.model, launcher=launcher, options=options)


def _add_places(plan: Plan, layout: Layout, site: Site) -> Plan:
    """Return the plan with the address of each rank, in the order in which Ray places them."""
    places = tuple(site.addresses.get(device.host, device.host) for device in list_devices(layout))
    first = [site.addresses.get(stages[0].devices[0].host, "") for stages in list_pipelines(layout)]
    return plan.replace(rank_addresses=places, replicas_here=first.count(places[0]))
