"""Plan and start the models of the tables on imagined hosts."""

from medley import config
from medley.engine.launch import LaunchOrder
from medley.engine.server_spec import ServerSpec
from medley.environment import engine_source
from medley.host.hypothetical import build_hosts
from medley.host.kind import SiteHost, find_kind
from medley.model.resolve import Weights
from medley.model.shape import compute_demo_shape
from medley.planner.placement import PlacementOptions, place_model
from medley.planner.site import Site
from medley.schema import EngineName, Shape
from medley.serving.engine_sources import add_engine_sources
from medley.serving.typed_commands import LaunchStep, list_steps

MODELS = config.load_models()


def shape(model: str) -> Shape:
    table = MODELS[model]
    if table.made:
        return compute_demo_shape(table.made)
    assert table.shape
    return table.shape


def site(kinds: str, *order: str, engine: EngineName = "vllm") -> Site:
    """Return imagined hosts with this engine; with an order they are a cluster, each with a slot."""
    hosts = Site({name: SiteHost(facts, find_kind(facts)) for name, facts in build_hosts(kinds).items()})
    if order:
        return hosts.replace(rank_order=order, free_slots=dict.fromkeys(order, 1))
    wanted = PlacementOptions(engine=engine)
    return add_engine_sources(hosts, wanted, engine_source.EngineRequest())


def launch_steps(
    model: str, hosts: Site, options: PlacementOptions | None = None, *engine_arguments: str
) -> list[LaunchStep]:
    """Return what is started to serve the model, in order and with the host of each step."""
    weights = Weights(model, str(MODELS[model].repository or "/models/demo"), MODELS[model])
    order = LaunchOrder(
        weights, ServerSpec(weights.target, model), options or PlacementOptions(), engine_arguments
    )
    return list(list_steps(order, place_model(shape(model), hosts, order.placement), hosts))
