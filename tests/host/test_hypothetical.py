import pytest

from medley import config
from medley.errors import Problem
from medley.host.hypothetical import imagined
from medley.host.kind import match_kind
from medley.network.fabric import fabric


def test_they_are_numbered_and_meet_on_their_networks() -> None:
    hosts = imagined("spark:2, rtx")
    assert list(hosts) == ["spark-1", "spark-2", "rtx-1"]
    found = fabric(hosts)
    assert found.transport == "rdma"
    assert len({end.address for end in found.ends.values()}) == 3


@pytest.mark.parametrize("name", sorted(config.files("hosts/typical", ".txt")))
def test_each_is_of_a_kind_and_two_of_them_can_talk(name: str) -> None:
    hosts = imagined(f"{name}:2")
    for facts in hosts.values():
        assert name.startswith(match_kind(facts, config.hosts()).name)
    assert len(fabric(hosts).networks) >= 1


@pytest.mark.parametrize(
    ("asked", "what"),
    [
        pytest.param("toaster:2", "names no hosts", id="no such kind"),
        pytest.param("spark:0", "names no hosts", id="no host"),
        pytest.param("rtx:1,spark:00", "names no hosts", id="none of a kind"),
        pytest.param("spark:x", "names no hosts", id="no number"),
        pytest.param("", "names no hosts", id="nothing"),
        pytest.param("spark:65", "too many", id="too many"),
    ],
)
def test_what_cannot_be_imagined(asked: str, what: str) -> None:
    with pytest.raises(Problem, match=what):
        imagined(asked)


@pytest.mark.parametrize(
    ("asked", "fix"),
    [
        pytest.param("sparks:2", "--hosts spark:2", id="a plural"),
        pytest.param("spark,cuda:2", "--hosts spark,rtx-5090:2", id="any GPU has no speed"),
        pytest.param("toaster", "--hosts spark:2,thor:2", id="nothing like it"),
    ],
)
def test_the_fix_names_a_kind_that_can_be_planned_for(asked: str, fix: str) -> None:
    with pytest.raises(Problem, match="kinds: cpu, ") as caught:
        imagined(asked)
    assert caught.value.fix == fix


def test_kinds_in_capital_letters() -> None:
    assert list(imagined("SPARK:2")) == ["spark-1", "spark-2"]
