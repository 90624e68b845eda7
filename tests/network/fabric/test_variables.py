"""What the user's own environment has before medley says a word: it wins, and is shown."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from medley.command import Variable
from medley.host.facts import Facts
from medley.network.fabric.choice import NetworkOptions
from medley.network.fabric.choose import choose_fabric
from medley.network.fabric.nccl import LOCKED_NCCL, SUBNET_AWARE_NCCL, format_nccl_version
from medley.network.fabric.variables import (
    LEFT_UNSET,
    NOT_CARRIED_VARIABLES,
    list_group_variables,
    merge_user_variables,
)
from tests.network.fabric.environments import OLDER_NCCL, cpu, environments, rdma, tcp
from tests.network.networks import DOCKER, TAILSCALE, host, link, orin, port, rtx, server, spark, thor, trio

OURS = (
    Variable("VLLM_HOST_IP", "10.0.0.1", "Ray's"),
    Variable("NCCL_SOCKET_IFNAME", "=eth1", "the wire"),
    Variable("GLOO_SOCKET_IFNAME", "eth1", "the wire"),
)


@pytest.mark.parametrize(
    ("environment", "name", "expected"),
    [
        pytest.param(
            {"GLOO_SOCKET_IFNAME": "eth0"},
            "GLOO_SOCKET_IFNAME",
            ("eth0", "set by you; medley's value is eth1: the wire"),
            id="the user's wins",
        ),
        pytest.param(
            {"GLOO_SOCKET_IFNAME": "eth1"},
            "GLOO_SOCKET_IFNAME",
            ("eth1", "set by you, and by medley: the wire"),
            id="the same",
        ),
        pytest.param({}, "GLOO_SOCKET_IFNAME", ("eth1", "the wire"), id="none of the user's"),
        pytest.param(
            {"NCCL_DEBUG": "INFO"}, "NCCL_DEBUG", ("INFO", "set by you; medley would not"), id="one more"
        ),
        pytest.param(
            {"NCCL_P2P_DISABLE": "1"},
            "NCCL_P2P_DISABLE",
            ("1", f"set by you; medley would not: {LEFT_UNSET['NCCL_P2P_DISABLE']}"),
            id="one of the guides'",
        ),
        pytest.param(
            {"VLLM_HOST_IP": "10.9.9.9"}, "VLLM_HOST_IP", ("10.0.0.1", "Ray's"), id="Ray's address is ours"
        ),
        pytest.param({"HOME": "/root"}, "HOME", None, id="of no such kind"),
    ],
)
def test_what_the_user_set(environment: dict[str, str], name: str, expected: tuple[str, str] | None) -> None:
    found = {each.name: (each.value, each.why) for each in merge_user_variables(OURS, environment)}
    assert found.get(name) == expected
    assert set(found) >= {each.name for each in OURS}


def test_who_wants_the_nics_of_a_ring_merged_says_so_by_the_variable() -> None:
    """An owner of four Sparks reports 1 as needed; NVIDIA's playbook has 0."""
    hosts = {f"h{n}": trio(n) for n in (1, 2, 3)}
    ours = tuple(
        list_group_variables(choose_fabric(hosts, NetworkOptions(nccl_version=SUBNET_AWARE_NCCL)), hosts)
    )
    found = {each.name: each for each in merge_user_variables(ours, {"NCCL_IB_MERGE_NICS": "1"})}
    merged = found["NCCL_IB_MERGE_NICS"]
    assert merged.value == "1"
    assert merged.why.startswith("set by you; medley's value is 0")
    assert found["NCCL_IB_SUBNET_AWARE_ROUTING"].value == "1"


LOCK = Path(__file__).parents[3] / "locks" / "vllm-cuda.txt"
NO_GPUDIRECT = {"NCCL_NET_GDR_LEVEL": "LOC", "NCCL_DMABUF_ENABLE": "0"}
BOTH_HALVES = {"NCCL_NET": "IB", "NCCL_IB_MERGE_NICS": "1", "NCCL_CROSS_NIC": "0", **NO_GPUDIRECT}
ONE_PORT = {"NCCL_NET": "IB", **NO_GPUDIRECT}
BY_VERSION = {"NCCL_IB_ROCE_VERSION_NUM": "2", "NCCL_IB_ADDR_FAMILY": "AF_INET"}
SOCKETS = {"NCCL_IB_DISABLE": "1"}


F0, F1 = "rocep1s0f0:1,roceP2p1s0f0:1", "rocep1s0f1:1,roceP2p1s0f1:1"
FOUR = "rocep1s0f0:1,rocep1s0f1:1,roceP2p1s0f0:1,roceP2p1s0f1:1"
LANES = "mgbe0_0,mgbe1_0,mgbe2_0,mgbe3_0"


