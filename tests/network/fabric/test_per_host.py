"""What one recorded host would bring to a group."""

import pytest

from medley.host.facts import Facts
from medley.network.fabric.choice import NetworkOptions
from medley.network.fabric.nccl import SUBNET_AWARE_NCCL
from medley.network.fabric.per_host import (
    HeadAddress,
    HostNetwork,
    choose_head_network,
    choose_mirrored_fabric,
    choose_running_cluster_network,
    choose_worker_network,
    rank_host_links,
)
from tests.host.recordings import recorded, with_networks
from tests.network.fabric.environments import OLDER_NCCL
from tests.network.networks import (
    BRIDGE_OF_DOCKER,
    DOCKER,
    TAILSCALE,
    host,
    link,
    orin,
    rtx,
    server,
    spark,
    thor,
    trio,
    wired,
)
from tests.problems import raises_problem


@pytest.mark.parametrize(
    ("name", "wishes", "expected"),
    [
        pytest.param(
            "spark-pair-a",
            NetworkOptions(),
            ["enp1s0f1np1", "enP2p1s0f1np1", "enP7s7"],
            id="fast before slow",
        ),
        pytest.param(
            "spark-pcie-x2", NetworkOptions(), ["enp1s0f1np1", "enP2p1s0f1np1", "enP7s7"], id="x2 is second"
        ),
        pytest.param(
            "spark-twins-one-subnet",
            NetworkOptions(),
            ["enp1s0f1np1", "enP7s7"],
            id="twins in one subnet: one",
        ),
        pytest.param(
            "spark-twins-one-subnet",
            NetworkOptions(link="enP2p1s0f1np1"),
            ["enP2p1s0f1np1"],
            id="one was named",
        ),
        pytest.param("cpu-rack", NetworkOptions(), ["bond0.40", "eno1", "idrac"], id="a rack"),
        pytest.param("rtx-vpn-docker", NetworkOptions(), ["enp5s0"], id="clutter"),
        pytest.param(
            "rtx-vpn-docker", NetworkOptions(exclude=frozenset({"enp5s0"})), ["wlp6s0"], id="no wire left"
        ),
        pytest.param(
            "rtx-vpn-docker", NetworkOptions(link="tailscale0"), ["tailscale0"], id="a tunnel that is named"
        ),
        pytest.param("orin-pair-a", NetworkOptions(), ["eno1", "eno1"], id="two subnets on one wire"),
    ],
)
def test_the_order_of_the_ways_of_a_host(name: str, wishes: NetworkOptions, expected: list[str]) -> None:
    assert [way.link.name for way in rank_host_links(name, recorded(name), wishes).candidates] == expected


@pytest.mark.parametrize("name", with_networks())
def test_every_link_is_a_way_or_has_its_reason(name: str) -> None:
    found = rank_host_links(name, recorded(name), NetworkOptions())
    lost = [each.interface for each in found.rejected]
    kept = {way.link.name for way in found.candidates}
    assert sorted((*kept, *lost)) == sorted(link.name for link in recorded(name).net.links)


@pytest.mark.parametrize("name", with_networks())
def test_the_best_way_is_what_a_head_takes_before_it_knows_others(name: str) -> None:
    first = rank_host_links(name, recorded(name), NetworkOptions()).candidates[0]
    end = choose_mirrored_fabric(name, recorded(name), NetworkOptions()).endpoints[name]
    assert (first.link.name, str(first.ip)) == (end.interface, end.address)


@pytest.mark.parametrize(
    ("name", "interface", "why"),
    [
        (
            "spark-twins-one-subnet",
            "enP2p1s0f1np1",
            "enp1s0f1np1 and enP2p1s0f1np1 are both in 192.168.100.0/24, and each may answer for the other",
        ),
        ("rtx-vpn-docker", "wlp6s0", "Wi-Fi, and enp5s0 is a cabled link to the same network"),
        ("rtx-vpn-docker", "docker0", "it belongs to containers, and every host has one like it"),
    ],
)
def test_why_a_link_is_no_way(name: str, interface: str, why: str) -> None:
    found = rank_host_links(name, recorded(name), NetworkOptions())
    assert {each.interface: each.why for each in found.rejected}[interface] == why


