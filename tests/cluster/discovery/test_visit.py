import pytest

from medley.cluster.discovery.visit import (
    HostSurvey,
    choose_head,
    describe_network,
    require_distinct_hosts,
    use_hostnames,
)
from medley.errors import Problem
from medley.host.facts.network import Net
from medley.host.kind import find_kind
from tests.host.recordings import recorded
from tests.problems import raises_problem

AWAY = Problem("thor-1 cannot be reached", cause="it does not answer (No route to host)", fix="ping thor-1")


def visit(
    name: str, of: str, *, here: bool = False, called: str | None = None, target: str = ""
) -> HostSurvey:
    found = recorded(of)
    return HostSurvey(name, target or name, here, name if called is None else called, found, find_kind(found))


ONE = visit("spark-1", "spark-pair-a")
TWO = visit("spark-2", "spark-pair-b")
DESK = visit("desk", "rtx-4090")
THOR = HostSurvey("thor-1", "thor-1", problem=AWAY)


def by_name(*visits: HostSurvey) -> dict[str, HostSurvey]:
    return {each.name: each for each in visits}


def test_what_only_an_image_can_run() -> None:
    assert visit("orin-1", "orin-r36").is_container_only
    assert not any(each.is_container_only for each in (ONE, DESK, THOR, visit("orin-2", "orin-r39")))


def test_a_host_in_a_line() -> None:
    assert ONE.description.startswith("spark, 121.7")
    assert "GiB, enp1s0f1np1 192.168.100.10" in ONE.description
    assert ONE.description.endswith("RDMA")
    assert THOR.description == "not reached: it does not answer (No route to host)"
    assert list(THOR.comments) == [
        f"When this file was written it was {THOR.description}",
        "To fix it: ping thor-1",
    ]
    assert list(ONE.comments) == [ONE.description]


@pytest.mark.parametrize(
    ("visits", "wanted", "expected"),
    [
        pytest.param((ONE, TWO.replace(is_this_host=True)), None, "spark-2", id="this host"),
        pytest.param((THOR, DESK, ONE), None, "spark-1", id="the most memory"),
        pytest.param((ONE, TWO), None, "spark-1", id="the first of equals"),
        pytest.param((THOR, THOR.replace(name="thor-2")), None, "thor-1", id="nobody answers"),
        pytest.param((ONE.replace(is_this_host=True), DESK), "desk", "desk", id="as wanted"),
        pytest.param((ONE, TWO.replace(target="me@10.0.0.2")), "10.0.0.2", "spark-2", id="by its address"),
    ],
)
def test_the_head(visits: tuple[HostSurvey, ...], wanted: str | None, expected: str) -> None:
    assert choose_head(by_name(*visits), wanted) == expected


def test_a_head_that_is_none_of_them() -> None:
    with raises_problem("spark-9", cause="spark-1, spark-2", fix="--head spark-1"):
        choose_head(by_name(ONE, TWO), "spark-9")


@pytest.mark.parametrize(
    ("name", "called", "expected"),
    [
        pytest.param("10.0.0.2", "spark-2", "spark-2", id="an address gets a name"),
        pytest.param("10.0.0.2", "spark-2.lan", "spark-2", id="without its domain"),
        pytest.param("box", "spark-2", "box", id="a name stays"),
        pytest.param("10.0.0.2", "spark-1", "10.0.0.2", id="one that is taken"),
        pytest.param("10.0.0.2", "localhost", "10.0.0.2", id="no name at all"),
        pytest.param("10.0.0.2", "", "10.0.0.2", id="not reached"),
        pytest.param("10.0.0.2", "a b", "10.0.0.2", id="not plain"),
    ],
)
def test_names_of_hosts_known_by_address(name: str, called: str, expected: str) -> None:
    found = use_hostnames(by_name(ONE, visit(name, "spark-pair-b", called=called)))
    assert list(found) == ["spark-1", expected]
    assert (found[expected].name, found[expected].target) == (expected, name)


def test_one_host_under_two_names() -> None:
    require_distinct_hosts(by_name(ONE, TWO, DESK, THOR))
    require_distinct_hosts(by_name(ONE, visit("other", "spark-pair-a", called="other")))
    with raises_problem("spark-1", "box", cause=("spark-1", "192.168.1.10")):
        require_distinct_hosts(by_name(ONE, visit("box", "spark-pair-a", called="spark-1")))


def test_the_wire_that_they_share() -> None:
    (said, *_), network = describe_network(by_name(ONE, TWO, THOR))
    assert network
    assert said.startswith(f"Now that is {network}, RDMA at ")
    assert "spark-2 enp1s0f0np0 192.168.100.11" in said
    assert said.endswith("Without thor-1: not reached.")


def test_no_wire() -> None:
    assert describe_network(by_name(ONE, THOR)) == (("Too few hosts answered to choose it.",), None)
    (said, fix), network = describe_network(
        by_name(ONE, TWO.replace(facts=recorded("spark").replace(net=Net())))
    )
    assert said.startswith("No shared network: ")
    assert fix.startswith("To fix it: ")
    assert network is None
