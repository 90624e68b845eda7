"""Recorded hosts, from transcript to environment."""

import pytest

from medley.network.fabric.choice import NetworkOptions
from medley.network.fabric.choose import choose_fabric
from medley.network.fabric.nccl import SUBNET_AWARE_NCCL
from medley.network.fabric.variables import list_group_variables, list_host_variables
from tests.host.recordings import hosts, with_networks
from tests.network.fabric.environments import OLDER_NCCL, rdma, values
from tests.network.fabric.groups import FOUR, GROUPS, NO_GPUDIRECT, RING, Group
from tests.problems import raises_problem


@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS)
def test_the_environment_of_recorded_hosts(group: Group) -> None:
    named = hosts(group.names)
    found = choose_fabric(named, NetworkOptions(nccl_version=OLDER_NCCL))
    assert values(tuple(list_group_variables(found, named))) == group.shared
    assert [
        values(tuple(list_host_variables(found, name, facts))) for name, facts in named.items()
    ] == group.each
    noted = [f"{one.what}; {one.cause}; {one.fix}" for one in found.findings]
    missing = [word for word, said in zip(group.findings, noted, strict=True) if word not in said]
    assert not missing, noted


def test_the_recorded_ring_with_an_nccl_that_knows_it() -> None:
    named = hosts(RING)
    found = choose_fabric(named, NetworkOptions(nccl_version=SUBNET_AWARE_NCCL))
    # Ports of one card lead to different hosts, so none are merged; no plugin knows of subnets.
    assert values(tuple(list_group_variables(found, named))) == {
        "NCCL_NET": "IB",
        "NCCL_IB_SUBNET_AWARE_ROUTING": "1",
        "NCCL_IB_MERGE_NICS": "0",
        "NCCL_CROSS_NIC": "1",
        "NCCL_NET_PLUGIN": "none",
        **NO_GPUDIRECT,
    }
    # Every port, and sockets on the one network that reaches all three.
    each = [values(tuple(list_host_variables(found, name, facts))) for name, facts in named.items()]
    assert each == [rdma(f"192.168.1.{n}", "enP7s7", FOUR) for n in (10, 11, 12)]
    assert found.findings == ()


@pytest.mark.parametrize(
    ("names", "cause"),
    [
        # No default route on one side, so no gateway is guessed at.
        (("spark-air-gapped", "rtx-wifi"), "192.168.1.32/24 (wlp2s0)"),
        # Lanes of another network, and a rack's own: each side's addresses are in the cause.
        (("spark-air-gapped", "cpu-rack"), "10.40.0.7/24 (bond0.40)"),
        # Two copies of one image: each has the other's address, and nothing can be sent.
        (("spark", "spark-pair-a"), "192.168.1.10/24 (enP7s7)"),
    ],
    ids=["air-gapped and Wi-Fi", "air-gapped and a rack", "one address twice"],
)
def test_recorded_hosts_that_cannot_talk(names: tuple[str, ...], cause: str) -> None:
    fix = "sudo ip address add 192.168.100.1/24 dev INTERFACE"
    with raises_problem(*names, cause=cause, fix=fix):
        choose_fabric(hosts(names))


def test_no_recording_is_forgotten() -> None:
    """A recording that answers what its links are belongs in a group."""
    used = {name.partition(" ")[0] for group in GROUPS.values() for name in group.names}
    assert set(with_networks()) == used


def test_decoys_that_reach_every_host_are_rejected_by_name() -> None:
    found = choose_fabric(hosts(("rtx-vpn-docker", "rtx-vpn-docker again")))
    why = {one.interface: one.why for one in found.rejected if one.host == "rtx-vpn-docker"}
    assert why["wlp6s0"] == "Wi-Fi, and enp5s0 is a cabled link to the same network"
    assert all("tunnel" in why[name] for name in ("tailscale0", "wg0", "tun0", "zt5u4yabcd"))
    assert all("containers" in why[name] for name in ("docker0", "br-4f1c2a9b7d3e", "cni0", "flannel.1"))


def test_a_managing_controllers_address_is_the_same_on_every_server() -> None:
    found = choose_fabric(hosts(("cpu-rack", "cpu-rack again")))
    why = {one.interface: one.why for one in found.rejected if one.host == "cpu-rack"}
    assert why["idrac"] == "cpu-rack again has the same address 169.254.1.2"
    assert why["eno1"] == "192.168.1.0/24 has 1 Gbit/s at cpu-rack, 10.40.0.0/24 50 Gbit/s"