@pytest.mark.parametrize(
    ("name", "wishes", "words"),
    [
        ("spark-twins-one-subnet", NetworkOptions(), ["both in 192.168.100.0/24"]),
        ("spark-one-half-down", NetworkOptions(), ["only one interface of the QSFP port is used"]),
        ("spark-pcie-x2", NetworkOptions(), ["2 of 4 PCIe lanes"]),
        ("spark-pair-a", NetworkOptions(), []),
        ("spark-pair-a", NetworkOptions(exclude=frozenset({"enP2p1s0f1np1"})), []),
        ("thor-mgbe-a", NetworkOptions(), []),
    ],
    ids=["twins", "half down", "x2", "right", "a half left out", "Thor"],
)
def test_what_is_said_of_one_host(name: str, wishes: NetworkOptions, words: list[str]) -> None:
    found = [each.what for each in rank_host_links(name, recorded(name), wishes).findings]
    assert [word in said for word, said in zip(words, found, strict=True)] == [True] * len(found)


def test_a_link_that_is_not_there() -> None:
    with raises_problem("a ", "eth9", cause="enP2p1s0f0np0 ", fix="ip -brief address"):
        rank_host_links("a", recorded("spark"), NetworkOptions(link="eth9"))


def test_rdma_is_first_where_it_is_asked_for() -> None:
    rack = rank_host_links("a", recorded("rtx-roce"), NetworkOptions(transport="rdma"))
    assert [way.port is not None for way in rack.candidates] == [True, False]


CLUTTER = (DOCKER, BRIDGE_OF_DOCKER, TAILSCALE)


@pytest.mark.parametrize(
    ("facts", "wishes", "interface", "ports"),
    [
        # Both halves of the cage in which the cable is, whichever it is.
        pytest.param(spark(1), NetworkOptions(), "enp1s0f0np0", ["rocep1s0f0", "roceP2p1s0f0"], id="a Spark"),
        pytest.param(
            spark(1, cage=1),
            NetworkOptions(),
            "enp1s0f1np1",
            ["rocep1s0f1", "roceP2p1s0f1"],
            id="the other cage",
        ),
        pytest.param(
            spark(1, second="192.168.100"),
            NetworkOptions(),
            "enp1s0f0np0",
            ["rocep1s0f0"],
            id="halves in one subnet",
        ),
        pytest.param(thor(1), NetworkOptions(), "mgbe0_0", [], id="a Thor: its fast lanes, no RDMA"),
        pytest.param(orin(1), NetworkOptions(), "eno1", [], id="an Orin"),
        pytest.param(rtx(1), NetworkOptions(), "enp65s0np0", ["mlx5_0"], id="RTX with a ConnectX"),
        pytest.param(rtx(1), NetworkOptions("enp5s0"), "enp5s0", [], id="as named, though slower"),
        pytest.param(rtx(1), NetworkOptions("10.0.0.0/24"), "enp5s0", [], id="as named by its network"),
        pytest.param(
            rtx(1), NetworkOptions(exclude=frozenset({"enp65s0np0"})), "enp5s0", [], id="not what is excluded"
        ),
        pytest.param(
            server(3, *CLUTTER, link("eth0", "10.0.0.3/24", mbit=1000)),
            NetworkOptions(),
            "eth0",
            [],
            id="clutter",
        ),
        pytest.param(
            server(255, link("eth0", "10.0.0.254/24")),
            NetworkOptions(),
            "eth0",
            [],
            id="the network's last address",
        ),
    ],
)
def test_the_fastest_way_out(facts: Facts, wishes: NetworkOptions, interface: str, ports: list[str]) -> None:
    found = choose_mirrored_fabric("here", facts, wishes)
    end = found.endpoints["here"]
    assert end.interface == interface
    assert [port.device for port in end.ports] == ports
    assert list(found.endpoints) == ["here"]
    taken = {interface, *end.lanes, *(port.interface for port in end.ports)}
    assert {one.interface for one in found.rejected} == {each.name for each in facts.net.links} - taken


def test_no_way_out_is_a_problem_with_every_link_and_its_reason() -> None:
    with raises_problem("this host", cause=("lo: ", "docker0: ", "tailscale0: "), fix="--link INTERFACE"):
        choose_mirrored_fabric("here", host(CLUTTER), NetworkOptions())


