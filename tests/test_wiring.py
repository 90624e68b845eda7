"""A host's end of the fabric at each moment: as a head, as a worker, and when a model starts."""

import pytest

from medley.fabric import Wishes
from medley.facts import Facts
from medley.problem import Problem
from medley.wiring import Wiring, of_all, of_head, of_worker
from tests.networks import link, rtx, server, spark, thor

ANY = Wishes()


def env(found: Wiring) -> dict[str, str]:
    return {each.name: each.value for each in found.variables}


def test_a_head_says_what_it_took_and_what_not() -> None:
    found = of_head("spark-1", spark(1), ANY, {})
    assert env(found)["VLLM_HOST_IP"] == "192.168.100.1"
    assert env(found)["NCCL_IB_HCA"] == "=rocep1s0f0:1,roceP2p1s0f0:1"
    (line,) = found.said()
    assert line.startswith("enp1s0f0np0 (192.168.100.1): the fastest way out of this host; ")
    assert "not enP7s7: " in line


def test_the_gids_index_is_left_to_nccl_because_hosts_come_one_by_one() -> None:
    assert "NCCL_IB_GID_INDEX" not in env(of_head("h", spark(1), ANY, {}))
    hosts = {"a": spark(1), "b": spark(2)}
    _, found = of_all(hosts, {"a": "192.168.100.1", "b": "192.168.100.2"}, "a", ANY, {})
    values = {each.name: each.value for each in found}
    assert "NCCL_IB_GID_INDEX" not in values
    assert (values["NCCL_IB_ROCE_VERSION_NUM"], values["NCCL_IB_ADDR_FAMILY"]) == ("2", "AF_INET")


def worker(head: Facts, mine: Facts, address: str, wishes: Wishes = ANY) -> Wiring:
    return of_worker({"head": head, "mine": mine}, "mine", ("head", address), wishes, {})


def test_a_worker_takes_the_heads_wire() -> None:
    found = worker(spark(1), spark(2, cage=1), "192.168.100.1")
    assert (found.end.interface, found.end.address) == ("enp1s0f1np1", "192.168.100.2")
    assert not found.findings


def test_a_slow_head_is_followed_and_the_faster_wire_is_named() -> None:
    found = worker(spark(1), spark(2), "10.0.0.1")
    assert found.end.interface == "enP7s7"
    (finding,) = found.findings
    assert "faster link" in finding.what
    assert finding.fix.endswith("medley ray-head --link 192.168.100.0/24")


def test_a_wire_that_was_asked_for_is_not_found_fault_with() -> None:
    assert not worker(spark(1), spark(2), "10.0.0.1", Wishes("enP7s7")).findings


def test_a_head_on_another_network_is_told_which_one_is_shared() -> None:
    with pytest.raises(Problem, match=r"cannot reach head at 192\.168\.100\.1") as caught:
        worker(spark(1), thor(2), "192.168.100.1")
    assert caught.value.fix == "on head: medley ray-stop; medley ray-head --link enP7s7"


def test_nothing_shared_is_a_problem() -> None:
    with pytest.raises(Problem, match="no network in common"):
        worker(server(1), server(2, link("eth0", "10.9.0.2/24")), "10.0.0.1")


def test_one_host_without_rdma_makes_all_go_by_tcp() -> None:
    hosts = {"a": spark(1), "b": spark(2), "c": thor(3)}
    addresses = {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"}
    fabric, found = of_all(hosts, addresses, "a", ANY, {"NCCL_DEBUG": "INFO"})
    values = {each.name: each.value for each in found}
    assert fabric.transport == "tcp"
    assert values["NCCL_IB_DISABLE"] == "1"
    assert values["NCCL_DEBUG"] == "INFO", "what the user set"


def test_the_ends_are_where_ray_knows_them() -> None:
    hosts = {"a": rtx(1), "b": rtx(2)}
    fabric, _ = of_all(hosts, {"a": "10.0.0.1", "b": "10.0.0.2"}, "a", ANY, {})
    assert {host: end.address for host, end in fabric.ends.items()} == {"a": "10.0.0.1", "b": "10.0.0.2"}


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
    found, variables = of_all(hosts, at, "a", ANY, {})
    values = {each.name: each for each in variables}
    assert values["VLLM_HOST_IP"].value == "10.0.0.1", "the address that Ray knows"
    assert values["GLOO_SOCKET_IFNAME"].value == found.ends["a"].interface == "enP7s7"
    assert ("NCCL_IB_DISABLE" in values) is (hca is None)
    if hca is None:
        return
    assert values["NCCL_IB_HCA"].value == hca
    assert values["NCCL_IB_HCA"].everywhere, "every rank takes its own ports of it"
    assert values["NCCL_NET"].value == "IB"
    assert any("Ray and sockets stay in 10.0.0.0/24" in each for each in found.why)
    _, asked = of_all(hosts, at, "a", Wishes(transport="tcp"), {})
    assert "NCCL_IB_DISABLE" in {each.name for each in asked}


def test_a_port_that_another_host_means_by_the_same_name_is_not_risked() -> None:
    """The cable is in the first cage here and in the second there: each would take the other's name too."""
    hosts = {"a": spark(1), "b": spark(2, cage=1)}
    _, variables = of_all(hosts, {"a": "10.0.0.1", "b": "10.0.0.2"}, "a", ANY, {})
    names = {each.name for each in variables}
    assert "NCCL_IB_DISABLE" in names
