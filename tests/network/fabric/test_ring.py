"""Who talks over what, for each cabling of two to six hosts: by hand, down to each host's variables."""

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from medley.errors import Problem
from medley.host.facts import Facts
from medley.network.fabric.choice import NetworkOptions
from medley.network.fabric.choose import choose_fabric
from medley.network.fabric.nccl import SUBNET_AWARE_NCCL
from medley.network.fabric.variables import list_group_variables, list_host_variables
from tests.network.fabric.environments import OLDER_NCCL, rdma, tcp, values
from tests.network.fabric.groups import BOTH_HALVES, F0, F1, FOUR, NO_GPUDIRECT, SOCKETS, UNLIKE
from tests.network.networks import group, spark, thor, wired

RING = {
    "NCCL_NET": "IB",
    "NCCL_IB_SUBNET_AWARE_ROUTING": "1",
    "NCCL_IB_MERGE_NICS": "0",
    "NCCL_CROSS_NIC": "1",
    "NCCL_NET_PLUGIN": "none",
    **NO_GPUDIRECT,
}
ALL = NetworkOptions(nccl_version=SUBNET_AWARE_NCCL)
RING_OF_THREE = "1.0-2.1 2.0-3.1 3.0-1.1"
MIRRORED = "1.0-2.0 1.1-3.0 2.1-3.1"
RING_OF_FOUR = "1.0-2.1 2.0-3.1 3.0-4.1 4.0-1.1"
MESH_OF_FOUR = "1.0-2.0 1.1-3.0 1.2-4.0 2.1-3.1 2.2-4.1 3.2-4.2"


def lan(*numbers: int) -> list[dict[str, str]]:
    """Sockets of Sparks over the network that all share."""
    return [tcp(f"10.0.0.{n}", "enP7s7") for n in numbers]


def star(*numbers: int) -> list[dict[str, str]]:
    return [rdma(f"192.168.100.{n}", "enp1s0f0np0", F0) for n in numbers]


class Case(NamedTuple):
    hosts: Mapping[str, Facts]
    shared: Mapping[str, str]
    each: list[dict[str, str]]
    finding: str = ""
    """Words of the only one; none where it is empty."""


SERVED = {
    "pair": Case(
        wired(2, "1.0-2.1"),
        BOTH_HALVES,
        [rdma("192.168.10.1", "enp1s0f0np0", F0), rdma("192.168.10.2", "enp1s0f1np1", F1)],
    ),
    "pair without a LAN": Case(
        wired(2, "1.0-2.0", lan=None),
        BOTH_HALVES,
        [rdma(f"192.168.10.{n}", "enp1s0f0np0", F0) for n in (1, 2)],
    ),
    "double pair": Case(
        wired(2, "1.0-2.0 1.1-2.1"),
        BOTH_HALVES,
        [rdma(f"192.168.10.{n}", "enp1s0f0np0", FOUR) for n in (1, 2)],
    ),
    "pair and a Thor on the LAN": Case(
        # Thor has no RDMA, and one transport is for all.
        wired(2, "1.0-2.1") | {"h3": thor(3, lanes=())},
        UNLIKE,
        [*lan(1, 2), tcp("10.0.0.3", "enP2p1s0")],
    ),
    "line of three": Case(
        wired(3, "1.0-2.1 2.0-3.1"),
        SOCKETS,
        lan(1, 2, 3),
        "h1 enp1s0f1np1 – h3 enp1s0f0np0 is missing: a ring of three needs it",
    ),
    "ring of three": Case(
        wired(3, RING_OF_THREE), RING, [rdma(f"10.0.0.{n}", "enP7s7", FOUR) for n in (1, 2, 3)]
    ),
    "ring of three the other way round": Case(
        wired(3, "1.1-2.0 2.1-3.0 3.1-1.0"), RING, [rdma(f"10.0.0.{n}", "enP7s7", FOUR) for n in (1, 2, 3)]
    ),
    "ring of three, two cables between ports of one number": Case(
        wired(3, MIRRORED),
        SOCKETS,
        lan(1, 2, 3),
        "h1 enp1s0f0np0 – h2 enp1s0f0np0 and h2 enp1s0f1np1 – h3 enp1s0f1np1",
    ),
    "ring of three and a Thor on the LAN": Case(
        wired(3, RING_OF_THREE) | {"h4": thor(4, lanes=())},
        UNLIKE,
        [*lan(1, 2, 3), tcp("10.0.0.4", "enP2p1s0")],
    ),
    "line of four": Case(
        wired(4, "1.0-2.1 2.0-3.1 3.0-4.1"), SOCKETS, lan(1, 2, 3, 4), "h1 – h3, h1 – h4, h2 – h4 have none"
    ),
    "two pairs": Case(wired(4, "1.0-2.1 3.0-4.1"), SOCKETS, lan(1, 2, 3, 4)),
    "ring of four": Case(wired(4, RING_OF_FOUR), SOCKETS, lan(1, 2, 3, 4), "h1 – h3, h2 – h4 have none"),
    "mesh of four": Case(wired(4, MESH_OF_FOUR), SOCKETS, lan(1, 2, 3, 4), "only among three"),
    "hub of three cables": Case(
        wired(4, "1.0-2.0 1.1-3.0 1.2-4.0"), SOCKETS, lan(1, 2, 3, 4), "h2 – h3, h2 – h4, h3 – h4 have none"
    ),
    "ring of five": Case(
        wired(5, "1.0-2.1 2.0-3.1 3.0-4.1 4.0-5.1 5.0-1.1"), SOCKETS, lan(1, 2, 3, 4, 5), "h1 – h3, h1 – h4"
    ),
    "ring of three and a pair": Case(wired(5, f"{RING_OF_THREE} 4.0-5.1"), SOCKETS, lan(1, 2, 3, 4, 5)),
    "ring of six": Case(
        wired(6, "1.0-2.1 2.0-3.1 3.0-4.1 4.0-5.1 5.0-6.1 6.0-1.1"),
        SOCKETS,
        lan(1, 2, 3, 4, 5, 6),
        "ring of 6: h1 – h2 – h3 – h4 – h5 – h6: NCCL cannot use its cables",
    ),
    "two rings of three": Case(
        wired(6, f"{RING_OF_THREE} 4.0-5.1 5.0-6.1 6.0-4.1"), SOCKETS, lan(1, 2, 3, 4, 5, 6)
    ),
    "three on a switch": Case(group(*(spark(n) for n in (1, 2, 3))), BOTH_HALVES, star(1, 2, 3)),
    "six on a switch": Case(group(*map(spark, range(1, 7))), BOTH_HALVES, star(1, 2, 3, 4, 5, 6)),
    "three on a switch and a Thor on the LAN": Case(
        group(*(spark(n) for n in (1, 2, 3)), thor(4, lanes=())),
        UNLIKE,
        [*lan(1, 2, 3), tcp("10.0.0.4", "enP2p1s0")],
    ),
}


