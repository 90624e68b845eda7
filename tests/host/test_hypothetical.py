import pytest

from medley import config
from medley.host.hypothetical import build_hosts
from medley.host.kind import match_kind
from medley.network.fabric.choose import choose_fabric
from tests.problems import raises_problem


def test_they_are_numbered_and_meet_on_their_networks() -> None:
    hosts = build_hosts("spark:2, rtx")
    assert list(hosts) == ["spark-1", "spark-2", "rtx-1"]
    found = choose_fabric(hosts)
    assert found.transport == "rdma"
    assert len({end.address for end in found.endpoints.values()}) == 3


@pytest.mark.parametrize("name", sorted(config.find_table_files("hosts/typical", ".txt")))
def test_each_is_of_a_kind_and_two_of_them_can_talk(name: str) -> None:
    hosts = build_hosts(f"{name}:2")
    for facts in hosts.values():
        assert name.startswith(match_kind(facts, config.load_hosts()).name)
    assert len(choose_fabric(hosts).networks) >= 1


@pytest.mark.parametrize(
    ("asked", "cause"),
    [
        pytest.param("toaster:2", "'toaster:2' ", id="no such kind"),
        pytest.param("spark:0", "'spark:0' ", id="no host"),
        pytest.param("rtx:1,spark:00", "'spark:00' ", id="none of a kind"),
        pytest.param("spark:x", "'spark:x' ", id="no number"),
        pytest.param("", "'' ", id="nothing"),
        pytest.param("spark:65", "65 hosts; 64 ", id="too many"),
    ],
)
def test_what_cannot_be_imagined(asked: str, cause: str) -> None:
    with raises_problem(f"--hosts {asked} ", cause=cause):
        build_hosts(asked)


@pytest.mark.parametrize(
    ("asked", "fix"),
    [
        pytest.param("sparks:2", "--hosts spark:2", id="a plural"),
        pytest.param("spark,cuda:2", "--hosts spark:1,rtx-5090:2", id="any GPU has no speed"),
        pytest.param("spark-1,spark-2", "--hosts spark:2", id="hosts as plan names them"),
        pytest.param("spark=2", "--hosts spark:2", id="another sign"),
        pytest.param("spark-1,thor-1,spark-2", "--hosts spark:2,thor:1", id="hosts of two kinds"),
        pytest.param("sparc:2,thro:1", "--hosts spark:2,thor:1", id="two typos"),
        pytest.param("spark:0,thor:1", "--hosts spark:1,thor:1", id="none of a kind"),
        pytest.param("spark:2,toaster", "--hosts spark:2,thor:2", id="one like no kind"),
        pytest.param("toaster", "--hosts spark:2,thor:2", id="nothing like it"),
    ],
)
def test_the_fix_names_a_kind_that_can_be_planned_for(asked: str, fix: str) -> None:
    with raises_problem(f"--hosts {asked} ", cause=": cpu, ", fix=fix):
        build_hosts(asked)
    assert build_hosts(fix.removeprefix("--hosts "))


def test_kinds_in_capital_letters() -> None:
    assert list(build_hosts("SPARK:2")) == ["spark-1", "spark-2"]
