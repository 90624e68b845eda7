"""Which cabling is recognized in hosts' transcripts, and how it is named."""

from collections.abc import Mapping

import pytest

from medley.host.facts import Facts
from medley.network.fabric.cabling import Cabling, list_missing_pairs
from medley.network.fabric.choice import NetworkOptions
from medley.network.fabric.choose import choose_fabric
from medley.network.fabric.endpoints import CandidateGroup, find_endpoint_candidates
from medley.network.fabric.neighbors import find_cabling
from tests.host.recordings import hosts
from tests.network.fabric.groups import RING
from tests.network.networks import default, group, link, orin, server, spark, thor, trio, wired


def of(facts: Mapping[str, Facts]) -> Cabling:
    """Without a fabric: some of these have none."""
    options = NetworkOptions()
    ways = {host: find_endpoint_candidates(host, facts[host], options)[0] for host in sorted(facts)}
    return find_cabling(CandidateGroup(facts, ways, options))


@pytest.mark.parametrize(
    ("hosts", "name", "text"),
    [
        pytest.param(group(spark(1), spark(2)), "pair", "pair: h1 – h2", id="two Sparks"),
        pytest.param(
            group(spark(1, second="192.168.100"), spark(2, second="192.168.100")),
            "pair",
            "pair: h1 – h2",
            id="both halves in one subnet: one cable",
        ),
        pytest.param(wired(2, "1.0-2.0 1.1-2.1"), "double pair", "double pair: h1 – h2", id="two cables"),
        pytest.param(wired(3, "1.0-2.1 2.0-3.1"), "line of 3", "line of 3: h1 – h2 – h3", id="line"),
        pytest.param(
            wired(3, "1.0-2.1 2.0-3.1 3.0-1.1"), "ring of 3", "ring of 3: h1 – h2 – h3", id="ring of three"
        ),
        pytest.param(
            wired(4, "1.0-3.1 3.0-2.1 2.0-4.1 4.0-1.1"),
            "ring of 4",
            "ring of 4: h1 – h3 – h2 – h4",
            id="ring of four, in its own order",
        ),
        pytest.param(
            wired(6, "1.0-2.1 2.0-3.1 3.0-4.1 4.0-5.1 5.0-6.1 6.0-1.1"),
            "ring of 6",
            "ring of 6: h1 – h2 – h3 – h4 – h5 – h6",
            id="ring of six",
        ),
        pytest.param(
            wired(4, "1.0-2.0 1.1-3.0 1.2-4.0 2.1-3.1 2.2-4.1 3.2-4.2"),
            "mesh of 4",
            "mesh of 4: h1, h2, h3, h4",
            id="mesh",
        ),
        pytest.param(
            wired(4, "1.0-2.0 1.1-3.0 1.2-4.0"),
            "partial mesh of 4",
            "partial mesh of 4: h1 – h2, h1 – h3, h1 – h4",
            id="a hub of three cables",
        ),
        pytest.param(
            wired(4, "1.0-2.0 3.0-4.0"),
            "mixed",
            "pair: h1 – h2; pair: h3 – h4",
            id="two pairs and a LAN",
        ),
        pytest.param(
            group(spark(1), spark(2), spark(3), spark(4)),
            "star of 4",
            "star of 4: h1, h2, h3, h4 on a switch",
            id="four Sparks on a switch",
        ),
        pytest.param(
            wired(3, "1.0-2.1 2.0-3.1 3.0-1.1") | {"h4": thor(4, lanes=())},
            "mixed",
            "ring of 3: h1 – h2 – h3; h4 on the network only",
            id="a ring, and a Thor on the LAN",
        ),
        pytest.param(
            group(spark(1), spark(2), thor(3, lanes=())),
            "mixed",
            "pair: h1 – h2; h3 on the network only",
            id="a pair, and a Thor on the LAN",
        ),
        pytest.param(group(thor(1), thor(2)), "pair", "pair: h1 – h2", id="four lanes of one cage"),
        pytest.param(
            group(orin(1), orin(2)), "network only", "h1, h2 on the network only", id="Orins on a LAN"
        ),
        pytest.param(
            group(*(server(n, link("eth0", f"10.0.0.{n}/24"), routes=(default("eth0"),)) for n in (1, 2, 3))),
            "network only",
            "h1, h2, h3 on the network only",
            id="a LAN that leads to the world",
        ),
        pytest.param(hosts(RING), "ring of 3", f"ring of 3: {' – '.join(RING)}", id="the recorded ring"),
        pytest.param(
            hosts(RING[:2]), "pair", "pair: spark-ring-a – spark-ring-b", id="two of the recorded ring"
        ),
    ],
)
def test_the_name_of_a_cabling(hosts: Mapping[str, Facts], name: str, text: str) -> None:
    found = of(hosts)
    assert (found.name, str(found)) == (name, text)


def test_the_cables_of_a_ring_by_interface() -> None:
    (ring,) = of(trio_of_three()).groups
    assert [str(cable) for cable in ring.cables] == [
        "h1 enp1s0f0np0 – h2 enp1s0f1np1",
        "h1 enp1s0f1np1 – h3 enp1s0f0np0",
        "h2 enp1s0f0np0 – h3 enp1s0f1np1",
    ]
    assert ring.cables[0].interfaces[0] == ("enp1s0f0np0", "enP2p1s0f0np0")
    assert ring.cables[0].networks == ("192.168.12.0/24", "192.168.112.0/24")


def test_a_line_of_three_lacks_one_cable_and_a_longer_one_is_no_ring_of_three() -> None:
    (line,) = of(wired(3, "1.0-2.1 2.0-3.1")).groups
    assert list_missing_pairs(line) == (("h1", "h3"),)
    (longer,) = of(wired(4, "1.0-2.1 2.0-3.1 3.0-4.1")).groups
    assert list_missing_pairs(longer) == ()


def test_every_host_is_named_once_whatever_fabric_is_chosen() -> None:
    found = choose_fabric(wired(5, "1.0-2.1 2.0-3.1 4.0-5.1")).cabling
    named = [host for each in found.groups for host in each.hosts]
    assert sorted((*named, *found.others)) == ["h1", "h2", "h3", "h4", "h5"]
    assert found.table["groups"][0]["cables"][0]["hosts"] == ("h1", "h2")


def trio_of_three() -> dict[str, Facts]:
    return group(trio(1), trio(2), trio(3))
