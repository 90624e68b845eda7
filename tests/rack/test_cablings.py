"""Cablings of two to six hosts on real interfaces: the decision, by hand, and Gloo over what is decided.

RDMA was not run: the ports of the ConnectX-7 are added to what the hosts tell. Sockets are real.
"""

import os
from collections.abc import Mapping
from typing import NamedTuple

import pytest

from medley.errors import Problem
from medley.network.fabric.choice import NetworkOptions
from medley.network.fabric.choose import choose_fabric
from medley.network.fabric.nccl import SUBNET_AWARE_NCCL
from medley.network.fabric.variables import list_group_variables, list_host_variables
from tests.network.fabric.environments import rdma, tcp, values
from tests.network.fabric.groups import BOTH_HALVES, ONE_PORT, SOCKETS, UNLIKE
from tests.network.fabric.test_ring import RING
from tests.rack.cablings import ELEMENTS, Layout, all_reduced, cabled, transcribed
from tests.rack.test_wire import carried

pytestmark = [
    pytest.mark.rack,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it makes namespaces and mounts"),
]

ALL = NetworkOptions(nccl_version=SUBNET_AWARE_NCCL)
FIRST, SECOND = "rocep1s0f0:1", "rocep1s0f1:1"
BOTH = f"{FIRST},{SECOND}"
RING_OF_THREE = "1.0-2.1 2.0-3.1 3.0-1.1"


def lan(hosts: int) -> list[dict[str, str]]:
    return [tcp(f"10.78.0.{nth}", "eth0") for nth in range(1, hosts + 1)]


class Case(NamedTuple):
    layout: Layout
    cabling: str
    shared: Mapping[str, str]
    each: list[dict[str, str]]


# The cables are eth1, eth2, ... of a host in their order here; eth0 is the LAN, where there is one.
SOME = {
    "pair without a LAN": Case(
        Layout(2, "1.0-2.1", lan=False),
        "pair: host1 – host2",
        ONE_PORT,
        [rdma("10.78.0.1", "eth0", FIRST), rdma("10.78.0.2", "eth0", SECOND)],
    ),
    "ring of three": Case(
        Layout(3, RING_OF_THREE),
        "ring of 3: host1 – host2 – host3",
        RING,
        [rdma(f"10.78.0.{nth}", "eth0", BOTH) for nth in (1, 2, 3)],
    ),
}
REST = {
    "pair": Case(
        Layout(2, "1.0-2.1"),
        "pair: host1 – host2",
        ONE_PORT,
        [rdma("10.78.1.1", "eth1", FIRST), rdma("10.78.1.2", "eth1", SECOND)],
    ),
    "double pair": Case(
        Layout(2, "1.0-2.0 1.1-2.1"),
        "double pair: host1 – host2",
        BOTH_HALVES,
        [rdma(f"10.78.1.{nth}", "eth1", BOTH) for nth in (1, 2)],
    ),
    "pair and a Thor on the LAN": Case(
        Layout(3, "1.0-2.1", thors=(3,)),
        "pair: host1 – host2; host3 on the network only",
        UNLIKE,
        lan(3),
    ),
    "line of three": Case(Layout(3, "1.0-2.1 2.0-3.1"), "line of 3: host1 – host2 – host3", SOCKETS, lan(3)),
    "mirrored ring of three": Case(
        Layout(3, "1.0-2.0 2.1-3.1 3.0-1.1"), "ring of 3: host1 – host2 – host3", SOCKETS, lan(3)
    ),
    "ring of three and a Thor on the LAN": Case(
        Layout(4, RING_OF_THREE, thors=(4,)),
        "ring of 3: host1 – host2 – host3; host4 on the network only",
        UNLIKE,
        lan(4),
    ),
    "two pairs": Case(
        Layout(4, "1.0-2.1 3.0-4.1"), "pair: host1 – host2; pair: host3 – host4", SOCKETS, lan(4)
    ),
    "ring of four": Case(
        Layout(4, "1.0-2.1 2.0-3.1 3.0-4.1 4.0-1.1"),
        "ring of 4: host1 – host2 – host3 – host4",
        SOCKETS,
        lan(4),
    ),
    "mesh of four": Case(
        Layout(4, "1.0-2.0 1.1-3.0 1.2-4.0 2.1-3.1 2.2-4.1 3.2-4.2"),
        "mesh of 4: host1, host2, host3, host4",
        SOCKETS,
        lan(4),
    ),
    "four on a switch": Case(
        Layout(4, switched=(1, 2, 3, 4)),
        "star of 4: host1, host2, host3, host4 on a switch",
        ONE_PORT,
        [rdma(f"10.78.1.{nth}", "eth1", FIRST) for nth in (1, 2, 3, 4)],
    ),
    "three on a switch and a Thor on the LAN": Case(
        Layout(4, switched=(1, 2, 3), thors=(4,)),
        "star of 3: host1, host2, host3 on a switch; host4 on the network only",
        UNLIKE,
        lan(4),
    ),
    "ring of five": Case(
        Layout(5, "1.0-2.1 2.0-3.1 3.0-4.1 4.0-5.1 5.0-1.1"),
        "ring of 5: host1 – host2 – host3 – host4 – host5",
        SOCKETS,
        lan(5),
    ),
    "ring of six": Case(
        Layout(6, "1.0-2.1 2.0-3.1 3.0-4.1 4.0-5.1 5.0-6.1 6.0-1.1"),
        "ring of 6: host1 – host2 – host3 – host4 – host5 – host6",
        SOCKETS,
        lan(6),
    ),
}
REFUSED = {
    "line of three": (Layout(3, "1.0-2.1 2.0-3.1", lan=False), "host1 – host3 is missing"),
    "ring of three": (Layout(3, RING_OF_THREE, lan=False), "Ray, Gloo and NCCL's bootstrap need one"),
    "ring of four": (
        Layout(4, "1.0-2.1 2.0-3.1 3.0-4.1 4.0-1.1", lan=False),
        "ring of 4: host1 – host2 – host3 – host4: NCCL cannot use its cables",
    ),
}


