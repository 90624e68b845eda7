"""Ray, hosts without Ray, or one host: as typed, or as the cluster and the number of hosts allow."""

import pytest

from medley.engine.launcher import choose_launcher
from medley.errors import Problem
from medley.planner.plan import Launcher


@pytest.mark.parametrize(
    ("asked", "hosts", "role", "found"),
    [
        pytest.param(None, None, None, "solo", id="a host alone"),
        pytest.param(None, None, "head", "ray", id="the head of a cluster"),
        pytest.param(None, 1, "head", "solo", id="the head, alone"),
        pytest.param(None, 2, None, "mp", id="two hosts and no cluster"),
        pytest.param(None, 2, "head", "ray", id="two hosts of a cluster"),
        pytest.param("mp", 2, None, "mp", id="as asked"),
        pytest.param("ray", 2, None, "ray", id="as asked: that there is none is said elsewhere"),
        pytest.param("solo", None, "head", "solo", id="alone, as asked"),
    ],
)
def test_launcher(asked: Launcher | None, hosts: int | None, role: str | None, found: Launcher) -> None:
    by, why = choose_launcher(asked, host_count=hosts, role=role)
    assert by == found
    assert why


@pytest.mark.parametrize(
    ("asked", "hosts", "role", "what"),
    [
        pytest.param("mp", None, None, "for several hosts", id="how many"),
        pytest.param("mp", 1, None, "for several hosts", id="one"),
        pytest.param("mp", 2, "worker", "on a host of a Ray cluster", id="devices of a cluster"),
        pytest.param("solo", 2, None, "for one host", id="alone on two"),
    ],
)
def test_problems(asked: Launcher, hosts: int | None, role: str | None, what: str) -> None:
    with pytest.raises(Problem) as caught:
        choose_launcher(asked, host_count=hosts, role=role)
    assert what in caught.value.what
