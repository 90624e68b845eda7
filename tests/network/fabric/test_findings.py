"""What is said of a group's wires: findings, rejections, wishes that were granted, and what cannot be."""

from typing import Any

import pytest

from medley.host.facts import Facts
from medley.network.fabric.choice import NetworkOptions
from medley.network.fabric.choose import choose_fabric
from tests.network.fabric.environments import OLDER_NCCL
from tests.network.networks import (
    BRIDGE_OF_DOCKER,
    DOCKER,
    TAILSCALE,
    default,
    group,
    link,
    rtx,
    server,
    spark,
    thor,
    trio,
)
from tests.problems import raises_problem

CLUTTER = (DOCKER, BRIDGE_OF_DOCKER, TAILSCALE)
WIFI: dict[str, Any] = {"kind": "wifi", "mbit": 1200}


@pytest.mark.parametrize(
    ("hosts", "what", "fix"),
    [
        pytest.param(
            (spark(1, second="192.168.100"), spark(2)),
            "both in 192.168.100.0/24",
            "link setup --interface enP2p1s0f0np0 --address 192.168.101.1/24  # lasts; until then: sudo",
            id="halves in one subnet: to the one that the peer's half is in",
        ),
        pytest.param(
            (spark(1), spark(2, second_up=False)),
            "half the speed",
            "link set enP2p1s0f0np0 up",
            id="half down",
        ),
        pytest.param(
            (spark(1), spark(2, second=None)), "half the speed", "dev enP2p1s0f0np0", id="half bare"
        ),
        pytest.param((spark(1), spark(2, width=2)), "2 of 4 PCIe lanes", "fwupdmgr update", id="x2"),
        pytest.param((spark(1), spark(2, mtu=1500)), "differ in MTU", "enp1s0f0np0 mtu 9000", id="MTU"),
        pytest.param(
            (spark(1), spark(2, first="192.168.101", second="192.168.100")),
            "order the interfaces",
            "PCI domain 0000",
            id="crossed",
        ),
        pytest.param(
            (trio(1), trio(2), trio(3)), "cables between the hosts (200 Gbit/s)", "2.30.7", id="ring"
        ),
        pytest.param(
            tuple(server(n, link("wlan0", f"10.0.0.{n}/24", **WIFI)) for n in (1, 2)),
            "wlan0 (wifi)",
            "cable",
            id="Wi-Fi",
        ),
        pytest.param(
            (server(1, link("eth0", "10.0.0.1/24"), link("eth1", "10.0.0.9/24", mbit=1000)), server(2)),
            "two links in 10.0.0.0/24",
            "ip address del 10.0.0.9/24 dev eth1",
            id="doubled",
        ),
    ],
)
def test_what_is_said_with_its_fix(hosts: tuple[Facts, ...], what: str, fix: str) -> None:
    found = choose_fabric(group(*hosts), NetworkOptions(nccl_version=OLDER_NCCL)).findings
    assert [each for each in found if what in each.what and fix in each.fix], found


@pytest.mark.parametrize(
    "hosts",
    [
        pytest.param((spark(1), spark(2, cage=1)), id="two Sparks as they should be"),
        pytest.param((spark(1), rtx(2)), id="a peer that one half is enough for"),
        pytest.param((thor(1), thor(2)), id="two Thors"),
        pytest.param((server(1), server(2)), id="two CPUs"),
    ],
)
def test_nothing_is_said_where_nothing_is_wrong(hosts: tuple[Facts, ...]) -> None:
    assert choose_fabric(group(*hosts)).findings == ()


def test_every_link_that_is_not_taken_has_its_reason() -> None:
    wifi = link("wlP9s9", "10.0.0.91/24", **WIFI)
    found = choose_fabric(group(spark(1, extra=(*CLUTTER, wifi), second="192.168.77"), spark(2)))
    assert {each.interface: each.why for each in found.rejected if each.host == "h1"} == {
        "br-1a2b3c": "it belongs to containers, and every host has one like it",
        "docker0": "it belongs to containers, and every host has one like it",
        "enP2p1s0f0np0": "no other host of the group is in 192.168.77.0/24",
        "enP2p1s0f1np1": "it is down or has no cable",
        "enP7s7": "10.0.0.0/24 has 10 Gbit/s at h1, 192.168.100.0/24 126 Gbit/s",
        "enp1s0f1np1": "it is down or has no cable",
        "lo": "the loopback reaches only this host",
        "tailscale0": "a tunnel (VPN) is slow; to use it anyway, name it with --link",
        "wlP9s9": "Wi-Fi, and enP7s7 is a cabled link to the same network",
    }


