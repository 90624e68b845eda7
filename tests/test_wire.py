import json

import pytest

from medley.problem import Problem
from medley.wire import Wire, own, towards, variables, wires


def link(name: str, *addresses: str, flags: tuple[str, ...] = ("UP",)) -> dict[str, object]:
    info = [{"family": "inet", "local": address} for address in addresses]
    return {"ifname": name, "flags": list(flags), "addr_info": info}


SPARK = json.dumps(
    [
        link("lo", "127.0.0.1", flags=("LOOPBACK", "UP")),
        link("enP7s7", "198.51.100.10"),
        link("enp1s0f0np0", "198.18.0.1"),
        link("docker0", "172.17.0.1"),
        link("tailscale0", "100.64.0.1"),
    ]
)


def test_what_no_other_host_reaches_is_no_wire() -> None:
    assert wires(SPARK) == (Wire("enP7s7", "198.51.100.10"), Wire("enp1s0f0np0", "198.18.0.1"))
    assert wires("") == ()


@pytest.mark.parametrize("asked", ["198.18.0.1", "enp1s0f0np0"], ids=["by its address", "by its interface"])
def test_a_head_takes_what_was_asked(asked: str) -> None:
    assert own(wires(SPARK), asked) == Wire("enp1s0f0np0", "198.18.0.1")


def test_a_head_takes_the_only_one() -> None:
    assert own((Wire("eth0", "10.0.0.1"),), None).address == "10.0.0.1"


@pytest.mark.parametrize(
    ("found", "asked", "what"),
    [
        pytest.param(wires(SPARK), None, "several addresses", id="several"),
        pytest.param((), None, "no address", id="none"),
        pytest.param(wires(SPARK), "eth9", "has no eth9", id="not there"),
    ],
)
def test_a_head_that_cannot_choose_says_what_it_has(
    found: tuple[Wire, ...], asked: str | None, what: str
) -> None:
    with pytest.raises(Problem) as caught:
        own(found, asked)
    assert what in caught.value.what
    assert "198.18.0.1" in caught.value.cause or not found


def test_a_worker_takes_the_way_to_the_head() -> None:
    route = [{"dst": "10.0.0.1", "dev": "eth1", "prefsrc": "10.0.0.2", "flags": [], "uid": 0}]
    assert towards("10.0.0.1", json.dumps(route)) == Wire("eth1", "10.0.0.2")


@pytest.mark.parametrize(
    ("said", "what"),
    [
        pytest.param("", "no route to 10.0.0.1", id="unreachable"),
        pytest.param("[]", "no route to 10.0.0.1", id="nothing"),
        pytest.param('[{"dev": "lo", "prefsrc": "127.0.0.1"}]', "is this host itself", id="itself"),
    ],
)
def test_no_way_is_a_problem(said: str, what: str) -> None:
    with pytest.raises(Problem, match=what):
        towards("10.0.0.1", said)


def test_names_match_exactly_where_they_would_match_by_prefix() -> None:
    found = {each.name: each.value for each in variables(Wire("eth1", "10.0.0.2"))}
    assert found["NCCL_SOCKET_IFNAME"] == "=eth1"
    assert found["GLOO_SOCKET_IFNAME"] == found["TP_SOCKET_IFNAME"] == found["UCX_NET_DEVICES"] == "eth1"
