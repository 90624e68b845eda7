"""What one recorded host would bring to a group."""

import pytest

from medley.fabric import Wishes
from medley.fabric.alone import alone
from medley.fabric.foreseen import foreseen
from medley.problem import Problem
from tests.recorded import recorded, with_networks


@pytest.mark.parametrize(
    ("name", "wishes", "expected"),
    [
        pytest.param(
            "spark-pair-a", Wishes(), ["enp1s0f1np1", "enP2p1s0f1np1", "enP7s7"], id="fast before slow"
        ),
        pytest.param(
            "spark-pcie-x2", Wishes(), ["enp1s0f1np1", "enP2p1s0f1np1", "enP7s7"], id="x2 is second"
        ),
        pytest.param(
            "spark-twins-one-subnet", Wishes(), ["enp1s0f1np1", "enP7s7"], id="twins in one subnet: one"
        ),
        pytest.param(
            "spark-twins-one-subnet", Wishes(link="enP2p1s0f1np1"), ["enP2p1s0f1np1"], id="one was named"
        ),
        pytest.param("cpu-rack", Wishes(), ["bond0.40", "eno1", "idrac"], id="a rack"),
        pytest.param("rtx-vpn-docker", Wishes(), ["enp5s0"], id="clutter"),
        pytest.param("rtx-vpn-docker", Wishes(exclude=frozenset({"enp5s0"})), ["wlp6s0"], id="no wire left"),
        pytest.param(
            "rtx-vpn-docker", Wishes(link="tailscale0"), ["tailscale0"], id="a tunnel that is named"
        ),
        pytest.param("orin-pair-a", Wishes(), ["eno1", "eno1"], id="two subnets on one wire"),
    ],
)
def test_the_order_of_the_ways_of_a_host(name: str, wishes: Wishes, expected: list[str]) -> None:
    assert [way.link.name for way in alone(name, recorded(name), wishes).ways] == expected


@pytest.mark.parametrize("name", with_networks())
def test_every_link_is_a_way_or_has_its_reason(name: str) -> None:
    found = alone(name, recorded(name), Wishes())
    lost = [each.interface for each in found.rejected]
    kept = {way.link.name for way in found.ways}
    assert sorted((*kept, *lost)) == sorted(link.name for link in recorded(name).net.links)


@pytest.mark.parametrize("name", with_networks())
def test_the_best_way_is_what_a_head_takes_before_it_knows_others(name: str) -> None:
    first = alone(name, recorded(name), Wishes()).ways[0]
    end = foreseen(name, recorded(name), Wishes()).ends[name]
    assert (first.link.name, str(first.ip)) == (end.interface, end.address)


@pytest.mark.parametrize(
    ("name", "interface", "why"),
    [
        (
            "spark-twins-one-subnet",
            "enP2p1s0f1np1",
            "enp1s0f1np1 and enP2p1s0f1np1 are both in 192.168.100.0/24, and either may answer for the other",
        ),
        ("rtx-vpn-docker", "wlp6s0", "Wi-Fi, and enp5s0 is a wire to the same network"),
        ("rtx-vpn-docker", "docker0", "it belongs to containers, and has the like on every host"),
    ],
)
def test_why_a_link_is_no_way(name: str, interface: str, why: str) -> None:
    found = alone(name, recorded(name), Wishes())
    assert {each.interface: each.why for each in found.rejected}[interface] == why


@pytest.mark.parametrize(
    ("name", "wishes", "words"),
    [
        ("spark-twins-one-subnet", Wishes(), ["both in 192.168.100.0/24"]),
        ("spark-one-half-down", Wishes(), ["one half of the cage carries nothing"]),
        ("spark-pcie-x2", Wishes(), ["2 of 4 PCIe lanes"]),
        ("spark-pair-a", Wishes(), []),
        ("spark-pair-a", Wishes(exclude=frozenset({"enP2p1s0f1np1"})), []),
        ("thor-mgbe-a", Wishes(), []),
    ],
    ids=["twins", "half down", "x2", "right", "a half left out", "Thor"],
)
def test_what_is_said_of_one_host(name: str, wishes: Wishes, words: list[str]) -> None:
    found = [each.what for each in alone(name, recorded(name), wishes).findings]
    assert [word in said for word, said in zip(words, found, strict=True)] == [True] * len(found)


def test_a_link_that_is_not_there() -> None:
    with pytest.raises(Problem, match="has no link eth9"):
        alone("a", recorded("spark"), Wishes(link="eth9"))


def test_rdma_is_first_where_it_is_asked_for() -> None:
    rack = alone("a", recorded("rtx-roce"), Wishes(transport="rdma"))
    assert [way.port is not None for way in rack.ways] == [True, False]