def test_a_network_that_one_host_has_by_wifi_alone_is_second_to_wires() -> None:
    air = server(1, link("wlan0", "10.0.0.1/24", **WIFI), link("eth1", "10.1.0.1/24", mbit=100))
    wire = server(2, link("eth0", "10.0.0.2/24"), link("eth1", "10.1.0.2/24", mbit=100))
    why = {each.interface: each.why for each in choose_fabric(group(air, wire)).rejected}
    assert why["wlan0"] == "Wi-Fi, and all hosts have a cabled link in 10.1.0.0/24"
    assert why["eth0"] == "h1 uses Wi-Fi, and all hosts have a cabled link in 10.1.0.0/24"


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        pytest.param(NetworkOptions(link="enP7s7"), ("tcp", "enP7s7", 0), id="an interface"),
        pytest.param(NetworkOptions(link="10.0.0.0/24"), ("tcp", "enP7s7", 0), id="a network"),
        pytest.param(
            NetworkOptions(link={"h1": "10.0.0.1"}), ("tcp", "enP7s7", 0), id="an address of one host"
        ),
        pytest.param(
            NetworkOptions(link="enp1s0f0np0"), ("rdma", "enp1s0f0np0", 2), id="a half: its twin too"
        ),
        pytest.param(
            NetworkOptions(exclude=frozenset({"enP2p1s0f0np0"})),
            ("rdma", "enp1s0f0np0", 1),
            id="without a half",
        ),
        pytest.param(
            NetworkOptions(exclude=frozenset({"enp1s0f0np0"})),
            ("rdma", "enP2p1s0f0np0", 1),
            id="without the other",
        ),
        pytest.param(NetworkOptions(transport="tcp"), ("tcp", "enp1s0f0np0", 0), id="TCP on the fast wire"),
    ],
)
def test_the_users_wish(wishes: NetworkOptions, expected: tuple[str, str, int]) -> None:
    found = choose_fabric(group(spark(1), spark(2)), wishes)
    end = found.endpoints["h1"]
    assert (found.transport, end.interface, len(end.ports)) == expected


def test_over_tcp_both_halves_are_lanes() -> None:
    found = choose_fabric(group(spark(1), spark(2)), NetworkOptions(transport="tcp"))
    assert found.endpoints["h1"].lanes == ("enp1s0f0np0", "enP2p1s0f0np0")


def test_a_tunnel_that_is_named_is_taken_and_noted() -> None:
    hosts = group(
        *(server(n, TAILSCALE.replace(addresses=link("x", f"100.64.0.{n}/24").addresses)) for n in (1, 2))
    )
    found = choose_fabric(hosts, NetworkOptions(link="tailscale0"))
    assert found.endpoints["h1"].interface == "tailscale0"
    assert "tailscale0 (tunnel)" in found.findings[0].what


@pytest.mark.parametrize(
    ("hosts", "wishes", "names", "cause"),
    [
        pytest.param(
            (server(1), server(2, link("eth0", "10.9.0.2/24"))),
            NetworkOptions(),
            ("h1, h2",),
            "h1: 10.0.0.1/24 (eth0); h2: 10.9.0.2/24 (eth0)",
            id="no subnet, no route",
        ),
        pytest.param(
            (server(1), server(1)),
            NetworkOptions(),
            ("h1, h2",),
            "10.0.0.1/24",
            id="one address twice",
        ),
        pytest.param(
            tuple(trio(n, lan=None) for n in (1, 2, 3)),
            NetworkOptions(),
            ("ring of 3", "h1 – h2 – h3"),
            "192.168.12.1",
            id="ring",
        ),
        pytest.param(
            (spark(1), thor(2)),
            NetworkOptions(transport="rdma"),
            ("RDMA",),
            "h2",
            id="RDMA forced",
        ),
        pytest.param(
            (server(1), server(2)),
            NetworkOptions(link="eth9"),
            ("h1 ", "eth9"),
            "eth0 10.0.0.1",
            id="no such",
        ),
        pytest.param(
            (server(1), server(2)),
            NetworkOptions(link="10.0/8x"),
            ("10.0/8x ",),
            "",
            id="no network",
        ),
        pytest.param(
            (server(1), server(2)),
            NetworkOptions(link="lo"),
            ("h1 ", " lo "),
            "loopback",
            id="loopback forced",
        ),
    ],
)
def test_what_cannot_be(
    hosts: tuple[Facts, ...], wishes: NetworkOptions, names: tuple[str, ...], cause: str
) -> None:
    with raises_problem(*names, cause=cause) as caught:
        choose_fabric(group(*hosts), wishes)
    assert caught.value.fix


def test_a_gateway_is_the_last_choice_and_is_noted() -> None:
    far = server(2, link("eth0", "10.9.0.2/24"), routes=(default("eth0", "10.9.0.254"),))
    found = choose_fabric(group(server(1, routes=(default("eth0"),)), far))
    assert found.transport == "tcp"
    assert "ping -c 3 10.9.0.2" in found.findings[0].fix
