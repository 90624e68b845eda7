"""What starts a model's ranks, and why."""

import pytest

from medley.launcher import launcher
from medley.plan import Launcher
from medley.problem import Problem


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
    by, why = launcher(asked, hosts=hosts, role=role)
    assert by == found
    assert why


@pytest.mark.parametrize(
    ("asked", "hosts", "role", "what"),
    [
        pytest.param("mp", None, None, "for several hosts", id="how many"),
        pytest.param("mp", 1, None, "for several hosts", id="one"),
        pytest.param("mp", 2, "worker", "is in a Ray cluster", id="devices of a cluster"),
        pytest.param("solo", 2, None, "for one host", id="alone on two"),
    ],
)
def test_problems(asked: Launcher, hosts: int | None, role: str | None, what: str) -> None:
    with pytest.raises(Problem) as caught:
        launcher(asked, hosts=hosts, role=role)
    assert what in caught.value.what
