"""What wire is chosen for a group, what is said of the others, and what stays true whatever the hosts are."""

from collections.abc import Mapping
from typing import Any

import pytest

from medley.host.facts import Facts
from medley.network.fabric.choice import Fabric, NetworkOptions
from medley.network.fabric.choose import choose_fabric
from medley.network.fabric.nccl import SUBNET_AWARE_NCCL
from tests.network.fabric.environments import OLDER_NCCL
from tests.network.networks import (
    BRIDGE_OF_DOCKER,
    DOCKER,
    TAILSCALE,
    group,
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


def ends(found: Fabric) -> dict[str, tuple[str, int | None, str]]:
    return {
        name: (end.interface, end.mbit, " ".join(port.device for port in end.ports))
        for name, end in found.endpoints.items()
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
            "rdma",
            {"h1": ("enp1s0f0np0", 126_030, "rocep1s0f0"), "h2": ("enp1s0f0np0", 126_030, "rocep1s0f0")},
            id="two Sparks, halves in one subnet: one half",
        ),
        pytest.param(
            group(spark(1), spark(2, first="192.168.101", second="192.168.100")),
            "rdma",
            {
                "h1": ("enp1s0f0np0", 200_000, "rocep1s0f0 roceP2p1s0f0"),
                "h2": ("enP2p1s0f0np0", 200_000, "rocep1s0f0 roceP2p1s0f0"),
            },
            id="two Sparks, halves crossed: both",
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
    found = choose_fabric(hosts)
    assert (found.transport, ends(found)) == (transport, expected)
    assert found.why


def test_the_ring_needs_an_nccl_that_knows_it() -> None:
    hosts = group(trio(1), trio(2), trio(3))
    found = choose_fabric(hosts, NetworkOptions(nccl_version=SUBNET_AWARE_NCCL))
    assert (found.transport, found.is_ring, found.subnet_bits) == ("rdma", True, 24)
    ports = "rocep1s0f0 rocep1s0f1 roceP2p1s0f0 roceP2p1s0f1"
    assert ends(found) == dict.fromkeys(hosts, ("enP7s7", 200000, ports))
    older = choose_fabric(hosts, NetworkOptions(nccl_version=OLDER_NCCL))
    assert (older.transport, ends(older)) == ("tcp", dict.fromkeys(hosts, ("enP7s7", 10000, "")))
    assert "2.30.7" in older.findings[0].fix


def test_an_older_nccl_takes_one_of_two_crossed_halves() -> None:
    hosts = group(spark(1), spark(2, first="192.168.101", second="192.168.100"))
    assert ends(choose_fabric(hosts, NetworkOptions(nccl_version=OLDER_NCCL))) == {
        "h1": ("enp1s0f0np0", 126_030, "rocep1s0f0"),
        "h2": ("enP2p1s0f0np0", 126_030, "roceP2p1s0f0"),
    }


def test_one_host_alone_needs_no_network() -> None:
    found = choose_fabric({"h1": host(())})
    assert (found.transport, found.endpoints["h1"].address) == ("none", "127.0.0.1")


def test_two_links_that_are_link_local_say_nothing_of_where_they_lead() -> None:
    def both(nth: int) -> Facts:
        (one, _), (port, _) = half(nth, 0, LOCAL)
        (other, _), (second, _) = half(nth + 10, 1, LOCAL)
        wide = [each.replace(addresses=(each.addresses[0].replace(prefix=16),)) for each in (one, other)]
        return host((*wide, link("enP7s7", f"10.0.0.{nth}/24")), gpu="NVIDIA GB10", rdma=(port, second))

    found = choose_fabric(group(both(1), both(2)))
    assert found.endpoints["h1"].interface == "enP7s7"
    assert "169.254.0.0/16" in found.findings[0].what
