"""Which links are set up, how, and which are left alone."""

import pytest

from medley.host.facts import Facts
from medley.host.facts.network import Address, Net, Route
from medley.network.link_setup import LinkRequest, LinkSetting, choose_settings, find_protected_links
from tests.host.recordings import recorded
from tests.network import networks
from tests.network.networks import default, host, link
from tests.problems import raises_problem

BARE = networks.spark(10, first=None, second=None).replace(gpus=())


def brief(found: tuple[LinkSetting, ...]) -> list[tuple[str, str, int, tuple[str, ...]]]:
    return [(each.interface, each.address, each.mtu, each.dropped_addresses) for each in found]


def suggested(facts: Facts, asked: LinkRequest | None = None) -> tuple[LinkSetting, ...]:
    return choose_settings(facts, asked or LinkRequest(), find_protected_links(facts, {}))


ETH = link("eth0", "10.0.0.7/24")
FAST = link("eth1", mbit=100_000)
PAIR = (("enp1s0f0np0", 9000), ("enP2p1s0f0np0", 9000))


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param(
            BARE,
            [
                ("enp1s0f0np0", "192.168.100.10/24", 9000, ()),
                ("enP2p1s0f0np0", "192.168.101.10/24", 9000, ()),
            ],
            id="a Spark: a network for each half",
        ),
        pytest.param(
            networks.spark(3, first="192.168.77", second="192.168.77", mtu=1500),
            [
                ("enp1s0f0np0", "192.168.77.3/24", 9000, ()),
                ("enP2p1s0f0np0", "192.168.100.3/24", 9000, ("192.168.77.13/24",)),
            ],
            id="both halves in one network: the second one leaves it",
        ),
        pytest.param(
            networks.spark(3, first="169.254.1", second="169.254.2"),
            [
                ("enp1s0f0np0", "192.168.100.3/24", 9000, ("169.254.1.3/24",)),
                ("enP2p1s0f0np0", "192.168.101.3/24", 9000, ("169.254.2.3/24",)),
            ],
            id="link-local goes",
        ),
        pytest.param(
            networks.spark(3, first=None, second=None, lan="192.168.100"),
            [
                ("enp1s0f0np0", "192.168.101.3/24", 9000, ()),
                ("enP2p1s0f0np0", "192.168.102.3/24", 9000, ()),
            ],
            id="a network that the LAN has is not taken",
        ),
        pytest.param(
            host((ETH, FAST), routes=(default("eth0"), Route("192.168.100.0/22", "eth0", "10.0.0.1"))),
            [("eth1", "192.168.104.7/24", 9000, ())],
            id="nor one that a route leads to",
        ),
        pytest.param(
            networks.thor(4, lanes=()),
            [(f"mgbe{n}_0", f"192.168.{100 + n}.1/24", 9000, ()) for n in range(4)],
            id="a Thor: four lanes; no default route, so the number is 1",
        ),
        pytest.param(
            host((ETH, link("eth1", mbit=10_000)), routes=(default("eth0"),)),
            [("eth1", "192.168.100.7/24", 1500, ())],
            id="10 Gbit/s keeps its MTU, for a switch may be between",
        ),
    ],
)
def test_suggestions(facts: Facts, expected: list[tuple[str, str, int, tuple[str, ...]]]) -> None:
    assert brief(suggested(facts)) == expected


def test_what_is_so_already_says_so() -> None:
    assert [each.is_applied for each in suggested(networks.spark(3))] == [True, True]
    assert [each.is_applied for each in suggested(networks.spark(3, mtu=1500))] == [False, False]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param(LinkRequest("eth1"), ("eth1", "192.168.100.7/24", 9000, ()), id="an interface"),
        pytest.param(LinkRequest("eth1", mtu=4000), ("eth1", "192.168.100.7/24", 4000, ()), id="an MTU"),
        pytest.param(LinkRequest("eth1", number=9), ("eth1", "192.168.100.9/24", 9000, ()), id="a number"),
        pytest.param(LinkRequest("eth1", "10.9.0.1/30"), ("eth1", "10.9.0.1/30", 9000, ()), id="an address"),
        pytest.param(
            LinkRequest("eth0", mtu=9000, force=True),
            ("eth0", "10.0.0.7/24", 9000, ()),
            id="held, but by force",
        ),
        pytest.param(
            LinkRequest("eth1", "10.0.0.8/24", force=True),
            ("eth1", "10.0.0.8/24", 9000, ()),
            id="one network, by force",
        ),
    ],
)
def test_what_is_asked_for(asked: LinkRequest, expected: tuple[str, str, int, tuple[str, ...]]) -> None:
    assert brief(suggested(host((ETH, FAST), routes=(default("eth0"),)), asked)) == [expected]


PART = link("eth2").replace(master="br0")


