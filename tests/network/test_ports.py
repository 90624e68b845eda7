"""What medley's things listen on, as it is listed."""

import pytest

from medley.engine import launch
from medley.measurement.monitor import web
from medley.network import ports
from medley.network.ports import ROLES, Port, RayPorts, list_closed_ranges

ALL = ports.list_ports()


def of(role: str) -> tuple[Port, ...]:
    return tuple(each for each in ALL if role in each.roles)


@pytest.mark.parametrize("role", ROLES)
def test_every_role_has_ports(role: str) -> None:
    assert of(role)


def test_every_port_that_ray_is_told_is_listed() -> None:
    given = [int(flag.value or 0) for flag in RayPorts.list_flags()]
    listed = {each.first for each in of("worker")} | {each.last for each in of("worker")}
    assert set(given) <= listed
    assert {RayPorts.gcs, RayPorts.dashboard, *RayPorts.head_metrics} <= {each.first for each in of("head")}


@pytest.mark.parametrize("number", [ports.RENDEZVOUS_PORT, launch.RANKS_PORT])
def test_where_ranks_come_together_without_ray(number: int) -> None:
    assert [each for each in of("serve") if each.first == number and each.is_reachable]


def test_the_page_of_top_is_this_hosts_alone() -> None:
    (page,) = of("top")
    assert (page.bound, page.is_reachable) == (web.parse_address(None).address, False)
    assert (page.first, page.last) == ports.EPHEMERAL_RANGE, "it takes a port that is free"
    assert web.parse_address(None).port == 0


@pytest.mark.parametrize(
    ("bound", "outside"),
    [
        pytest.param("every address", True, id="every address"),
        pytest.param("the link's address", True, id="the wire's: others route there"),
        pytest.param("127.0.0.1", False, id="the loopback"),
    ],
)
def test_what_others_reach(bound: str, *, outside: bool) -> None:
    assert Port(("head",), "x", 1, 1, bound, "y", "z").is_reachable is outside


def test_an_api_is_this_hosts_alone() -> None:
    (usual,) = (each for each in ALL if each.first == ports.API_PORT)
    assert not usual.is_reachable
    several = ports.list_ports(api=(9000, 9001))
    assert [(each.first, each.is_reachable) for each in several if each.what == "a model's API"] == [
        (9000, False),
        (9001, False),
    ]


@pytest.mark.parametrize(
    ("picked", "expected"),
    [
        pytest.param(
            ports.EPHEMERAL_RANGE,
            ((5201, 5201), (8000, 8000), (18515, 18516), (22000, 29999), (32768, 60999)),
            id="Linux' own",
        ),
        pytest.param(
            (20_000, 65_535),
            ((5201, 5201), (8000, 8000), (18515, 18516), (20000, 65535)),
            id="with Ray's in it",
        ),
        pytest.param(
            (30_000, 31_000), ((5201, 5201), (8000, 8000), (18515, 18516), (22000, 31000)), id="next"
        ),
    ],
)
def test_what_a_firewall_closes_has_no_overlap(
    picked: tuple[int, int], expected: tuple[tuple[int, int], ...]
) -> None:
    assert list_closed_ranges(ports.list_ports(ephemeral=picked)) == expected
