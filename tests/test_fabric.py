"""What wire is chosen for a group, what is said of the others, and what stays true whatever the hosts are."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from medley.fabric import Fabric, Wishes, fabric
from medley.fabric.nccl import SUBNET_AWARE
from medley.fabric.speed import pcie_mbit, twins
from medley.facts import Facts
from medley.problem import Problem
from tests.networks import (
    BRIDGE_OF_DOCKER,
    DOCKER,
    TAILSCALE,
    default,
    half,
    host,
    link,
    orin,
    rtx,
    server,
    spark,
    thor,
    trio,
)

CLUTTER = (DOCKER, BRIDGE_OF_DOCKER, TAILSCALE)
WIFI: dict[str, Any] = {"kind": "wifi", "mbit": 1200}
LOCAL = ("169.254.0", None)


def group(*hosts: Facts) -> dict[str, Facts]:
    return {f"h{nth}": facts for nth, facts in enumerate(hosts, 1)}


def ends(found: Fabric) -> dict[str, tuple[str, int | None, str]]:
    return {
        name: (end.interface, end.mbit, " ".join(port.device for port in end.ports))
        for name, end in found.ends.items()
    }


@pytest.mark.parametrize(
    ("hosts", "transport", "expected"),
    [
        pytest.param(
            group(spark(1), spark(2, cage=1)),
            "rdma",
            # Each half is capped by PCIe at 126 Gb/s, both by their one cable at 200.
            {
                "h1": ("enp1s0f0np0", 200_000, "rocep1s0f0 roceP2p1s0f0"),
                "h2": ("enp1s0f1np1", 200_000, "rocep1s0f1 roceP2p1s0f1"),
            },
            id="two Sparks, a cable between unlike cages: both halves",
        ),
        pytest.param(
            group(spark(1, second=None, first="169.254.7"), spark(2, second=None, first="169.254.7")),
            "rdma",
            {
                "h1": ("enp1s0f0np0", 126_030, "rocep1s0f0"),
                "h2": ("enp1s0f0np0", 126_030, "rocep1s0f0"),
            },
            id="two Sparks, link-local on one half: normal there",
        ),
        pytest.param(
            group(spark(1), spark(2, second_up=False)),
            "rdma",
            {
                "h1": ("enp1s0f0np0", 126_030, "rocep1s0f0"),
                "h2": ("enp1s0f0np0", 126_030, "rocep1s0f0"),
            },
            id="two Sparks, one half down",
        ),
        pytest.param(
            group(spark(1, width=2), spark(2)),
            "rdma",
            # NCCL gives each half the same share: twice the slow one's 63 Gb/s.
            {
                "h1": ("enp1s0f0np0", 126_030, "rocep1s0f0 roceP2p1s0f0"),
                "h2": ("enp1s0f0np0", 200_000, "rocep1s0f0 roceP2p1s0f0"),
            },
            id="two Sparks, one with two PCIe lanes",
        ),
        pytest.param(
            group(spark(1, second="192.168.100"), spark(2)),
            "tcp",
            {"h1": ("enP7s7", 10_000, ""), "h2": ("enP7s7", 10_000, "")},
            id="two Sparks, halves in one subnet: the LAN",
        ),
        pytest.param(
            group(spark(1), spark(2, first="192.168.101", second="192.168.100")),
            "rdma",
            {
                "h1": ("enp1s0f0np0", 126_030, "rocep1s0f0"),
                "h2": ("enP2p1s0f0np0", 126_030, "roceP2p1s0f0"),
            },
            id="two Sparks, halves crossed: one of them",
        ),
        pytest.param(
            group(trio(1), trio(2), trio(3)),
            "tcp",
            dict.fromkeys(("h1", "h2", "h3"), ("enP7s7", 10000, "")),
            id="a ring of three Sparks, and the lock's NCCL",
        ),
        pytest.param(
            group(thor(1), thor(2)),
            "tcp",
            {"h1": ("mgbe0_0", 100_000, ""), "h2": ("mgbe0_0", 100_000, "")},
            id="two Thors: four lanes",
        ),
        pytest.param(
            group(orin(1), orin(2, "eth0")),
            "tcp",
            {"h1": ("eno1", 10_000, ""), "h2": ("eth0", 10_000, "")},
            id="two Orins, and Docker and USB on both",
        ),
        pytest.param(
            group(spark(1), rtx(2)),
            "rdma",
            {"h1": ("enp1s0f0np0", 126_030, "rocep1s0f0"), "h2": ("enp65s0np0", 100_000, "mlx5_0")},
            id="a Spark and a workstation over RoCE",
        ),
        pytest.param(
            group(spark(1), spark(2), thor(3), thor(4)),
            "tcp",
            {
                "h1": ("enP7s7", 10_000, ""),
                "h2": ("enP7s7", 10_000, ""),
                "h3": ("enP2p1s0", 5_000, ""),
                "h4": ("enP2p1s0", 5_000, ""),
            },
            id="Sparks and Thors: sockets everywhere, and Thor's enP2p1s0 is no twin",
        ),
        pytest.param(
            group(server(1), server(2), server(3)),
            "tcp",
            dict.fromkeys(("h1", "h2", "h3"), ("eth0", 10000, "")),
            id="a rack of CPUs, air-gapped: no route is asked for",
        ),
        pytest.param(
            group(*(server(n, *CLUTTER, link("eno1", f"10.0.0.{n}/24", mbit=1000)) for n in (1, 2))),
            "tcp",
            {"h1": ("eno1", 1000, ""), "h2": ("eno1", 1000, "")},
            id="VPN and Docker, with the same addresses on both",
        ),
        pytest.param(
            group(*(server(n, link("wlan0", f"10.0.0.{n}/24", **WIFI)) for n in (1, 2))),
            "tcp",
            {"h1": ("wlan0", 1200, ""), "h2": ("wlan0", 1200, "")},
            id="Wi-Fi and nothing else",
        ),
        pytest.param(
            group(
                *(
                    server(
                        n, link("wlan0", f"10.0.0.{n}/24", **WIFI), link("eth0", f"10.1.0.{n}/24", mbit=100)
                    )
                    for n in (1, 2)
                )
            ),
            "tcp",
            {"h1": ("eth0", 100, ""), "h2": ("eth0", 100, "")},
            id="a slow wire before a fast Wi-Fi",
        ),
        pytest.param(
            group(*(server(n, link("br0", f"10.0.0.{n}/24", kind="bridge", mbit=None)) for n in (1, 2))),
            "tcp",
            {"h1": ("br0", None, ""), "h2": ("br0", None, "")},
            id="a bridge of the host's own, whose speed nobody says",
        ),
    ],
)
def test_the_wire_of_a_group(
    hosts: Mapping[str, Facts], transport: str, expected: dict[str, tuple[str, int | None, str]]
) -> None:
    found = fabric(hosts)
    assert (found.transport, ends(found)) == (transport, expected)
    assert found.why


def test_the_ring_needs_an_nccl_that_knows_it() -> None:
    hosts = group(trio(1), trio(2), trio(3))
    found = fabric(hosts, version=SUBNET_AWARE)
    assert (found.transport, found.ring, found.subnet_bits) == ("rdma", True, 24)
    ports = "rocep1s0f0 rocep1s0f1 roceP2p1s0f0 roceP2p1s0f1"
    assert ends(found) == dict.fromkeys(hosts, ("enP7s7", 200000, ports))
    assert "2.30.7" in fabric(hosts).findings[0].fix


@pytest.mark.parametrize(
    ("hosts", "what", "fix"),
    [
        pytest.param(
            (spark(1, second="192.168.100"), spark(2)),
            "both in 192.168.100.0/24",
            "del 192.168.100.11/24 dev enP2p1s0f0np0; sudo ip address add 192.168.101.1/24 dev enP2p1s0f0np0",
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
            "in different order",
            "PCI domain 0000",
            id="crossed",
        ),
        pytest.param((trio(1), trio(2), trio(3)), "cables between the hosts (200 Gb/s)", "2.30.7", id="ring"),
        pytest.param(
            tuple(server(n, link("wlan0", f"10.0.0.{n}/24", **WIFI)) for n in (1, 2)),
            "wlan0 (wifi)",
            "cable",
            id="Wi-Fi",
        ),
        pytest.param(
            (server(1, link("eth0", "10.0.0.1/24"), link("eth1", "10.0.0.9/24", mbit=1000)), server(2)),
            "two links in 10.0.0.0/24",
            "eth1 down",
            id="doubled",
        ),
    ],
)
def test_what_is_said_with_its_fix(hosts: tuple[Facts, ...], what: str, fix: str) -> None:
    found = fabric(group(*hosts)).findings
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
    assert fabric(group(*hosts)).findings == ()


def test_every_link_that_is_not_taken_has_its_reason() -> None:
    wifi = link("wlP9s9", "10.0.0.91/24", **WIFI)
    found = fabric(group(spark(1, extra=(*CLUTTER, wifi), second="192.168.77"), spark(2)))
    assert {each.interface: each.why for each in found.rejected if each.host == "h1"} == {
        "br-1a2b3c": "it belongs to containers, and has the like on every host",
        "docker0": "it belongs to containers, and has the like on every host",
        "enP2p1s0f0np0": "no other host of the group is in 192.168.77.0/24",
        "enP2p1s0f1np1": "it is down, or no cable is in it",
        "enP7s7": "10.0.0.0/24 has 10 Gb/s at h1, 192.168.100.0/24 126 Gb/s",
        "enp1s0f1np1": "it is down, or no cable is in it",
        "lo": "the loopback reaches this host alone",
        "tailscale0": "a tunnel (VPN) goes the long way round; name it with --link if it is meant",
        "wlP9s9": "Wi-Fi, and enP7s7 is a wire to the same network",
    }


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        pytest.param(Wishes(link="enP7s7"), ("tcp", "enP7s7", 0), id="an interface"),
        pytest.param(Wishes(link="10.0.0.0/24"), ("tcp", "enP7s7", 0), id="a network"),
        pytest.param(Wishes(link={"h1": "10.0.0.1"}), ("tcp", "enP7s7", 0), id="an address of one host"),
        pytest.param(Wishes(link="enp1s0f0np0"), ("rdma", "enp1s0f0np0", 2), id="a half: its twin too"),
        pytest.param(
            Wishes(exclude=frozenset({"enP2p1s0f0np0"})), ("rdma", "enp1s0f0np0", 1), id="without a half"
        ),
        pytest.param(
            Wishes(exclude=frozenset({"enp1s0f0np0"})), ("rdma", "enP2p1s0f0np0", 1), id="without the other"
        ),
        pytest.param(Wishes(transport="tcp"), ("tcp", "enp1s0f0np0", 0), id="TCP on the fast wire"),
    ],
)
def test_the_users_wish(wishes: Wishes, expected: tuple[str, str, int]) -> None:
    found = fabric(group(spark(1), spark(2)), wishes)
    end = found.ends["h1"]
    assert (found.transport, end.interface, len(end.ports)) == expected


def test_over_tcp_both_halves_are_lanes() -> None:
    found = fabric(group(spark(1), spark(2)), Wishes(transport="tcp"))
    assert found.ends["h1"].lanes == ("enp1s0f0np0", "enP2p1s0f0np0")


def test_a_tunnel_that_is_named_is_taken_and_noted() -> None:
    hosts = group(
        *(server(n, replace(TAILSCALE, addresses=link("x", f"100.64.0.{n}/24").addresses)) for n in (1, 2))
    )
    found = fabric(hosts, Wishes(link="tailscale0"))
    assert found.ends["h1"].interface == "tailscale0"
    assert "tailscale0 (tunnel)" in found.findings[0].what


@pytest.mark.parametrize(
    ("hosts", "wishes", "what", "cause"),
    [
        pytest.param(
            (server(1), server(2, link("eth0", "10.9.0.2/24"))),
            Wishes(),
            "no network in common",
            "h1: 10.0.0.1/24 (eth0); h2: 10.9.0.2/24 (eth0)",
            id="no subnet, no route",
        ),
        pytest.param(
            (server(1), server(1)), Wishes(), "no network in common", "10.0.0.1/24", id="one address twice"
        ),
        pytest.param(
            (spark(1, second="192.168.100", lan=None), spark(2, lan=None)),
            Wishes(),
            "both in 192.168.100.0/24",
            "192.168.100.11",
            id="halves in one subnet, and no other network",
        ),
        pytest.param(
            tuple(trio(n, lan=None) for n in (1, 2, 3)),
            Wishes(),
            "no network reaches all",
            "192.168.12.1",
            id="ring",
        ),
        pytest.param(
            (spark(1), thor(2)), Wishes(transport="rdma"), "not every host can", "h2", id="RDMA forced"
        ),
        pytest.param(
            (server(1), server(2)), Wishes(link="eth9"), "h1 has no link eth9", "eth0 10.0.0.1", id="no such"
        ),
        pytest.param(
            (server(1), server(2)), Wishes(link="10.0/8x"), "10.0/8x is no network", "", id="no network"
        ),
        pytest.param(
            (server(1), server(2)), Wishes(link="lo"), "h1 has no link lo", "loopback", id="loopback forced"
        ),
    ],
)
def test_what_cannot_be(hosts: tuple[Facts, ...], wishes: Wishes, what: str, cause: str) -> None:
    with pytest.raises(Problem) as caught:
        fabric(group(*hosts), wishes)
    assert what in caught.value.what
    assert cause in caught.value.cause
    assert caught.value.fix


def test_a_gateway_is_the_last_choice_and_is_noted() -> None:
    far = server(2, link("eth0", "10.9.0.2/24"), routes=(default("eth0", "10.9.0.254"),))
    found = fabric(group(server(1, routes=(default("eth0"),)), far))
    assert found.transport == "tcp"
    assert "ping -c 3 10.9.0.2" in found.findings[0].fix


def test_one_host_alone_needs_no_network() -> None:
    found = fabric({"h1": host(())})
    assert (found.transport, found.ends["h1"].address) == ("none", "127.0.0.1")


def test_two_links_that_are_link_local_say_nothing_of_where_they_lead() -> None:
    def both(nth: int) -> Facts:
        (one, _), (port, _) = half(nth, 0, LOCAL)
        (other, _), (second, _) = half(nth + 10, 1, LOCAL)
        wide = [replace(each, addresses=(replace(each.addresses[0], prefix=16),)) for each in (one, other)]
        return host((*wide, link("enP7s7", f"10.0.0.{nth}/24")), gpu="NVIDIA GB10", rdma=(port, second))

    found = fabric(group(both(1), both(2)))
    assert found.ends["h1"].interface == "enP7s7"
    assert "169.254.0.0/16" in found.findings[0].what


def test_twins_are_told_by_card_and_port_and_not_by_name() -> None:
    renamed = [replace(port, device=f"mlx5_{n}") for n, port in enumerate(spark(1).rdma)]
    assert {one: other.device for one, other in twins(renamed).items()} == {
        "mlx5_0": "mlx5_1",
        "mlx5_1": "mlx5_0",
        "mlx5_2": "mlx5_3",
        "mlx5_3": "mlx5_2",
    }
    assert twins(rtx(1).rdma) == {}


@pytest.mark.parametrize(
    ("width", "gt", "mbit"),
    [
        pytest.param(4, 32.0, 126_030, id="half of a Spark's cage"),
        pytest.param(2, 32.0, 63_015, id="with an old BIOS"),
        pytest.param(8, 5.0, 32_000, id="PCIe 2, whose code is 8/10"),
        pytest.param(None, 32.0, None, id="not told"),
    ],
)
def test_what_pcie_carries(width: int | None, gt: float, mbit: int | None) -> None:
    assert pcie_mbit(replace(rtx(1).rdma[0], pcie_width=width, pcie_gt=gt)) == mbit