@pytest.mark.parametrize(
    ("hosts", "group", "each"),
    [
        pytest.param(
            # The cage differs by host, so names do: nothing here may be carried from one to the other.
            (spark(1), spark(2, cage=1)),
            BOTH_HALVES,
            [rdma("192.168.100.1", "enp1s0f0np0", F0), rdma("192.168.100.2", "enp1s0f1np1", F1)],
            id="Spark pair",
        ),
        pytest.param(
            # 3 is right for three of the ports; for the fourth it would be the fe80 row's neighbour.
            (spark(1), spark(2, gids=(3, 5))),
            {**BOTH_HALVES, **BY_VERSION},
            [
                rdma("192.168.100.1", "enp1s0f0np0", F0, gid=None),
                rdma("192.168.100.2", "enp1s0f0np0", F0, gid=None),
            ],
            id="Spark pair, the GID of one half moved",
        ),
        pytest.param(
            (spark(1, gids=(5, 5)), spark(2, gids=(5, 5))),
            BOTH_HALVES,
            [
                rdma("192.168.100.1", "enp1s0f0np0", F0, gid="5"),
                rdma("192.168.100.2", "enp1s0f0np0", F0, gid="5"),
            ],
            id="Spark pair, GID 5 everywhere",
        ),
        pytest.param(
            # No second rail, so nothing to merge or to cross.
            (spark(1), spark(2, second_up=False)),
            ONE_PORT,
            [
                rdma("192.168.100.1", "enp1s0f0np0", "rocep1s0f0:1"),
                rdma("192.168.100.2", "enp1s0f0np0", "rocep1s0f0:1"),
            ],
            id="Spark pair, one half down",
        ),
        pytest.param(
            # Either half leads down the cable, and one port is named.
            (spark(1, second="192.168.100"), spark(2)),
            ONE_PORT,
            [
                rdma("192.168.100.1", "enp1s0f0np0", "rocep1s0f0:1"),
                rdma("192.168.100.2", "enp1s0f0np0", "rocep1s0f0:1"),
            ],
            id="Spark pair, halves in one subnet",
        ),
        pytest.param(
            # Still both: TCP's ends agree on a size, and NCCL's RDMA takes the smaller.
            (spark(1), spark(2, mtu=1500)),
            BOTH_HALVES,
            [rdma("192.168.100.1", "enp1s0f0np0", F0), rdma("192.168.100.2", "enp1s0f0np0", F0)],
            id="Spark pair, MTU mismatch",
        ),
        pytest.param(
            (spark(1, width=2), spark(2)),
            BOTH_HALVES,
            [rdma("192.168.100.1", "enp1s0f0np0", F0), rdma("192.168.100.2", "enp1s0f0np0", F0)],
            id="Spark pair, x2",
        ),
        pytest.param(
            # An older NCCL would take a cable that leads elsewhere, and end in errno 110.
            (trio(1), trio(2), trio(3)),
            SOCKETS,
            [tcp(f"10.0.0.{nth}", "enP7s7") for nth in (1, 2, 3)],
            id="Spark trio ring, an older NCCL",
        ),
        pytest.param(
            # Four lanes of one cage, each in its own subnet; Gloo and Ray know but one.
            (thor(1), thor(2)),
            SOCKETS,
            [tcp("10.1.0.1", "mgbe0_0", LANES), tcp("10.1.0.2", "mgbe0_0", LANES)],
            id="two Thors",
        ),
        pytest.param(
            # No GPU shows on either, and NCCL is what their GPUs would use all the same.
            (orin(1), orin(2, "eth0")),
            SOCKETS,
            [tcp("10.0.0.1", "eno1"), tcp("10.0.0.2", "eth0")],
            id="Orin pair",
        ),
        pytest.param(
            # P2P and SHM stay: the workstation's two GPUs talk by them.
            (spark(1), rtx(2, gpus=2)),
            ONE_PORT,
            [
                rdma("192.168.100.1", "enp1s0f0np0", "rocep1s0f0:1"),
                rdma("192.168.100.2", "enp65s0np0", "mlx5_0:1"),
            ],
            id="Spark and RTX over RoCE",
        ),
        pytest.param(
            # Thor has no RDMA, so no host may use its own; PROTO as in the published setup of these four.
            (spark(1), spark(2), thor(3), thor(4)),
            {**SOCKETS, "NCCL_PROTO": "Simple"},
            [
                tcp("10.0.0.1", "enP7s7"),
                tcp("10.0.0.2", "enP7s7"),
                tcp("10.0.0.3", "enP2p1s0"),
                tcp("10.0.0.4", "enP2p1s0"),
            ],
            id="Sparks and Thors",
        ),
        pytest.param(
            # No default route, and none was asked for.
            (host((link("eth1", "10.5.0.1/24"),)), host((link("eth1", "10.5.0.2/24"),))),
            SOCKETS,
            [tcp("10.5.0.1", "eth1"), tcp("10.5.0.2", "eth1")],
            id="air-gapped",
        ),
        pytest.param(
            tuple(host((DOCKER, TAILSCALE, link("eth1", f"10.5.0.{n}/24"))) for n in (1, 2)),
            SOCKETS,
            [tcp("10.5.0.1", "eth1"), tcp("10.5.0.2", "eth1")],
            id="VPN and Docker clutter",
        ),
        pytest.param(
            tuple(host((link("wlan0", f"10.5.0.{n}/24", kind="wifi"),)) for n in (1, 2)),
            SOCKETS,
            [tcp("10.5.0.1", "wlan0"), tcp("10.5.0.2", "wlan0")],
            id="Wi-Fi only",
        ),
        pytest.param(
            # NCCL would do nothing there; eth1 is not eth10, for Gloo takes the whole name.
            (server(1), server(2)),
            {},
            [cpu("10.0.0.1", "eth0"), cpu("10.0.0.2", "eth0")],
            id="CPU rack",
        ),
        pytest.param((spark(1),), {}, [{}], id="one host alone"),
    ],
)
def test_the_environment_of_a_group(
    hosts: tuple[Facts, ...], group: Mapping[str, str], each: list[dict[str, str]]
) -> None:
    assert environments(*hosts, nccl=OLDER_NCCL) == (group, each)


