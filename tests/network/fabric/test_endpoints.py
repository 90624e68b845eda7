"""The ways to a host: its addresses, their neighbours, their RDMA ports, and what they really carry."""

from typing import Any

import pytest

from medley.errors import Problem
from medley.host.facts import Facts
from medley.host.facts.network import Interface
from medley.host.facts.rdma import Gid
from medley.network.fabric.choice import NetworkOptions
from medley.network.fabric.choose import choose_fabric
from medley.network.fabric.nccl import SUBNET_AWARE_NCCL
from medley.network.fabric.speed import compute_pcie_mbit, find_second_functions
from tests.network.networks import group, half, host, link, port, rtx, server, spark, thor, trio


def test_a_secondary_address_never_wins() -> None:
    """Though it is the lower one: Ray and NCCL go by the first."""
    found = choose_fabric(group(server(1, link("eth0", "10.0.0.9/24", "10.0.0.1/24")), server(2)))
    assert found.endpoints["h1"].address == "10.0.0.9"


def test_the_gid_is_that_of_the_address() -> None:
    """Not the first that is RoCE v2 (fe80), nor the first with an IPv4."""
    two = link("eth0", "10.0.0.9/24", "10.8.0.9/24", mbit=100_000)
    one = link("eth0", "10.8.0.2/24", mbit=100_000)
    hosts = [host((each,), rdma=(port(each, "mlx5_0", "0000:01:00.0"),)) for each in (two, one)]
    found = choose_fabric(group(*hosts))
    assert [(end.address, end.gid_index) for end in found.endpoints.values()] == [
        ("10.8.0.9", 5),
        ("10.8.0.2", 3),
    ]
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
def test_neighbors(first: str, second: str, *, shared: bool) -> None:
    hosts = group(*(server(1, link("eth0", each)) for each in (first, second)))
    try:
        assert choose_fabric(hosts).transport == "tcp"
        there = True
    except Problem:
        there = False
    assert there is shared


def test_twins_are_told_by_card_and_port_and_not_by_name() -> None:
    renamed = [port.replace(device=f"mlx5_{n}") for n, port in enumerate(spark(1).rdma)]
    assert {one: other.device for one, other in find_second_functions(renamed).items()} == {
        "mlx5_0": "mlx5_1",
        "mlx5_1": "mlx5_0",
        "mlx5_2": "mlx5_3",
        "mlx5_3": "mlx5_2",
    }
    assert find_second_functions(rtx(1).rdma) == {}


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
    assert compute_pcie_mbit(rtx(1).rdma[0].replace(pcie_width=width, pcie_gt=gt)) == mbit


def card(nth: int, *, cards: int = 1, **more: Any) -> Facts:
    """A server with RoCE cards of one port each, each in a subnet of its own."""
    known = {"width": 16, "system_guid": None, **more}
    links = [link(f"eth{n}", f"10.{n}.0.{nth}/24", mbit=100_000, driver="mlx5_core") for n in range(cards)]
    ports = (port(each, f"mlx5_{n}", f"0000:0{n}:00.0", **known) for n, each in enumerate(links))
    return host(links, rdma=tuple(ports))


@pytest.mark.parametrize(
    ("second", "why"),
    [
        pytest.param(card(2, active=False), "h2: mlx5_0 (eth0) is not ACTIVE", id="port not ACTIVE"),
        pytest.param(
            card(2, gids=(Gid(3, "::ffff:0a00:0002", "RoCE v2", "macvlan0", "10.0.0.2"),)),
            "h2: mlx5_0 has no RoCE v2 GID of 10.0.0.2 on eth0",
            id="the GID of another interface",
        ),
        pytest.param(
            card(2, gids=(Gid(2, "::ffff:0a00:0002", "IB/RoCE v1", "eth0", "10.0.0.2"),)),
            "h2: mlx5_0 has no RoCE v2 GID of 10.0.0.2 on eth0",
            id="RoCE v1 alone",
        ),
        pytest.param(card(2).replace(rdma=()), "h2: eth0 has no RDMA device", id="no RDMA device"),
        pytest.param(
            card(2, link_layer="InfiniBand"),
            "some hosts use InfiniBand, others RoCE",
            id="unlike layers",
        ),
    ],
)
def test_one_host_without_rdma_is_tcp_for_all(second: Facts, why: str) -> None:
    found = choose_fabric(group(card(1), second))
    assert found.transport == "tcp"
    assert found.why[-1] == f"TCP on all hosts: {why}"


def test_cards_of_one_make_are_rails_unless_one_of_them_is_named() -> None:
    hosts = group(card(1, cards=2), card(2, cards=2))
    assert [len(end.ports) for end in choose_fabric(hosts).endpoints.values()] == [2, 2]
    assert [
        len(end.ports) for end in choose_fabric(hosts, NetworkOptions(link="eth1")).endpoints.values()
    ] == [
        1,
        1,
    ]


def test_functions_of_one_pci_domain_are_no_halves() -> None:
    """Virtual functions have their card's GUID and its port's name too."""
    assert find_second_functions(card(1, cards=2, system_guid="1", port_name="p0").rdma) == {}


def test_a_second_cable_hangs_on_the_same_lanes() -> None:
    def two_cables(nth: int) -> Facts:
        first, ports = half(nth, 0, ("192.168.1", "192.168.2"))
        second, more = half(nth, 1, ("192.168.3", "192.168.4"))
        return host((*first, *second), gpu="NVIDIA GB10", rdma=(*ports, *more))

    end = choose_fabric(group(two_cables(1), two_cables(2))).endpoints["h1"]
    assert (len(end.ports), end.mbit) == (4, 252_060)


def test_half_of_what_a_half_reports_where_pcie_is_not_told() -> None:
    def blind(nth: int) -> Facts:
        facts = spark(nth)
        return facts.replace(rdma=tuple(each.replace(pcie_width=None) for each in facts.rdma))

    alone = NetworkOptions(exclude=frozenset({"enP2p1s0f0np0"}))
    assert choose_fabric(group(blind(1), blind(2)), alone).endpoints["h1"].mbit == 100_000


def test_lanes_in_one_subnet_are_one_lane() -> None:
    lanes = ("10.1.0", "10.1.1", "10.1.1", "10.1.2")
    hosts = [thor(nth, lanes=lanes) for nth in (1, 2)]
    apart = [each.replace(net=each.net.replace(links=moved(each.net.links))) for each in hosts]
    assert choose_fabric(group(*apart)).endpoints["h1"].lanes == ("mgbe0_0", "mgbe3_0")


def moved(links: tuple[Interface, ...]) -> tuple[Interface, ...]:
    """mgbe2_0 with an address of its own in the subnet of mgbe1_0."""
    return tuple(
        each.replace(addresses=(each.addresses[0].replace(ip=f"{each.addresses[0].ip}0"),))
        if each.name == "mgbe2_0"
        else each
        for each in links
    )


def test_a_ring_that_is_no_faster_than_what_all_share_is_left_alone() -> None:
    def with_switch(nth: int) -> Facts:
        facts = trio(nth)
        links = tuple(
            each.replace(mbit=400_000) if each.name == "enP7s7" else each for each in facts.net.links
        )
        return facts.replace(net=facts.net.replace(links=links))

    found = choose_fabric(
        group(*(with_switch(nth) for nth in (1, 2, 3))), NetworkOptions(nccl_version=SUBNET_AWARE_NCCL)
    )
    assert (found.is_ring, found.findings, found.endpoints["h1"].interface) == (False, (), "enP7s7")
