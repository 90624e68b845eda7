import pytest

from medley import spreading
from medley.plan import Plan, spread
from medley.problem import Problem


@pytest.mark.parametrize(
    ("slots", "stages", "tensor"),
    [
        pytest.param({"a": 1, "b": 1}, 2, 1, id="two hosts with a GPU each"),
        pytest.param({"a": 1, "b": 1, "c": 1, "d": 1}, 4, 1, id="four"),
        pytest.param({"a": 2, "b": 2}, 2, 2, id="two GPUs each: tensor parallel within a host"),
        pytest.param({"a": 2, "b": 1}, 3, 1, id="unlike: every slot a stage"),
    ],
)
def test_spread(slots: dict[str, int], stages: int, tensor: int) -> None:
    found = spread(Plan(why=("alone",)), slots)
    assert (found.stages, found.tensor_parallel, found.over_ray) == (stages, tensor, True)
    assert found.stages * found.tensor_parallel == sum(slots.values()), "one rank for each slot"
    assert found.why[0] == "alone"
    assert all(address in found.why[1] for address in slots)


def test_ranks_where_they_were_planned_are_no_problem() -> None:
    spreading.require_order([(0, 0, "a"), (1, 0, "b")], {"a": 1, "b": 1}, 1)
    seen = [(0, 0, "a"), (0, 1, "a"), (1, 0, "b"), (1, 1, "b")]
    spreading.require_order(seen, {"a": 2, "b": 2}, 2)


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
    with pytest.raises(Problem, match="not where they were planned") as caught:
        spreading.require_order(seen, {"a": 1, "b": 1}, 1)
    assert "planned stage 0 rank 0 on a, stage 1 rank 0 on b" in caught.value.cause


def test_serving_over_hosts_needs_a_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    assert spreading.cluster(None) is None
    assert spreading.cluster(1) is None
    with pytest.raises(Problem, match="no cluster of 2 hosts"):
        spreading.cluster(2)