@pytest.mark.parametrize(
    ("bits", "more"),
    [
        pytest.param(24, {}, id="cables in /24: what NCCL takes them for"),
        pytest.param(30, {"NCCL_IB_SUBNET_PREFIX_LEN": "30"}, id="cables in /30 of one /24"),
    ],
)
def test_the_ring(bits: int, more: dict[str, str]) -> None:
    hosts = [trio(n, bits=24) if bits == 24 else narrow(n) for n in (1, 2, 3)]
    group, each = environments(*hosts, nccl=SUBNET_AWARE_NCCL)
    assert group == {
        "NCCL_NET": "IB",
        "NCCL_IB_SUBNET_AWARE_ROUTING": "1",
        "NCCL_IB_MERGE_NICS": "0",
        "NCCL_CROSS_NIC": "1",
        "NCCL_NET_PLUGIN": "none",
        **more,
        **NO_GPUDIRECT,
    }
    ports = FOUR if bits == 24 else "rocep1s0f0:1,rocep1s0f1:1"
    # Sockets stay on the network that all share.
    assert each == [rdma(f"10.0.0.{nth}", "enP7s7", ports) for nth in (1, 2, 3)]


def narrow(nth: int) -> Facts:
    """One of three hosts with cables in 192.168.9.0/30, .4/30 and .8/30."""
    at = {1: (1, 5), 2: (9, 2), 3: (6, 10)}[nth]
    fast = [
        link(f"enp1s0f{n}np{n}", f"192.168.9.{last}/30", mbit=200_000, port_name=f"p{n}")
        for n, last in enumerate(at)
    ]
    ports = tuple(port(each, f"rocep1s0f{n}", f"0000:01:00.{n}") for n, each in enumerate(fast))
    return host((*fast, link("enP7s7", f"10.0.0.{nth}/24")), gpu="NVIDIA GB10", rdma=ports)


def test_infiniband_has_no_roce_version() -> None:
    def one(nth: int) -> Facts:
        fast = link("ib0", f"10.7.0.{nth}/24", mbit=200_000, kind="infiniband")
        card = port(fast, "mlx5_0", "0000:01:00.0", width=16, link_layer="InfiniBand", gids=())
        return host((fast,), rdma=(card,))

    group, each = environments(one(1), one(2))
    assert group == {"NCCL_NET": "IB"}
    assert each[0] == rdma("10.7.0.1", "ib0", "mlx5_0:1", gid=None)


def test_what_a_driver_must_not_carry_is_what_differs_from_host_to_host() -> None:
    _, each = environments(spark(1), spark(2, cage=1))
    assert set(each[0]) == set(NOT_CARRIED_VARIABLES)
    group, _ = environments(spark(1), spark(2, gids=(3, 5)))
    assert not set(group) & set(NOT_CARRIED_VARIABLES)


def test_the_locks_nccl_is_the_one_we_reckon_with() -> None:
    assert re.findall(r"^nvidia-nccl-cu\d+==([\d.]+)", LOCK.read_text(), re.MULTILINE) == [
        format_nccl_version(LOCKED_NCCL)
    ]


def test_what_medley_leaves_unset_is_set_for_no_group_with_two_gpus_in_a_host() -> None:
    group, each = environments(spark(1), rtx(2, gpus=2), wishes=NetworkOptions(transport="tcp"))
    assert not set(LEFT_UNSET) & {*group, *each[0], *each[1]}
