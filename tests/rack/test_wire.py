"""Which wire a cluster takes, among real interfaces of a real kernel: a fast one, a slow one, and decoys."""

import json
import os
from collections.abc import Iterator

import pytest

from medley.command import Command
from tests.rack.cluster import MEDLEY, assert_problem, cluster, medley, token_of
from tests.rack.conftest import Up
from tests.rack.host import Host
from tests.rack.rack import Rack, up
from tests.rack.spec import Link, Spec

pytestmark = pytest.mark.rack

# A namespace's wires all say 10000 Mbit/s: the MTU tells the fast one, and its addresses are the higher.
LINKS = (Link("slow", mtu=1500), Link("fast", mtu=9000))
DECOYS = """
ip link add docker0 type bridge; ip link add veth1 type veth peer name inside
ip link set veth1 master docker0 up; ip link set inside up
ip address add 172.17.0.1/16 dev docker0; ip link set docker0 up
ip link add tailscale0 type veth peer name tail; ip address add 100.64.0.{nth}/10 dev tailscale0
ip link set tailscale0 up; ip link set tail up
ip address add 10.78.1.{second}/24 dev eth1
ip route add default via 10.78.0.254
"""


@pytest.fixture(scope="module")
def cluttered() -> Iterator[Rack]:
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes namespaces and mounts")
    with up(Spec(2, LINKS, name=f"pytest-{os.getpid()}-wire")) as rack:
        for nth, host in enumerate(rack.hosts, 1):
            host.says("sh", "-ec", DECOYS.format(nth=nth, second=100 + nth))
        yield rack


def test_a_default_route_changes_nothing(cluttered: Rack) -> None:
    head = cluttered.hosts[0]
    before = planned(head)
    assert before["env"]["GLOO_SOCKET_IFNAME"] == "eth1"
    assert before["env"]["VLLM_HOST_IP"] == head.port("fast").address
    head.says("ip", "route", "del", "default")
    try:
        assert planned(head) == before
    finally:
        head.says("ip", "route", "add", "default", "via", "10.78.0.254")


def test_the_fast_wire_is_taken_on_both_sides_and_carries_it(cluttered: Rack) -> None:
    head, worker = cluttered.hosts
    cluster(cluttered.hosts)  # which types `ray-worker host1`, and host1 is its slow address
    nodes = json.loads(medley(head, "status", "--json").lines[-1])["nodes"]
    assert sorted(node["address"] for node in nodes) == [
        host.port("fast").address for host in cluttered.hosts
    ]
    before = {host.name: carried(host) for host in cluttered.hosts}
    tested = medley(head, "collective-test")
    assert tested.status == 0, tested.lines
    for host in cluttered.hosts:
        after = carried(host)
        grown = {name: after[name] - before[host.name][name] for name in after}
        assert grown["eth1"] > 10_000_000, grown
        assert all(grown[name] < 100_000 for name in ("eth0", "docker0", "tailscale0")), grown
    for host in (worker, head):
        assert medley(host, "ray-stop").status == 0


def test_a_link_that_is_asked_for_is_taken(cluttered: Rack) -> None:
    head, _ = cluttered.hosts
    for wish in ("eth0", head.port("slow").address, "10.78.0.0/24"):
        assert planned(head, "--link", wish)["env"]["GLOO_SOCKET_IFNAME"] == "eth0"
    assert planned(head, "--exclude", "eth1")["env"]["GLOO_SOCKET_IFNAME"] == "eth0"
    asked = medley(head, "ray-head", "--dry-run", "--link", "eth7")
    assert_problem(asked, "eth7", cause=f"eth1 {head.port('fast').address}/24", fix="ip -brief address")


def test_what_the_user_has_set_wins_and_is_shown(cluttered: Rack) -> None:
    head = cluttered.hosts[0]
    command = Command((*MEDLEY, "ray-head", "--dry-run", "--json"), {"GLOO_SOCKET_IFNAME": "eth0"})
    said = json.loads(head.run(command).lines[-1])
    assert said["env"]["GLOO_SOCKET_IFNAME"] == "eth0"
    (why,) = (each["why"] for each in said["why"] if each["what"] == "GLOO_SOCKET_IFNAME=eth0")
    assert why.startswith("set by you; medley's value is eth1")


def test_hosts_without_a_common_subnet_say_so(rack: Up) -> None:
    made = rack(2)
    head, worker = made.hosts
    assert medley(head, "ray-head").status == 0
    token = token_of(head)
    fix = "sudo ip address add 192.168.100.1/24 dev INTERFACE"
    worker.says("ip", "address", "flush", "dev", "eth0")
    worker.says("ip", "address", "add", "10.99.0.2/24", "dev", "eth0")
    refused = medley(worker, "ray-worker", head.name, stdin=token)
    assert_problem(refused, cause=(f"{head.address}:24000", "10.99.0.2/24 (eth0)"), fix=fix)
    # A way leads there and back, and yet they are no neighbours.
    worker.says("ip", "route", "add", "10.78.0.0/24", "dev", "eth0")
    head.says("ip", "route", "add", "10.99.0.0/24", "dev", "eth0")
    refused = medley(worker, "ray-worker", head.name, stdin=token)
    assert_problem(refused, cause=(f"{head.address}/24 (eth0)", "10.99.0.2/24 (eth0)"), fix=fix)


def planned(host: Host, *words: str) -> dict[str, dict[str, str]]:
    said = medley(host, "ray-head", "--dry-run", "--json", *words)
    assert said.status == 0, said.lines
    table: dict[str, dict[str, str]] = json.loads(said.lines[-1])
    return table


def carried(host: Host) -> dict[str, int]:
    """Bytes out of each interface since it is there."""
    links = json.loads(host.says("ip", "-statistics", "-json", "link"))
    return {link["ifname"]: link["stats64"]["tx"]["bytes"] for link in links}
