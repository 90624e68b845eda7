"""Groups of recorded hosts, and what each is to get: written by hand, with its reason."""

from collections.abc import Mapping
from typing import NamedTuple

from tests.network.fabric.environments import cpu, rdma, tcp

NO_GPUDIRECT = {"NCCL_NET_GDR_LEVEL": "LOC", "NCCL_DMABUF_ENABLE": "0"}
ONE_PORT = {"NCCL_NET": "IB", **NO_GPUDIRECT}
BOTH_HALVES = {**ONE_PORT, "NCCL_IB_MERGE_NICS": "1", "NCCL_CROSS_NIC": "0"}
BY_VERSION = {"NCCL_IB_ROCE_VERSION_NUM": "2", "NCCL_IB_ADDR_FAMILY": "AF_INET"}
SOCKETS = {"NCCL_IB_DISABLE": "1"}
UNLIKE = {**SOCKETS, "NCCL_PROTO": "Simple"}

F0, F1 = "rocep1s0f0:1,roceP2p1s0f0:1", "rocep1s0f1:1,roceP2p1s0f1:1"
FOUR = "rocep1s0f0:1,rocep1s0f1:1,roceP2p1s0f0:1,roceP2p1s0f1:1"
LANES = "mgbe0_0,mgbe1_0,mgbe2_0,mgbe3_0"

A = rdma("192.168.100.10", "enp1s0f1np1", F1)
B = rdma("192.168.100.11", "enp1s0f0np0", F0)
A_HALF = rdma("192.168.100.10", "enp1s0f1np1", "rocep1s0f1:1")
B_HALF = rdma("192.168.100.11", "enp1s0f0np0", "rocep1s0f0:1")
A_LAN, B_LAN, C_LAN = (tcp(f"192.168.1.{n}", "enP7s7") for n in (10, 11, 12))
RING = ("spark-ring-a", "spark-ring-b", "spark-ring-c")


class Group(NamedTuple):
    names: tuple[str, ...]
    """`again`: a second host of that sort."""
    shared: Mapping[str, str]
    each: list[dict[str, str]]
    findings: tuple[str, ...] = ()
    """Words of each."""


