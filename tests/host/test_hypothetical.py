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
