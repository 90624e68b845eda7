"""What imagined and recorded hosts offer a layout."""

from dataclasses import replace
from itertools import combinations

import pytest

from medley import config, survey
from medley.fabric import Wishes
from medley.facts import Facts
from medley.imagined import imagined
from medley.kind import Kind, kind
from medley.layout.shapes import Device, Link
from medley.layout.wires import Wires
from medley.measured import NOTHING, Speed, Wire
from medley.speeds import Unit

GIB = 1 << 30


def hosts(asked: str) -> dict[str, tuple[Facts, Kind]]:
    known = config.hosts()
    return {name: (facts, kind(facts, known)) for name, facts in imagined(asked).items()}


def devices(asked: str) -> list[Device]:
    return list(survey.devices(hosts(asked)))


def reached(host: str, unit: Unit, gb_s: float) -> Speed:
    when = "2026-11-22T03:00:00+00:00"
    return Speed(host, unit.index, unit.name, unit.memory_bytes, gb_s, 0.1, 0.4, "bfloat16", 8, when, "2.13")


def test_what_was_measured_counts_on_that_device_alone_and_a_plan_says_so() -> None:
    found = hosts("cpu:2,spark")
    (unit,) = survey.units(*found["cpu-1"])
    known = NOTHING.having([reached("cpu-1", unit, 12.3)], [])
    first, second, spark = survey.devices(found, known)
    assert (first.bandwidth_gb_s, first.bf16_tflops, first.measured) == (12.3, 0.4, True)
    assert [second, spark] == list(survey.devices(found))[1:]
    assert list(survey.reasons(found, known)) == [
        "cpu-1 0: measured 12.3 GB/s and 0.4 TFLOPS on 2026-11-22; stated 30 and 0.5"
    ]
    other = NOTHING.having([reached("cpu-1", replace(unit, memory_bytes=1), 12.3)], [])
    assert list(survey.devices(found, other)) == list(survey.devices(found))
    assert not list(survey.reasons(found, other))


@pytest.mark.parametrize(
    ("asked", "backend", "counts"),
    [
        pytest.param("cpu:2", "gloo", True, id="CPUs talk over Gloo"),
        pytest.param("spark:2", "nccl", True, id="GPUs over NCCL"),
        pytest.param("spark:2", "gloo", False, id="what Gloo had beside a served model is not what NCCL has"),
    ],
)
def test_a_measured_wire_counts_where_the_engine_takes_the_same(
    asked: str,
    backend: str,
    counts: bool,  # noqa: FBT001 - a table's cell
) -> None:
    facts = imagined(asked)
    one, other = facts
    known = NOTHING.having([], [Wire(one, other, backend, 941.5, 70.0, "2026-11-22")])
    link = survey.link_of(facts, Wishes(), known)(other, one)
    stated = survey.link_of(facts, Wishes())(other, one)
    assert stated is not None
    assert link == (Link(941, 70.0, stated.rdma, measured=True) if counts else stated)


@pytest.mark.parametrize("pairs", [3, 2])
def test_the_wire_of_three_hosts_is_measured_where_all_its_pairs_are(pairs: int) -> None:
    facts = imagined("cpu:3")
    when = "2026-11-22"
    wires = [Wire(one, other, "gloo", 941.0, 70.0, when) for one, other in combinations(facts, 2)]
    found = Wires(survey.link_of(facts, Wishes(), NOTHING.having([], wires[:pairs]))).between(facts)
    assert isinstance(found, Link)
    assert found.measured == (pairs == 3)


@pytest.mark.parametrize(
    ("asked", "gib", "bandwidth"),
    [
        # 85 % of 121.69 GiB: above it unified hosts were seen to wedge.
        pytest.param("spark", 103.4, 273, id="a Spark shares its memory"),
        # The card's own 95.6 GiB, less vLLM's 8 %.
        pytest.param("rtx", 87.9, 1792, id="a card has its own"),
        pytest.param("rtx-5090", 29.3, 1792, id="a smaller card"),
    ],
)
def test_a_device(asked: str, gib: float, bandwidth: float) -> None:
    (found,) = devices(asked)
    assert found.memory_bytes / GIB == pytest.approx(gib, abs=0.2)
    assert found.bandwidth_gb_s == bandwidth
    assert found.host == f"{asked}-1"


def test_every_gpu_of_a_host_is_one_and_a_host_without_is_its_cpu() -> None:
    found = devices("cpu,orin:2,thor")
    assert [(each.host, each.index) for each in found] == [
        ("cpu-1", 0),
        ("orin-1", 0),
        ("orin-2", 0),
        ("thor-1", 0),
    ]


@pytest.mark.parametrize(
    ("asked", "rdma", "mbit"),
    [
        pytest.param("spark:2", True, 200_000, id="both halves of a cable"),
        pytest.param("spark,rtx", True, 100_000, id="as fast as the slower end"),
        pytest.param("thor:2", False, 100_000, id="four lanes over sockets"),
        pytest.param("spark,thor", False, 1_000, id="nothing in common but the LAN"),
    ],
)
def test_a_link_is_what_the_fabric_of_the_two_is(asked: str, rdma: bool, mbit: int) -> None:  # noqa: FBT001 - a table's cell
    hosts = imagined(asked)
    one, other = hosts
    link = survey.link_of(hosts, Wishes())(one, other)
    assert link is not None
    assert (link.rdma, link.mbit) == (rdma, mbit)
    assert survey.link_of(hosts, Wishes())(other, one) == link


def test_hosts_that_cannot_talk_have_no_link() -> None:
    hosts = imagined("spark,rtx")
    assert survey.link_of(hosts, Wishes(link="192.168.101.0/24"))(*hosts) is None