def test_a_link_that_is_not_there_is_a_problem() -> None:
    with raises_problem("eth7", fix="on here: ip -brief address"):
        choose_mirrored_fabric("here", rtx(1), NetworkOptions("eth7"))


ANY = NetworkOptions()


def env(found: HostNetwork) -> dict[str, str]:
    return {each.name: each.value for each in found.variables}


def test_a_head_says_what_it_took_and_what_not() -> None:
    found = choose_head_network("spark-1", spark(1), ANY, {})
    assert env(found)["VLLM_HOST_IP"] == "192.168.100.1"
    assert env(found)["NCCL_IB_HCA"] == "=rocep1s0f0:1,roceP2p1s0f0:1"
    (line,) = found.describe()
    assert line.startswith("enp1s0f0np0 (192.168.100.1): the fastest link of this host; ")
    assert "not enP7s7: " in line


def test_the_gids_index_is_left_to_nccl_because_hosts_come_one_by_one() -> None:
    assert "NCCL_IB_GID_INDEX" not in env(choose_head_network("h", spark(1), ANY, {}))
    hosts = {"a": spark(1), "b": spark(2)}
    _, found = choose_running_cluster_network(
        hosts, {"a": "192.168.100.1", "b": "192.168.100.2"}, "a", ANY, {}
    )
    values = {each.name: each.value for each in found}
    assert "NCCL_IB_GID_INDEX" not in values
    assert (values["NCCL_IB_ROCE_VERSION_NUM"], values["NCCL_IB_ADDR_FAMILY"]) == ("2", "AF_INET")


def worker(head: Facts, mine: Facts, address: str, wishes: NetworkOptions = ANY) -> HostNetwork:
    hosts = {"head": head, "mine": mine}
    return choose_worker_network(hosts, "mine", HeadAddress("head", address), wishes, {})


def test_a_worker_takes_the_heads_wire() -> None:
    found = worker(spark(1), spark(2, cage=1), "192.168.100.1")
    assert (found.endpoint.interface, found.endpoint.address) == ("enp1s0f1np1", "192.168.100.2")
    assert not found.findings


def test_a_slow_head_is_followed_and_the_faster_wire_is_named() -> None:
    found = worker(spark(1), spark(2), "10.0.0.1")
    assert found.endpoint.interface == "enP7s7"
    (finding,) = found.findings
    assert "faster link" in finding.what
    assert finding.fix.endswith("medley ray-head --link 192.168.100.0/24")


def test_a_wire_that_was_asked_for_is_not_found_fault_with() -> None:
    assert not worker(spark(1), spark(2), "10.0.0.1", NetworkOptions("enP7s7")).findings


def test_a_head_on_another_network_is_told_which_one_is_shared() -> None:
    with raises_problem(
        "head",
        "192.168.100.1",
        cause="10.0.0.2/24",
        fix="on head: medley ray-stop; medley ray-head --link enP7s7",
    ):
        worker(spark(1), thor(2), "192.168.100.1")


def test_nothing_shared_is_a_problem() -> None:
    with raises_problem(
        "head, mine",
        cause=("head: 10.0.0.1/24", "mine: 10.9.0.2/24"),
        fix="sudo ip address add 192.168.100.1/24 dev INTERFACE",
    ):
        worker(server(1), server(2, link("eth0", "10.9.0.2/24")), "10.0.0.1")