@pytest.mark.parametrize("case", SERVED.values(), ids=SERVED)
def test_what_a_cabling_is_served_over(case: Case) -> None:
    found = choose_fabric(case.hosts, ALL)
    assert values(tuple(list_group_variables(found, case.hosts))) == case.shared
    assert [
        values(tuple(list_host_variables(found, name, facts))) for name, facts in case.hosts.items()
    ] == case.each
    noted = [f"{one.what}; {one.cause}" for one in found.findings if one.topic == "ring"]
    assert len(noted) == bool(case.finding), noted
    assert case.finding in "".join(noted)


REFUSED = {
    "line of three": (wired(3, "1.0-2.1 2.0-3.1", lan=None), "h1 enp1s0f1np1 – h3 enp1s0f0np0 is missing"),
    "ring of three": (wired(3, RING_OF_THREE, lan=None), "Ray, Gloo and NCCL's bootstrap need one"),
    "mirrored ring of three": (wired(3, MIRRORED, lan=None), "h1 enp1s0f0np0 – h2 enp1s0f0np0"),
    "ring of four": (wired(4, RING_OF_FOUR, lan=None), "ring of 4: h1 – h2 – h3 – h4: NCCL cannot use"),
    "mesh of four": (wired(4, MESH_OF_FOUR, lan=None), "mesh of 4: h1, h2, h3, h4: NCCL cannot use"),
    "two pairs": (wired(4, "1.0-2.1 3.0-4.1", lan=None), "192.168.11.3/24 (enp1s0f0np0)"),
    "ring of six": (
        wired(6, "1.0-2.1 2.0-3.1 3.0-4.1 4.0-5.1 5.0-6.1 6.0-1.1", lan=None),
        "ring of 6",
    ),
    "a Thor that nothing reaches": (
        wired(2, "1.0-2.1", lan=None) | {"h3": thor(3, lanes=())},
        "h3: 10.0.0.3/24 (enP2p1s0)",
    ),
}


@pytest.mark.parametrize(("hosts", "cause"), REFUSED.values(), ids=REFUSED)
def test_what_no_network_reaches_is_refused_by_name(hosts: Mapping[str, Facts], cause: str) -> None:
    with pytest.raises(Problem) as caught:
        choose_fabric(hosts, ALL)
    assert "h1" in caught.value.what
    assert cause in caught.value.cause
    assert caught.value.fix


@pytest.mark.parametrize("cables", ["1.0-2.1 2.0-3.1", MIRRORED, RING_OF_FOUR, MESH_OF_FOUR])
def test_rdma_that_was_asked_for_is_refused_where_nccl_cannot_use_the_cables(cables: str) -> None:
    hosts = wired(4 if "4." in cables else 3, cables)
    with pytest.raises(Problem) as caught:
        choose_fabric(hosts, NetworkOptions(transport="rdma", nccl_version=SUBNET_AWARE_NCCL))
    assert (caught.value.what, caught.value.fix) == next(
        (one.what, one.fix) for one in choose_fabric(hosts, ALL).findings if one.topic == "ring"
    )


def test_the_cabling_counts_before_the_version() -> None:
    """A newer NCCL would not help these."""
    found = choose_fabric(wired(3, MIRRORED), NetworkOptions(nccl_version=OLDER_NCCL))
    assert ["ports of one number" in one.what for one in found.findings] == [True]


def test_the_missing_cable_is_named_with_what_to_type() -> None:
    (finding,) = choose_fabric(wired(3, "1.0-2.1 2.0-3.1"), ALL).findings
    assert (
        "on h1: sudo $(command -v medley) link setup --interface enp1s0f1np1 --address 192.168.192.1/24"
        in finding.fix
    )
    assert (
        "on h3: sudo $(command -v medley) link setup --interface enp1s0f0np0 --address 192.168.192.2/24"
        in finding.fix
    )


def test_a_ring_is_mended_where_the_finding_says() -> None:
    (finding,) = choose_fabric(wired(3, MIRRORED), ALL).findings
    assert "on h2: swap the cables of enp1s0f0np0 and enp1s0f1np1" in finding.fix
    assert choose_fabric(wired(3, "1.0-2.1 1.1-3.0 2.0-3.1"), ALL).is_ring
