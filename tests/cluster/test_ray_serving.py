import pytest

from medley.cluster import ray_serving
from medley.planner.placement import PlacementOptions, place_model
from tests.planner.imagined import shape, site
from tests.problems import raises_problem


def test_what_takes_part_and_what_is_left_alone() -> None:
    """By address, in the order of ranks: one of the first host's two slots, and the third host."""
    found = site("cpu:3").replace(
        rank_order=("cpu-2", "cpu-1", "cpu-3"),
        free_slots={"cpu-2": 2, "cpu-1": 1, "cpu-3": 1},
        addresses={"cpu-1": "10.40.0.10", "cpu-2": "10.40.0.11", "cpu-3": "10.40.0.12"},
    )
    layout = place_model(shape("demo"), found, PlacementOptions(host_count=2)).layout
    use = ray_serving.count_slots(layout, found)
    assert list(use.used.items()) == [("10.40.0.11", 1), ("10.40.0.10", 1)]
    assert use.free == {"10.40.0.11": 1, "10.40.0.12": 1}


def test_ranks_where_they_were_planned_are_no_problem() -> None:
    ray_serving.require_rank_order([(0, 0, "a"), (1, 0, "b")], {"a": 1, "b": 1}, 1)
    seen = [(0, 0, "a"), (0, 1, "a"), (1, 0, "b"), (1, 1, "b")]
    ray_serving.require_rank_order(seen, {"a": 2, "b": 2}, 2)


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param([(0, 0, "b"), (1, 0, "a")], id="the other way round"),
        pytest.param([(0, 0, "a"), (1, 0, "a")], id="both on one host"),
        pytest.param([(0, 0, "a")], id="one is missing"),
        pytest.param([], id="none"),
    ],
)
def test_ranks_elsewhere_are_a_problem_that_says_where(seen: list[tuple[int, int, str]]) -> None:
    with raises_problem(cause="planned: stage 0 rank 0 on a, stage 1 rank 0 on b"):
        ray_serving.require_rank_order(seen, {"a": 1, "b": 1}, 1)


def test_serving_over_hosts_needs_a_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    assert ray_serving.find_cluster(None) is None
    assert ray_serving.find_cluster(1) is None
    with raises_problem("2 hosts", fix=("medley init HOST HOST", "medley up")):
        ray_serving.find_cluster(2)
