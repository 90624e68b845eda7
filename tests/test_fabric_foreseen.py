"""What a host takes before it knows any other."""

import pytest

from medley.fabric import Wishes
from medley.fabric.foreseen import foreseen
from medley.facts import Facts
from medley.problem import Problem
from tests.networks import BRIDGE_OF_DOCKER, DOCKER, TAILSCALE, host, link, orin, rtx, server, spark, thor

CLUTTER = (DOCKER, BRIDGE_OF_DOCKER, TAILSCALE)


@pytest.mark.parametrize(
    ("facts", "wishes", "interface", "ports"),
    [
        # Both halves of the cage in which the cable is, whichever it is.
        pytest.param(spark(1), Wishes(), "enp1s0f0np0", ["rocep1s0f0", "roceP2p1s0f0"], id="a Spark"),
        pytest.param(
            spark(1, cage=1), Wishes(), "enp1s0f1np1", ["rocep1s0f1", "roceP2p1s0f1"], id="the other cage"
        ),
        pytest.param(
            spark(1, second="192.168.100"), Wishes(), "enp1s0f0np0", ["rocep1s0f0"], id="halves in one subnet"
        ),
        pytest.param(thor(1), Wishes(), "mgbe0_0", [], id="a Thor: its fast lanes, no RDMA"),
        pytest.param(orin(1), Wishes(), "eno1", [], id="an Orin"),
        pytest.param(rtx(1), Wishes(), "enp65s0np0", ["mlx5_0"], id="RTX with a ConnectX"),
        pytest.param(rtx(1), Wishes("enp5s0"), "enp5s0", [], id="as named, though slower"),
        pytest.param(rtx(1), Wishes("10.0.0.0/24"), "enp5s0", [], id="as named by its network"),
        pytest.param(
            rtx(1), Wishes(exclude=frozenset({"enp65s0np0"})), "enp5s0", [], id="not what is excluded"
        ),
        pytest.param(
            server(3, *CLUTTER, link("eth0", "10.0.0.3/24", mbit=1000)), Wishes(), "eth0", [], id="clutter"
        ),
        pytest.param(
            server(255, link("eth0", "10.0.0.254/24")), Wishes(), "eth0", [], id="the network's last address"
        ),
    ],
)
def test_the_fastest_way_out(facts: Facts, wishes: Wishes, interface: str, ports: list[str]) -> None:
    found = foreseen("here", facts, wishes)
    end = found.ends["here"]
    assert end.interface == interface
    assert [port.device for port in end.ports] == ports
    assert list(found.ends) == ["here"]
    taken = {interface, *end.lanes, *(port.interface for port in end.ports)}
    assert {one.interface for one in found.rejected} == {each.name for each in facts.net.links} - taken


def test_no_way_out_is_a_problem_with_every_link_and_its_reason() -> None:
    with pytest.raises(Problem, match="no address that others could reach") as caught:
        foreseen("here", host(CLUTTER), Wishes())
    for name in ("lo", "docker0", "tailscale0"):
        assert f"{name}: " in caught.value.cause


def test_a_link_that_is_not_there_is_a_problem() -> None:
    with pytest.raises(Problem) as caught:
        foreseen("here", rtx(1), Wishes("eth7"))
    assert "eth7" in str(caught.value)
