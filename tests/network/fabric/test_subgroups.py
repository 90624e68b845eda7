"""Hosts of a cluster that share a faster network than all of them."""

import pytest

from medley.host.facts import Facts
from medley.network.fabric.choice import NetworkOptions
from medley.network.fabric.choose import choose_fabric
from medley.network.fabric.per_host import choose_new_cluster_network, choose_running_cluster_network
from medley.network.fabric.subgroups import find_faster_subgroups
from medley.planner import HostLink
from medley.planner.site_network import SiteNetwork
from tests.host.recordings import recorded
from tests.network.networks import host, link, server, spark, thor

ANY = NetworkOptions()
NCCL, GLOO = "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"


def cabled(number: int, cable: str = "eth1", lan: str = "eth0", *, gpus: int = 1) -> Facts:
    """Return a host with 1 Gbit/s to all others and a cable of 25 Gbit/s, without RDMA."""
    links = (
        link(lan, f"10.0.0.{number}/24", mbit=1_000),
        link(cable, f"10.9.0.{number}/24", mbit=25_000),
    )
    return host(links, gpus=gpus)


def lan_only(number: int, *, gpus: int = 1) -> Facts:
    return host((link("eth0", f"10.0.0.{number}/24", mbit=1_000),), gpus=gpus)


def variables(hosts: dict[str, Facts], options: NetworkOptions = ANY) -> dict[str, tuple[str, bool]]:
    """Return the value of each variable, and whether it is for all hosts; Ray is on the LAN."""
    at = {name: f"10.0.0.{number}" for number, name in enumerate(hosts, 1)}
    _, settled = choose_running_cluster_network(hosts, at, "a", options, {})
    return {each.name: (each.value, each.everywhere) for each in settled}


@pytest.mark.parametrize("transport", [None, "tcp"])
def test_sockets_of_the_ranks_use_the_cable_and_ray_stays(transport: str | None) -> None:
    found = variables({"a": cabled(1), "b": cabled(2)}, NetworkOptions(transport=transport))  # type: ignore[arg-type]
    assert found["VLLM_HOST_IP"] == ("10.0.0.1", False)
    assert found[NCCL] == ("=eth1", True)
    assert found[GLOO] == ("eth1", True)
    assert found["NCCL_IB_DISABLE"][0] == "1"


def test_cables_by_other_names_are_one_list_for_nccl_and_none_for_gloo() -> None:
    found = variables({"a": cabled(1, "fast0"), "b": cabled(2, "fast7")})
    assert found[NCCL] == ("=fast0,fast7", True)
    assert found[GLOO] == ("eth0", False)


def test_lanes_of_two_thors_beside_a_spark_are_used() -> None:
    found = variables({"a": thor(1), "b": thor(2)})
    assert found[NCCL] == ("=mgbe0_0,mgbe1_0,mgbe2_0,mgbe3_0", True)
    assert found[GLOO] == ("mgbe0_0", True)


@pytest.mark.parametrize(
    ("hosts", "cause"),
    [
        pytest.param(
            {"a": cabled(1, "eth1", "eth0"), "b": cabled(2, "eth0", "eth1")}, "eth1 of b", id="crossed names"
        ),
        pytest.param(
            {"a": cabled(1, "fast0", gpus=0), "b": cabled(2, "fast7", gpus=0)}, "fast0, fast7", id="only Gloo"
        ),
    ],
)
def test_a_cable_that_one_list_cannot_name_is_a_finding_with_both_speeds(
    hosts: dict[str, Facts], cause: str
) -> None:
    at = {name: f"10.0.0.{number}" for number, name in enumerate(hosts, 1)}
    found, settled = choose_running_cluster_network(hosts, at, "a", ANY, {})
    assert found.rank_endpoints == {}
    assert not any(each.everywhere for each in settled)
    (finding,) = (each for each in found.findings if each.topic == "names")
    assert "25 Gbit/s" in finding.what
    assert "1 Gbit/s" in finding.cause
    assert cause in finding.cause
    whole = hosts | {"c": lan_only(3)}
    assert find_faster_subgroups(whole, choose_fabric(whole), ANY) == ((), (finding,))


def test_a_cluster_says_which_of_its_hosts_have_a_faster_network() -> None:
    """The owner's own case: two Sparks with a cable, and a Thor on the LAN."""
    hosts = {name: recorded(name) for name in ("spark-pair-a", "spark-pair-b", "thor-mgbe-a")}
    subgroups, findings = find_faster_subgroups(hosts, choose_fabric(hosts), ANY)
    assert findings == ()
    (one,) = subgroups
    assert one.hosts == ("spark-pair-a", "spark-pair-b")
    assert (one.fabric.transport, one.whole_mbit) == ("rdma", 1_000)
    assert "200 Gbit/s" in str(one)
    assert str(one) in choose_new_cluster_network(hosts, ANY)[2]


def test_two_pairs_with_cables_are_two_subgroups() -> None:
    hosts = {f"h{number}": cabled(number) for number in (1, 2)}
    hosts |= {
        f"h{number}": host(
            (
                link("eth0", f"10.0.0.{number}/24", mbit=1_000),
                link("eth1", f"10.8.0.{number}/24", mbit=25_000),
            )
        )
        for number in (3, 4)
    }
    subgroups, _ = find_faster_subgroups(hosts, choose_fabric(hosts), ANY)
    assert [each.hosts for each in subgroups] == [("h1", "h2"), ("h3", "h4")]


def test_a_switch_of_all_has_no_subgroups() -> None:
    hosts = {f"h{number}": server(number) for number in (1, 2, 3)}
    assert find_faster_subgroups(hosts, choose_fabric(hosts), ANY) == ((), ())


@pytest.mark.parametrize(
    "hosts",
    [
        pytest.param({"a": spark(1), "b": spark(2), "c": thor(3)}, id="RDMA"),
        pytest.param({"a": cabled(1), "b": cabled(2), "c": lan_only(3)}, id="TCP"),
    ],
)
def test_a_plan_for_the_running_cluster_has_the_link_of_a_plan_before_it(hosts: dict[str, Facts]) -> None:
    joined = {name: end.address for name, end in choose_fabric(hosts).endpoints.items()}
    pair, options = frozenset(("a", "b")), (ANY, NetworkOptions(ray_addresses=joined))
    links = [SiteNetwork(hosts, each).find_group_link(pair) for each in options]
    assert isinstance(links[0], HostLink)
    assert links[0] == links[1]
    assert links[0].mbit >= 25_000