@pytest.mark.parametrize(
    ("asked", "name", "cause"),
    [
        pytest.param(LinkRequest("eth0"), "eth0 ", "default route", id="the default route"),
        pytest.param(LinkRequest("eth1"), "eth1 ", "from 192.0.2.9", id="ssh by its interface"),
        pytest.param(LinkRequest("eth9"), "eth9 ", "eth0, eth1", id="no such link"),
        pytest.param(LinkRequest("docker0"), "docker0 ", "a container", id="a container's"),
        pytest.param(LinkRequest("lo", force=True), "lo ", "a loopback", id="the loopback, even by force"),
        pytest.param(LinkRequest("eth2", force=True), "eth2 ", "br0", id="of a bridge"),
        pytest.param(
            LinkRequest(address="10.1.0.1/24"), "--address 10.1.0.1/24 ", "--interface", id="no link"
        ),
        pytest.param(LinkRequest("eth3", "10.1.0.1"), "10.1.0.1 ", "prefix", id="no prefix"),
        pytest.param(LinkRequest("eth3", "10.1.0.1/33"), "10.1.0.1/33 ", "33", id="no such prefix"),
        pytest.param(LinkRequest("eth3", "10.1.0.0/24"), "10.1.0.0 ", "10.1.0.0/24", id="a network"),
        pytest.param(LinkRequest("eth3", "10.0.0.9/16"), "10.0.0.0/16", "MAC", id="another link's network"),
        pytest.param(LinkRequest(), "", "eth0: it carries the default route", id="nothing is free"),
    ],
)
def test_what_is_refused(asked: LinkRequest, name: str, cause: str) -> None:
    off = link("eth3").replace(up=False)
    facts = host((ETH, FAST, PART, off, networks.DOCKER), routes=(default("eth0"),))
    with raises_problem(name, cause=cause):
        choose_settings(facts, asked, find_protected_links(facts, {"eth1": "192.0.2.9"}))


def test_what_is_held() -> None:
    """Below a bridge and a VLAN, too; an address tells the link as well as a name does."""
    vlan = link("eth1.7").replace(kind="vlan")
    bridge = link("br0", "10.2.0.1/24").replace(kind="bridge")
    facts = host((ETH, FAST, PART, vlan, bridge), routes=(default("eth1.7"),))
    assert find_protected_links(facts, {"10.2.0.1": "192.0.2.9", "10.7.7.7": "192.0.2.1"}) == {
        "eth1.7": "it carries the default route",
        "eth1": "it is a part of eth1.7: it carries the default route",
        "br0": "the ssh session from 192.0.2.9 uses it",
        "eth2": "it is a part of br0: the ssh session from 192.0.2.9 uses it",
    }


def test_every_network_taken_is_a_problem() -> None:
    wide = ETH.replace(addresses=(Address("192.168.0.1", 16),))
    with raises_problem(
        "eth1",
        cause=("192.168.100.0/24", "192.168.199.0/24"),
        fix="medley link setup --interface eth1 --address 10.99.0.1/24",
    ):
        suggested(BARE.replace(net=Net((wide, FAST))), LinkRequest("eth1"))


def ring(place: int, facts: Facts) -> dict[str, str]:
    return {each.interface: each.address for each in suggested(facts, LinkRequest(ring=place))}


def test_both_ends_of_each_cable_of_a_ring_are_in_one_network() -> None:
    ends = [ring(place, recorded(f"spark-ring-{name}")) for place, name in ((1, "a"), (2, "b"), (3, "c"))]
    networks = [{name: address.rpartition(".")[0] for name, address in each.items()} for each in ends]
    for place, here in enumerate(networks):
        after = networks[(place + 1) % 3]
        assert here["enp1s0f0np0"] == after["enp1s0f1np1"]
        assert here["enP2p1s0f0np0"] == after["enP2p1s0f1np1"]
        assert len(set(here.values())) == 4
    assert ends[1]["enp1s0f0np0"] == "192.168.120.2/24"


def test_addresses_of_a_plain_set_up_leave_a_ring() -> None:
    facts = recorded("spark-ring-a")
    links = [each.replace(addresses=(Address("192.168.101.5", 24),)) for each in facts.net.links]
    found = suggested(facts.replace(net=facts.net.replace(links=tuple(links))), LinkRequest(ring=1))
    assert {each.dropped_addresses for each in found} == {("192.168.101.5/24",)}


def test_a_ring_needs_two_ports_and_names_no_interface() -> None:
    with raises_problem(cause=("1 ", "enp1s0f0np0, enP2p1s0f0np0"), fix="ip -brief link"):
        suggested(BARE, LinkRequest(ring=1))
    with raises_problem("--ring", cause="--interface enp1s0f0np0", fix="medley link setup --ring 1"):
        suggested(BARE, LinkRequest(interface="enp1s0f0np0", ring=1))