def is_decided_so_and_gloo_runs_over_it(case: Case) -> None:
    with cabled(case.layout) as rack:
        hosts = transcribed(case.layout, rack)
        found = choose_fabric(hosts, ALL)
        assert str(found.cabling) == case.cabling
        assert values(tuple(list_group_variables(found, hosts))) == case.shared
        assert [
            values(tuple(list_host_variables(found, name, facts))) for name, facts in hosts.items()
        ] == case.each
        before = {host.name: carried(host) for host in rack.hosts}
        sums = all_reduced(rack, found, hosts)
        total = (1 << len(rack.hosts)) - 1
        assert sums == dict.fromkeys(hosts, f"sum {total} {total}")
        for host in rack.hosts:
            grown = {name: size - before[host.name][name] for name, size in carried(host).items()}
            chosen = grown.pop(found.endpoints[host.name].interface)
            assert chosen > 4 * ELEMENTS / 2, (host.name, chosen)
            assert all(size < 100_000 for size in grown.values()), (host.name, grown)


@pytest.mark.parametrize("case", SOME.values(), ids=SOME)
def test_a_cabling(case: Case) -> None:
    is_decided_so_and_gloo_runs_over_it(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", REST.values(), ids=REST)
def test_every_other_cabling(case: Case) -> None:
    is_decided_so_and_gloo_runs_over_it(case)


@pytest.mark.parametrize(
    ("layout", "cause"),
    [
        pytest.param(*case, id=name, marks=[] if name == "line of three" else [pytest.mark.slow])
        for name, case in REFUSED.items()
    ],
)
def test_what_no_network_reaches_is_refused_by_name(layout: Layout, cause: str) -> None:
    with cabled(layout) as rack, pytest.raises(Problem) as caught:
        choose_fabric(transcribed(layout, rack), ALL)
    assert "no network connects all of these hosts" in caught.value.what
    assert cause in caught.value.cause
