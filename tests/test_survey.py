"""What imagined and recorded hosts offer a layout."""

import pytest

from medley import config, survey
from medley.fabric import Wishes
from medley.imagined import imagined
from medley.kind import kind
from medley.layout.shapes import Device

GIB = 1 << 30


def devices(asked: str) -> list[Device]:
    known = config.hosts()
    return list(
        survey.devices({name: (facts, kind(facts, known)) for name, facts in imagined(asked).items()})
    )


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