def test_one_host_without_rdma_makes_all_go_by_tcp() -> None:
    hosts = {"a": spark(1), "b": spark(2), "c": thor(3)}
    addresses = {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"}
    fabric, found = choose_running_cluster_network(hosts, addresses, "a", ANY, {"NCCL_DEBUG": "INFO"})
    values = {each.name: each.value for each in found}
    assert fabric.transport == "tcp"
    assert values["NCCL_IB_DISABLE"] == "1"
    assert values["NCCL_DEBUG"] == "INFO", "what the user set"


def test_the_ends_are_where_ray_knows_them() -> None:
    hosts = {"a": rtx(1), "b": rtx(2)}
    fabric, _ = choose_running_cluster_network(hosts, {"a": "10.0.0.1", "b": "10.0.0.2"}, "a", ANY, {})
    assert {host: end.address for host, end in fabric.endpoints.items()} == {"a": "10.0.0.1", "b": "10.0.0.2"}


@pytest.mark.parametrize(
    ("hosts", "hca"),
    [
        pytest.param(
            {"a": spark(1), "b": spark(2)},
            "=roceP2p1s0f0:1,rocep1s0f0:1",
            id="two Sparks whose Ray is on the LAN",
        ),
        pytest.param({"a": spark(1), "b": rtx(2)}, "=mlx5_0:1,rocep1s0f0:1", id="ports by other names"),
        pytest.param(
            {"a": spark(1), "b": spark(2), "c": thor(3)}, None, id="one of them is not on the cable"
        ),
        pytest.param({"a": spark(1), "b": thor(2)}, None, id="they share no cable"),
    ],
)
def test_nccl_takes_the_cable_of_the_hosts_in_the_layout(hosts: dict[str, Facts], hca: str | None) -> None:
    at = {name: f"10.0.0.{number}" for number, name in enumerate(hosts, 1)}
    found, variables = choose_running_cluster_network(hosts, at, "a", ANY, {})
    values = {each.name: each for each in variables}
    assert values["VLLM_HOST_IP"].value == "10.0.0.1", "the address registered with Ray"
    assert values["GLOO_SOCKET_IFNAME"].value == found.endpoints["a"].interface == "enP7s7"
    assert ("NCCL_IB_DISABLE" in values) is (hca is None)
    if hca is None:
        return
    assert values["NCCL_IB_HCA"].value == hca
    assert values["NCCL_IB_HCA"].everywhere, "every rank takes its own ports of it"
    assert values["NCCL_NET"].value == "IB"
    assert any("Ray and sockets stay in 10.0.0.0/24" in each for each in found.why)
    _, asked = choose_running_cluster_network(hosts, at, "a", NetworkOptions(transport="tcp"), {})
    assert "NCCL_IB_DISABLE" in {each.name for each in asked}


def test_a_dark_port_that_another_host_means_by_the_same_name_is_passed_over() -> None:
    """The cable is in the first cage here and in the second there; NCCL looks at ACTIVE ports alone."""
    found = joined({"a": spark(1), "b": spark(2, cage=1)}, ANY)
    assert found["NCCL_IB_HCA"] == "=roceP2p1s0f0:1,roceP2p1s0f1:1,rocep1s0f0:1,rocep1s0f1:1"
    assert "NCCL_IB_SUBNET_AWARE_ROUTING" not in found


@pytest.mark.parametrize(
    ("nccl", "bits", "expected"),
    [
        pytest.param(
            SUBNET_AWARE_NCCL, 24, {"NCCL_IB_SUBNET_AWARE_ROUTING": "1", "NCCL_IB_MERGE_NICS": "0"}, id="ring"
        ),
        pytest.param(
            SUBNET_AWARE_NCCL, 30, {"NCCL_IB_SUBNET_AWARE_ROUTING": "1", "NCCL_IB_DISABLE": None}, id="in /30"
        ),
        pytest.param(OLDER_NCCL, 24, {"NCCL_IB_DISABLE": "1", "NCCL_IB_HCA": None}, id="an older NCCL"),
    ],
)
def test_two_of_a_ring_whose_ray_is_on_the_lan_take_their_own_cable(
    nccl: tuple[int, ...], bits: int, expected: dict[str, str | None]
) -> None:
    """Each lists the ports of both, one of which leads to the third host: NCCL has to ask where they lead."""
    hosts = {"a": trio(1, bits=bits), "b": trio(2, bits=bits)}
    found = joined(hosts, NetworkOptions(nccl_version=nccl))
    assert {name: found.get(name) for name in expected} == expected


def test_what_keeps_the_cables_idle_is_said_of_a_running_cluster_too() -> None:
    hosts = wired(3, "1.0-2.0 1.1-3.0 2.1-3.1")
    addresses = {name: f"10.0.0.{name[1:]}" for name in hosts}
    found, _ = choose_running_cluster_network(hosts, addresses, "h1", ANY, {})
    assert (found.transport, [each.topic for each in found.findings]) == ("tcp", ["ring"])


def joined(hosts: dict[str, Facts], options: NetworkOptions) -> dict[str, str]:
    at = {name: f"10.0.0.{number}" for number, name in enumerate(hosts, 1)}
    _, variables = choose_running_cluster_network(hosts, at, "a", options, {})
    return {each.name: each.value for each in variables}
