import json
from pathlib import Path
from typing import Any

import pytest

from medley import transcript
from medley.host.facts import read_facts
from medley.measurement.collective.result import (
    SIZES,
    AllReduceRate,
    AllReduceResult,
    Participant,
    StepFailure,
    find_link_mbit,
    parse_sizes,
)
from tests.problems import raises_problem

HOSTS = Path(__file__).parents[2] / "host" / "recorded"


@pytest.mark.parametrize(
    ("hosts", "bus"),
    [
        pytest.param(2, 100.0, id="two: as fast as the algorithm"),
        pytest.param(4, 150.0, id="four: 2 x 3/4"),
        pytest.param(8, 175.0, id="eight: 2 x 7/8"),
    ],
)
def test_bandwidth_of_the_bus_as_nccl_tests_has_it(hosts: int, bus: float) -> None:
    rate = AllReduceRate(12_500_000, 1.0, hosts)
    assert rate.algorithm_mbit == pytest.approx(100)
    assert rate.bus_mbit == pytest.approx(bus)
    assert AllReduceRate(8, None, hosts).bus_mbit is None


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        pytest.param(SIZES, (8, 65536, 1 << 20, 16 << 20), id="the usual"),
        pytest.param("1m, 64KiB,4", (4, 65536, 1 << 20), id="ascending, whatever is typed"),
    ],
)
def test_sizes(text: str, sizes: tuple[int, ...]) -> None:
    assert parse_sizes(text) == sizes


@pytest.mark.parametrize("text", ["3", "0", "-8", "17G", "x", "1.5M", "8 9", "9" * 30])
def test_what_is_no_size(text: str) -> None:
    with raises_problem(repr(text), cause="16G", fix="medley collective-test --sizes 8,64K,1M,16M"):
        parse_sizes(text)


@pytest.mark.parametrize(
    ("name", "interface", "mbit"),
    [
        pytest.param("orin-pair-a", "eno1", 10_000, id="as its driver says"),
        pytest.param("spark-pair-a", "enp1s0f1np1", 126_030, id="a Spark's twin: what its PCIe lanes carry"),
        pytest.param("cpu-rack", "bond0.40", None, id="without a driver, as a veth is, which says 10000"),
    ],
)
def test_what_a_link_should_give(name: str, interface: str, mbit: int | None) -> None:
    host = read_facts(transcript.parse_transcript((HOSTS / f"{name}.txt").read_text()))
    (address,) = (link.addresses[0].ip for link in host.net.links if link.name == interface)
    assert find_link_mbit(host, address) == mbit
    assert find_link_mbit(host, "203.0.113.1") is None


EVENTS: tuple[dict[str, Any], ...] = (
    {"step": "start the ranks"},
    {
        "hosts": {
            "a": {"interface": "eth0", "facts": "", "gpu": None},
            "b": {"interface": "eth1", "facts": "no transcript", "gpu": None},
        },
        "backend": "gloo",
        "why": "CPUs",
    },
    {"sums": {}},
    {"size": 8, "seconds": 0.001},
    {"size": 1 << 20, "seconds": None},
    {"pair": ["a", "b"], "said": None, "bytes": 1_000_000, "seconds": [0.1, 0.2], "latency_s": 0.0001},
    {"pair": ["a", "b"], "said": None, "bytes": 1_000_000, "seconds": [0.01, 0.02], "latency_s": 0.0002},
    {"skipped": ["a", "b"]},
    {"done": True},
)


def test_events_fold_into_a_result_that_json_takes() -> None:
    result = AllReduceResult({"a": Participant("a", "one"), "b": Participant("b", "two")})
    for event in EVENTS:
        result = result.add_event(event)
    assert result.skipped == (("a", "b"),)
    assert result.members["b"] == Participant("b", "two", "eth1")
    assert result.rates == (AllReduceRate(8, 0.001, 2), AllReduceRate(1 << 20, None, 2))
    (pair,) = result.pairs
    assert pair.mbit == pytest.approx((800, 400)), "the faster turn"
    assert pair.latency_us == pytest.approx(200)
    table = json.loads(json.dumps(result.build_table()))
    assert [member["name"] for member in table["members"]] == ["one", "two"]
    assert table["rates"][0]["bus_mbit"] == pytest.approx(0.064)


def test_a_step_that_breaks_is_kept_with_who_was_silent() -> None:
    event = {"broken": "form the group", "errors": {"a": "timed out"}, "silent": ["b"]}
    assert AllReduceResult().add_event(event).broken == StepFailure(
        "form the group", {"a": "timed out"}, ("b",)
    )
