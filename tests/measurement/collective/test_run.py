from pathlib import Path

import pytest

from medley.measurement.collective import run
from medley.network.fabric.choice import NetworkOptions
from tests.problems import raises_problem

HOSTS = Path(__file__).parents[2] / "host" / "recorded"
ADDRESSES = {
    "cpu-rack": "10.40.0.7",
    "spark-pair-a": "192.168.100.10",
    "spark-pair-b": "192.168.100.11",
    "thor-mgbe-a": "10.0.0.1",
    "thor-mgbe-b": "10.0.0.2",
}


@pytest.mark.parametrize(
    ("names", "variables"),
    [
        pytest.param(["cpu-rack"], {}, id="no GPU"),
        pytest.param(["spark-pair-a", "spark-pair-b"], {"NCCL_NET": "IB"}, id="RDMA on both"),
        pytest.param(["thor-mgbe-a", "thor-mgbe-b"], {"NCCL_IB_DISABLE": "1"}, id="TCP"),
    ],
)
def test_ranks_have_the_group_s_variables(names: list[str], variables: dict[str, str]) -> None:
    nodes = [
        {"name": name, "address": ADDRESSES[name], "told": (HOSTS / f"{name}.txt").read_text()}
        for name in names
    ]
    computed = run.compute_variables(nodes, {}, NetworkOptions())
    assert variables.items() <= computed.items()
    assert bool(computed) == bool(variables)
    assert not [name for name in computed if name.endswith("IFNAME")], "each host has its own"
    assert (
        run.compute_variables(
            [*nodes, {"name": "x", "address": "10.0.0.9", "told": None}], {}, NetworkOptions()
        )
        == {}
    )


def test_without_a_cluster_there_is_nothing_to_try(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    with raises_problem(fix=("medley ray-head", "medley ray-worker on each other host")):
        run.require_cluster()
