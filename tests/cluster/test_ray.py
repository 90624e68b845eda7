from itertools import pairwise
from pathlib import Path

import pytest

from medley.cluster import ray
from medley.cluster.ray import Node
from medley.command import Command
from medley.network.ports import RENDEZVOUS_PORT, RayPorts

NODE = Node("10.0.0.2", 1, 20, 128 << 30, Path("/e/bin/ray"), Path("/s/ray"), Path("/s/token"))


def flags(command: Command) -> dict[str, str]:
    """A command's flags and their values; those without one are left out."""
    words = [part for word in command.argv for part in word.split("=")]
    return {name: value for name, value in pairwise(words) if name.startswith("--") and value[:2] != "--"}


def test_a_head() -> None:
    command = ray.build_head_command(NODE, dashboard=False, extra_variables=()).command
    given = flags(command)
    assert command.argv[:3] == ("/e/bin/ray", "start", "--head")
    assert given["--node-ip-address"] == "10.0.0.2"
    assert given["--num-gpus"] == "1"
    assert given["--include-dashboard"] == "false"
    assert given["--port"] == "24000"


def test_a_worker() -> None:
    given = flags(ray.build_worker_command(NODE, head_address="10.0.0.1:24000", extra_variables=()).command)
    assert given["--address"] == "10.0.0.1:24000"
    assert "--port" not in given


def test_every_port_is_in_the_one_range_and_taken_once() -> None:
    command = ray.build_head_command(NODE, dashboard=True, extra_variables=()).command
    named = {**flags(command), **command.env}
    numbers = [int(value) for name, value in named.items() if name.lower().endswith("port")]
    assert len(numbers) == 13
    assert RENDEZVOUS_PORT not in numbers
    assert len(set(numbers)) == len(numbers)
    assert all(RayPorts.first <= number <= RayPorts.last for number in numbers)


def test_the_token_is_a_file_and_never_an_argument() -> None:
    command = ray.build_head_command(NODE, dashboard=False, extra_variables=()).command
    assert command.env["RAY_AUTH_MODE"] == "token"
    assert command.env["RAY_AUTH_TOKEN_PATH"] == "/s/token"
    assert not [word for word in command.argv if "token" in word]


@pytest.mark.parametrize(
    ("gib", "mib"), [(128, 1024), (8, 512), (1, 80)], ids=["a Spark", "a small host", "a tiny one"]
)
def test_the_object_store_is_small(gib: int, mib: int) -> None:
    assert ray.compute_object_store_bytes(gib << 30) == mib << 20


def test_ranks_go_to_the_drivers_node_first_and_then_by_rays_id() -> None:
    def node(address: str, identity: str, *, alive: bool = True, free: int = 1) -> dict[str, object]:
        return {"address": address, "id": identity, "alive": alive, "free": free}

    nodes = [
        node("10.0.0.2", "ff"),
        node("10.0.0.3", "0a"),
        node("10.0.0.1", "cc"),
        node("10.0.0.4", "00", alive=False),
        node("10.0.0.5", "01", free=0),
    ]
    ordered = [each["address"] for each in ray.sort_by_rank_order(nodes, "10.0.0.1")]
    assert ordered == ["10.0.0.1", "10.0.0.3", "10.0.0.2"]


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        pytest.param(["vllm_Worker_ab_PP1", "vllm_Worker_ab_PP0"], [(0, 0, "a1"), (1, 0, "a0")], id="stages"),
        pytest.param(["vllm_Worker_ab_TP0", "vllm_Worker_ab_TP1"], [(0, 0, "a0"), (0, 1, "a1")], id="tensor"),
        pytest.param(
            ["vllm_Worker_ab_TP1_PP1", "vllm_Worker_ab_TP0_PP1"], [(1, 0, "a1"), (1, 1, "a0")], id="both"
        ),
    ],
)
def test_ranks(names: list[str], ranks: list[tuple[int, int, str]]) -> None:
    actors = [{"name": name, "address": f"a{at}"} for at, name in enumerate(names)]
    assert ray.parse_ranks(actors) == ranks
