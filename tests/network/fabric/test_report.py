"""How a fabric is shown to people and to programs."""

import json

import pytest

from medley.network.fabric.choice import Fabric, NetworkOptions
from medley.network.fabric.choose import choose_fabric
from medley.network.fabric.nccl import SUBNET_AWARE_NCCL
from medley.network.fabric.per_host import rank_host_links
from medley.network.fabric.report import (
    build_fabric_table,
    build_host_links_table,
    describe_fabric,
    describe_host_links,
    list_candidate_rows,
    list_endpoint_rows,
)
from tests.host.recordings import hosts, recorded
from tests.network.fabric.environments import rdma
from tests.network.fabric.groups import GROUPS, RING
from tests.network.networks import group, link, server

DROPPED = "frames above the smallest are dropped silently (ping, UDP, tests below NCCL)"


def of(*names: str) -> Fabric:
    return choose_fabric(hosts(names))


def test_the_lines_of_a_group() -> None:
    hosts = (server(n, link("eth0", f"10.0.0.{n}/24", mtu=mtu)) for n, mtu in ((1, 9000), (2, 1500)))
    found = choose_fabric(group(*hosts))
    assert list(describe_fabric(found)) == [
        ("transport", "TCP"),
        ("network", "10.0.0.0/24"),
        ("because", "all hosts are in 10.0.0.0/24: 10 Gbit/s at its slowest end (h1)"),
        ("because", "TCP: no GPU on h1, h2, and Gloo has no other transport"),
        ("finding", "the ends of 10.0.0.0/24 differ in MTU"),
        ("", f"cause: h1 eth0 9000, h2 eth0 1500; {DROPPED}"),
        ("", "fix:   on h2: sudo ip link set eth0 mtu 9000"),
        ("not taken", "h1 lo: the loopback reaches only this host"),
        ("not taken", "h2 lo: the loopback reaches only this host"),
    ]
    assert list(list_endpoint_rows(found)) == [
        ("h1", "eth0", "10.0.0.1", "10 Gbit/s", "9000", "-"),
        ("h2", "eth0", "10.0.0.2", "10 Gbit/s", "1500", "-"),
    ]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param(
            ("spark-pair-a", "spark-pair-b"),
            ("enp1s0f1np1", "192.168.100.10", "200 Gbit/s", "9000", "rocep1s0f1 roceP2p1s0f1 (GID 3)"),
            id="both halves",
        ),
        pytest.param(
            ("spark-pair-a", "rtx-roce"),
            ("enp1s0f1np1", "192.168.100.10", "126 Gbit/s", "9000", "rocep1s0f1 (GID 3)"),
            id="one half",
        ),
        pytest.param(
            ("thor-mgbe-a", "thor-mgbe-b"),
            ("mgbe0_0", "10.0.0.1", "100 Gbit/s", "9000", "mgbe0_0 mgbe1_0 mgbe2_0 mgbe3_0"),
            id="lanes",
        ),
        pytest.param(
            ("rtx-wifi", "rtx-wifi again"),
            ("wlp2s0", "192.168.1.32", "an unknown speed", "1500", "-"),
            id="no speed",
        ),
    ],
)
def test_the_row_of_an_end(names: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert next(list_endpoint_rows(of(*names))) == (names[0], *expected)


def test_a_ring_says_so() -> None:
    assert next(
        describe_fabric(choose_fabric(hosts(RING), NetworkOptions(nccl_version=SUBNET_AWARE_NCCL)))
    ) == (
        "transport",
        "RDMA over a ring of cables",
    )


@pytest.mark.parametrize("names", [group.names for group in GROUPS.values()], ids=GROUPS)
def test_every_link_that_was_not_taken_stands_beside_its_reason(names: tuple[str, ...]) -> None:
    found = of(*names)
    said = [text.partition(": ") for heading, text in describe_fabric(found) if heading == "not taken"]
    named = hosts(names)
    shown = {(host, name, why) for words, _, why in said for host, name in pairs(words, sorted(named))}
    assert shown == {(each.host, each.interface, each.why) for each in found.rejected}


def pairs(words: str, names: list[str]) -> list[tuple[str, str]]:
    """A host and each of its interfaces; some hosts' names have a blank here."""
    host = max((name for name in names if words.startswith(f"{name} ")), key=len)
    return [(host, name) for name in words.removeprefix(f"{host} ").split()]


def test_the_table_of_a_group() -> None:
    named = hosts(("spark-gid-drift", "spark-pair-b"))
    said = json.loads(json.dumps(build_fabric_table(choose_fabric(named), named)))
    assert (said["transport"], said["ring"]) == ("rdma", False)
    assert said["networks"] == ["192.168.100.0/24", "192.168.101.0/24"]
    end = said["hosts"]["spark-pair-b"]
    assert (end["interface"], end["address"], end["mbit"]) == ("enp1s0f0np0", "192.168.100.11", 200_000)
    assert end["ports"] == ["rocep1s0f0:1", "roceP2p1s0f0:1"]
    assert {each["name"]: each["value"] for each in end["variables"]} == rdma(
        "192.168.100.11", "enp1s0f0np0", "rocep1s0f0:1,roceP2p1s0f0:1", gid=None
    )
    assert "NCCL_IB_ROCE_VERSION_NUM" in {each["name"] for each in said["variables"]}
    assert all(each["why"] for each in (*said["variables"], *end["variables"], *said["rejected"]))


def test_the_lines_of_one_host() -> None:
    one = rank_host_links("a", recorded("spark-pair-a"), NetworkOptions())
    said, wired = list(describe_host_links(one)), "ethernet"
    assert list(list_candidate_rows(one)) == [
        ("enp1s0f1np1", wired, "192.168.100.10/24", "126 Gbit/s", "9000", "rocep1s0f1 (GID 3)"),
        ("enP2p1s0f1np1", wired, "192.168.101.10/24", "126 Gbit/s", "9000", "roceP2p1s0f1 (GID 3)"),
        ("enP7s7", wired, "192.168.1.10/24", "1 Gbit/s", "1500", "none: enP7s7 has no RDMA device"),
    ]
    assert ("not taken", "enP2p1s0f0np0 enp1s0f0np0 wlP9s9: it is down or has no cable") in said


def test_a_host_without_links_is_told_so() -> None:
    assert ("best", "none: no other host can reach this one") in describe_host_links(
        rank_host_links("a", recorded("debian-vm"), NetworkOptions())
    )


def test_the_table_of_one_host() -> None:
    said = json.loads(
        json.dumps(build_host_links_table(rank_host_links("a", recorded("rtx-wifi"), NetworkOptions())))
    )
    (way,) = said["ways"]
    assert (way["interface"], way["kind"], way["network"], way["mbit"], way["port"]) == (
        *("wlp2s0", "wifi", "192.168.1.0/24"),
        *(None, None),
    )
    assert [each["interface"] for each in said["rejected"]] == ["docker0", "enp3s0", "lo"]
