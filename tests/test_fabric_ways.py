"""The ways to a host: its addresses, their neighbours, their RDMA ports, and what they really carry."""

from dataclasses import replace

import pytest

from medley.fabric import fabric
from medley.fabric.speed import pcie_mbit, twins
from medley.problem import Problem
from tests.networks import group, host, link, port, rtx, server, spark


def test_a_secondary_address_never_wins() -> None:
    """Though it is the lower one: Ray and NCCL go by the first."""
    found = fabric(group(server(1, link("eth0", "10.0.0.9/24", "10.0.0.1/24")), server(2)))
    assert found.ends["h1"].address == "10.0.0.9"


def test_the_gid_is_that_of_the_address() -> None:
    """Not the first that is RoCE v2 (fe80), nor the first with an IPv4."""
    two = link("eth0", "10.0.0.9/24", "10.8.0.9/24", mbit=100_000)
    one = link("eth0", "10.8.0.2/24", mbit=100_000)
    hosts = [host((each,), rdma=(port(each, "mlx5_0", "0000:01:00.0"),)) for each in (two, one)]
    found = fabric(group(*hosts))
    assert [(end.address, end.gid_index) for end in found.ends.values()] == [("10.8.0.9", 5), ("10.8.0.2", 3)]
    assert found.gid_index is None


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        pytest.param("10.0.0.1/24", "10.0.0.2/16", True, id="one wider, each in the other's"),
        pytest.param("10.0.0.1/24", "10.0.7.2/16", False, id="one does not hold the other for a neighbour"),
        pytest.param("10.0.0.1/30", "10.0.0.9/24", False, id="a cable's subnet is narrow"),
        pytest.param("10.0.0.1/31", "10.0.0.0/31", True, id="a cable in /31"),
        pytest.param("10.0.0.1/32", "10.0.0.2/32", False, id="an address of its own"),
    ],
)
def test_neighbours(first: str, second: str, *, shared: bool) -> None:
    hosts = group(*(server(1, link("eth0", each)) for each in (first, second)))
    try:
        assert fabric(hosts).transport == "tcp"
        there = True
    except Problem:
        there = False
    assert there is shared


def test_twins_are_told_by_card_and_port_and_not_by_name() -> None:
    renamed = [replace(port, device=f"mlx5_{n}") for n, port in enumerate(spark(1).rdma)]
    assert {one: other.device for one, other in twins(renamed).items()} == {
        "mlx5_0": "mlx5_1",
        "mlx5_1": "mlx5_0",
        "mlx5_2": "mlx5_3",
        "mlx5_3": "mlx5_2",
    }
    assert twins(rtx(1).rdma) == {}


@pytest.mark.parametrize(
    ("width", "gt", "mbit"),
    [
        pytest.param(4, 32.0, 126_030, id="half of a Spark's cage"),
        pytest.param(2, 32.0, 63_015, id="with an old BIOS"),
        pytest.param(8, 5.0, 32_000, id="PCIe 2, whose code is 8/10"),
        pytest.param(None, 32.0, None, id="not told"),
    ],
)
def test_what_pcie_carries(width: int | None, gt: float, mbit: int | None) -> None:
    assert pcie_mbit(replace(rtx(1).rdma[0], pcie_width=width, pcie_gt=gt)) == mbit
