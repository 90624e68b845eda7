"""What each host's process of one plan is told."""

from medley.layout.candidates import Sizes
from medley.layout.words import hosts
from medley.nodes import nodes
from medley.placement import Wanted, placement
from medley.plan import Nodes, Plan, plan
from tests.test_placement import MODELS, shape, site


def told(spec: str, sizes: Sizes, model: str = "qwen3-32b") -> dict[str, Plan]:
    on = site(spec)
    choice = placement(shape(model), on, Wanted(sizes=sizes, concurrency=4))
    used = hosts(choice.layout)
    addresses = {host: f"10.0.0.{nth + 1}" for nth, host in enumerate(used)}
    one = plan(shape(model), choice, on.facts, MODELS[model], launcher="mp")
    return nodes(one, choice.layout, addresses, 24_020)


def test_a_stage_on_each_host() -> None:
    first, second = told("spark:2", Sizes(1, 2, 1)).values()
    assert first.nodes == Nodes(2, 0, "10.0.0.1", 24_020, "10.0.0.1")
    assert second.nodes == Nodes(2, 1, "10.0.0.1", 24_020, "10.0.0.2")
    assert first.partition == second.partition
    assert (first.gpus, second.gpus) == ((0,), (0,))
    assert first.stages == second.stages == 2


def test_replicas_are_counted_on() -> None:
    first, second = told("spark:2", Sizes(1, 1, 2), "qwen3-8b").values()
    assert (first.replicas, first.replicas_here, first.replicas_before) == (2, 1, 0)
    assert (second.replicas, second.replicas_here, second.replicas_before) == (2, 1, 1)