GROUPS = {
    "Spark pair": Group(
        # The published pair; its cable leads from one cage to the other, so names differ by host.
        ("spark-pair-a", "spark-pair-b"),
        BOTH_HALVES,
        [A, B],
    ),
    "twins in one subnet": Group(
        # One half carries, until the other has a subnet of its own.
        ("spark-twins-one-subnet", "spark-pair-b"),
        ONE_PORT,
        [A_HALF, B_HALF],
        ("--interface enP2p1s0f1np1 --address 192.168.101.10/24", "an address in 192.168.101.0/24"),
    ),
    "one half down": Group(
        # One rail, so nothing to merge or to cross.
        ("spark-one-half-down", "spark-pair-b"),
        ONE_PORT,
        [A_HALF, B_HALF],
        ("ip link set enP2p1s0f1np1 up", "an address in 192.168.101.0/24"),
    ),
    "GID drift": Group(
        # Row 5 here and row 3 there: no index is right for both, so NCCL finds the row by its version.
        ("spark-gid-drift", "spark-pair-b"),
        {**BOTH_HALVES, **BY_VERSION},
        [
            rdma("192.168.100.10", "enp1s0f1np1", F1, gid=None),
            rdma("192.168.100.11", "enp1s0f0np0", F0, gid=None),
        ],
    ),
    "MTU mismatch": Group(
        # Both halves still carry: the ends agree on the smaller frame, and each network is noted.
        ("spark-mtu-mismatch", "spark-pair-b"),
        BOTH_HALVES,
        [A, B],
        ("set enp1s0f1np1 mtu 9000", "set enP2p1s0f1np1 mtu 9000"),
    ),
    "x2 PCIe": Group(
        # Twice the slower half is as much as the faster alone: both stay, and firmware is what mends it.
        ("spark-pcie-x2", "spark-pair-b"),
        BOTH_HALVES,
        [A, B],
        ("roceP2p1s0f1 has 2 of 4 PCIe lanes",),
    ),
    "link-local pair": Group(
        # Both halves are in 169.254/16: one of them carries, until the other has a subnet of its own.
        ("spark-link-local", "spark-link-local again"),
        ONE_PORT,
        [rdma(f"169.254.17.{n}", "enp1s0f1np1", "rocep1s0f1:1") for n in (10, 11)],
        ("--address 192.168.192.62/24", "--address 192.168.192.63/24"),
    ),
    "link-local on one side alone": Group(
        # Its peer has no address of 169.254/16: the networks of the cable are two, and none is shared.
        ("spark-link-local", "spark-pair-b"),
        SOCKETS,
        [A_LAN, B_LAN],
        ("--interface enp1s0f1np1 --address 192.168.100.1/24",),
    ),
    "a Spark without a cable": Group(
        # No cable in its cages; what is left is the ordinary network, and nothing is wrong with it.
        ("spark", "spark-pair-b"),
        SOCKETS,
        [A_LAN, B_LAN],
    ),
    "trio ring": Group(
        # An older NCCL would open a connection by a cable that leads to the other neighbour.
        RING,
        SOCKETS,
        [A_LAN, B_LAN, C_LAN],
        ("cables between the hosts (200 Gbit/s)",),
    ),
    "two of the ring": Group(
        # Two of a ring are a pair: their one cable is the network.
        RING[:2],
        BOTH_HALVES,
        [rdma("192.168.11.10", "enp1s0f0np0", F0), rdma("192.168.11.11", "enp1s0f1np1", F1)],
    ),
    "two Thors on mgbe": Group(
        # Four lanes of one cage, a subnet each, for NCCL; Gloo, TensorPipe and Ray know one interface.
        ("thor-mgbe-a", "thor-mgbe-b"),
        SOCKETS,
        [tcp("10.0.0.1", "mgbe0_0", LANES), tcp("10.0.0.2", "mgbe0_0", LANES)],
    ),
    "Orin pair on 10GbE": Group(
        # Two subnets on one wire: both are as fast, and the lower address is taken on both hosts.
        ("orin-pair-a", "orin-pair-b"),
        SOCKETS,
        [tcp("10.0.10.1", "eno1"), tcp("10.0.10.2", "eno1")],
    ),
    "Thor and Orin on the LAN": Group(
        # Neither has a cable; Thor and Orin are unlike GPUs over TCP.
        ("thor-r38", "orin-r36"),
        UNLIKE,
        [tcp("192.168.1.21", "enP2p1s0"), tcp("192.168.1.41", "eno1")],
    ),
    "Spark and RTX over RoCE": Group(
        # One port there, so one half here. The workstation's two GPUs keep P2P and shared memory.
        ("spark-pair-a", "rtx-roce"),
        ONE_PORT,
        [A_HALF, rdma("192.168.100.30", "enp65s0np0", "rocep65s0:1")],
    ),
    "Sparks and Thors: sockets everywhere": Group(
        # Thor has no RDMA, so the Sparks may not use theirs; the cables reach two hosts alone.
        ("spark-pair-a", "spark-pair-b", "thor-mgbe-a", "thor-mgbe-b"),
        UNLIKE,
        [A_LAN, B_LAN, tcp("192.168.1.21", "enP2p1s0"), tcp("192.168.1.22", "enP2p1s0")],
    ),
    "air-gapped": Group(
        # No default route and no LAN: the cable is all there is, and all that is needed.
        ("spark-air-gapped", "spark-pair-b"),
        BOTH_HALVES,
        [A, B],
    ),
    "VPN and Docker clutter": Group(
        # Tunnels reach both, docker0 and cni0 have one address on both, Wi-Fi is in the wire's own subnet.
        ("rtx-vpn-docker", "rtx-vpn-docker again"),
        SOCKETS,
        [tcp("192.168.1.31", "enp5s0"), tcp("192.168.1.33", "enp5s0")],
    ),
    "clutter here and RoCE there": Group(
        # The wire's primary address, not its second. Two GPUs on one of them, so no PROTO is forced.
        ("rtx-vpn-docker", "rtx-roce"),
        SOCKETS,
        [tcp("192.168.1.31", "enp5s0"), tcp("192.168.1.30", "eno1")],
    ),
    "Wi-Fi only": Group(
        # Nothing else is up on either: taken, and noted for both.
        ("rtx-wifi", "rtx-wifi again"),
        SOCKETS,
        [tcp("192.168.1.32", "wlp2s0"), tcp("192.168.1.34", "wlp2s0")],
        ("wlp2s0 (wifi)", "wlp2s0 (wifi)"),
    ),
    "Wi-Fi and a wire in one network": Group(
        # One has no wire; the other's wire is in the same network, before its own Wi-Fi.
        ("rtx-wifi", "rtx-vpn-docker"),
        SOCKETS,
        [tcp("192.168.1.32", "wlp2s0"), tcp("192.168.1.31", "enp5s0")],
        ("rtx-wifi is reached by wlp2s0 (wifi)",),
    ),
    "CPU rack": Group(
        # A VLAN on a bond of 2 x 25 GbE, before the 1 GbE with the default route; no GPU, so no NCCL.
        ("cpu-rack", "cpu-rack again"),
        {},
        [cpu("10.40.0.7", "bond0.40"), cpu("10.40.0.8", "bond0.40")],
    ),
    "a CPU and a Spark": Group(
        # Gloo alone reaches both. The Spark's is the one GPU, and so unlike no other.
        ("cpu-rack", "spark-pair-a"),
        SOCKETS,
        [cpu("192.168.1.60", "eno1"), A_LAN],
    ),
}
