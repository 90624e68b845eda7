from dataclasses import replace
from pathlib import Path

import pytest

from medley import transcript
from medley.facts import Facts, facts
from medley.problem import Problem
from medley.recognised import kind_of
from medley.site import Site


def recorded(name: str) -> Facts:
    return facts(transcript.parse((Path(__file__).parent / "hosts" / f"{name}.txt").read_text()))


def site(*names: str) -> Site:
    found = {name: recorded(name) for name in names}
    return Site({name: (each, kind_of(each)) for name, each in found.items()})


@pytest.mark.parametrize(
    ("asked", "indexes"),
    [
        pytest.param(None, [0, 1], id="all there are"),
        pytest.param("1", [1], id="the second"),
        pytest.param("1,0", [1, 0], id="both"),
        pytest.param("all", [0, 1], id="all"),
    ],
)
def test_gpus(asked: str | None, indexes: list[int]) -> None:
    assert [device.index for device in site("rtx-two").devices(asked)] == indexes


@pytest.mark.parametrize(
    ("hosts", "asked", "what"),
    [
        pytest.param(["rtx-two"], "2", "there is no GPU '2'", id="no such index"),
        pytest.param(["rtx-two"], "0,0", "names a GPU twice", id="twice"),
        pytest.param(["rtx-two"], "first", "there is no GPU 'first'", id="no number"),
        pytest.param(["debian-vm"], "0", "cannot be had", id="no GPU at all"),
        pytest.param(["spark", "rtx-two"], "0", "is for one host", id="two hosts"),
    ],
)
def test_gpus_that_cannot_be(hosts: list[str], asked: str, what: str) -> None:
    with pytest.raises(Problem) as caught:
        site(*hosts).devices(asked)
    assert what in caught.value.what


def test_a_cluster_has_the_slots_that_are_free() -> None:
    joined = replace(site("rtx-two", "spark"), order=("spark", "rtx-two"), slots={"spark": 0, "rtx-two": 1})
    assert [(device.host, device.index) for device in joined.devices()] == [("rtx-two", 0)]
    assert joined.head == "spark"


def test_a_gpu_that_runs_a_model_is_not_given_again() -> None:
    joined = replace(site("rtx-two"), order=("rtx-two",), slots={"rtx-two": 1}, busy={"rtx-two": 1})
    assert [device.index for device in joined.devices()] == [1]
    shared = replace(site("debian-vm"), order=("debian-vm",), slots={"debian-vm": 1}, busy={"debian-vm": 1})
    assert len(shared.devices()) == 1, "a CPU has as many slots as it was given"
    assert joined.only(["rtx-two"]).busy == {"rtx-two": 1}


def test_a_part_of_a_cluster() -> None:
    joined = replace(
        site("rtx-two", "spark"),
        order=("spark", "rtx-two"),
        slots={"spark": 1, "rtx-two": 2},
        addresses={"spark": "10.0.0.1", "rtx-two": "10.0.0.2"},
    )
    part = joined.only(["rtx-two"])
    assert (list(part.hosts), part.order, part.slots) == (["rtx-two"], ("rtx-two",), {"rtx-two": 2})
    assert part.addresses == {"rtx-two": "10.0.0.2"}
