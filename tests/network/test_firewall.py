"""What closes our ports, as text; tests/rack/test_ports.py applies it."""

import pytest

from medley.host.facts.network import Net
from medley.network.firewall import (
    ClusterInterface,
    FirewallRules,
    list_notes,
    list_ssh_ports,
    resolve_interfaces,
    write_rules,
)
from tests.network.networks import LO, default, link
from tests.problems import raises_problem

CLOSED = ((8000, 8000), (24000, 24999), (32768, 60999))
FAST = ClusterInterface("eth0", ("10.78.0.0/24",))
NET = Net((LO, link("eth0", "10.78.0.1/24"), link("eth1", "10.78.1.1/24", "10.79.0.1/16"), link("bare")))
RULES = FirewallRules((FAST,), CLOSED, (22, 9000))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param("eth0", (FAST,), id="an interface"),
        pytest.param("10.78.0.1", (FAST,), id="an address of ours"),
        pytest.param("10.78.0.0/24", (FAST,), id="its network"),
        pytest.param("10.78.0.9/24", (FAST,), id="a network, carelessly"),
        pytest.param("10.78.0.2", (ClusterInterface("eth0", ("10.78.0.2/32",)),), id="another host on it"),
        pytest.param(
            "eth1", (ClusterInterface("eth1", ("10.78.1.0/24", "10.79.0.0/16")),), id="one of two networks"
        ),
        pytest.param("bare", (ClusterInterface("bare"),), id="one without an address"),
        pytest.param("192.168.9.0/24", (ClusterInterface(None, ("192.168.9.0/24",)),), id="behind a router"),
        pytest.param("fd00::/64", (ClusterInterface(None, ("fd00::/64",)),), id="IPv6"),
        pytest.param(
            "10.78.0.0/16",
            (ClusterInterface("eth0", ("10.78.0.0/16",)), ClusterInterface("eth1", ("10.78.0.0/16",))),
            id="the networks of two links",
        ),
    ],
)
def test_a_wire_as_it_is_named(asked: str, expected: tuple[ClusterInterface, ...]) -> None:
    assert resolve_interfaces([asked, asked], NET) == expected


def test_what_is_no_wire_is_a_problem_that_names_one() -> None:
    with raises_problem("eht0", fix="--link eth0"):
        resolve_interfaces(["eht0"], NET)


def test_nftables() -> None:
    assert write_rules("nftables", RULES, undo=False) == (
        "table inet medley\n"
        "delete table inet medley\n"
        "table inet medley {\n"
        "\tchain input {\n"
        "\t\ttype filter hook input priority 0; policy accept;\n"
        '\t\tiifname "lo" accept\n'
        '\t\tiifname "eth0" ip saddr 10.78.0.0/24 accept\n'
        "\t\ttcp dport { 22, 9000 } accept\n"
        "\t\ttcp dport { 8000, 24000-24999, 32768-60999 } tcp flags & (syn | ack) == syn drop\n"
        "\t}\n"
        "}\n"
    )
    assert write_rules("nftables", RULES, undo=True) == "table inet medley\ndelete table inet medley\n"


def test_a_limit_stands_before_the_port_is_opened() -> None:
    lines = write_rules(
        "nftables", FirewallRules((FAST,), CLOSED, (22, 8000), (8000,), 128), undo=False
    ).splitlines()
    first = "\t\ttcp dport { 8000 } tcp flags & (syn | ack) == syn add"
    limits = [
        f"{first} @strangers4 {{ ip saddr ct count over 128 }} drop",
        f"{first} @strangers6 {{ ip6 saddr & ffff:ffff:ffff:ffff:: ct count over 128 }} drop",
    ]
    at = lines.index(limits[0])
    assert lines[at - 1 : at + 3] == [
        '\t\tiifname "eth0" ip saddr 10.78.0.0/24 accept',
        *limits,
        "\t\ttcp dport { 22, 8000 } accept",
    ]


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        pytest.param(ClusterInterface("x"), 'iifname "x" accept', id="a bare interface"),
        pytest.param(
            ClusterInterface(None, ("10.0.0.0/8",)), "ip saddr 10.0.0.0/8 accept", id="by its sender"
        ),
        pytest.param(
            ClusterInterface("x", ("fd00::/64",)), 'iifname "x" ip6 saddr fd00::/64 accept', id="IPv6"
        ),
    ],
)
def test_wires_of_nftables(wire: ClusterInterface, expected: str) -> None:
    lines = write_rules("nftables", FirewallRules((wire,), CLOSED), undo=False).splitlines()
    assert f"\t\t{expected}" in lines


def test_ufw_has_first_what_is_written_last() -> None:
    assert write_rules("ufw", RULES, undo=False).splitlines()[1:] == [
        "ufw prepend deny proto tcp to any port 8000,24000:24999,32768:60999 comment medley",
        "ufw prepend allow in on eth0 from 10.78.0.0/24 comment medley",
        "ufw prepend allow 22/tcp",
        "ufw prepend allow 9000/tcp",
    ]


def test_ufw_taken_back_leaves_ssh_open() -> None:
    assert write_rules("ufw", RULES, undo=True).splitlines() == [
        "ufw delete deny proto tcp to any port 8000,24000:24999,32768:60999",
        "ufw delete allow in on eth0 from 10.78.0.0/24",
    ]


def test_iptables_of_each_family_has_the_wires_of_its_own() -> None:
    both = FirewallRules((FAST, ClusterInterface("eth1", ("fd00::/64",)), ClusterInterface("bare")), CLOSED)
    lines = write_rules("iptables", both, undo=False).splitlines()
    four, six = (
        [line.split(" -w -A MEDLEY ")[1] for line in lines if line.startswith(f"{name} -w -A")]
        for name in ("iptables", "ip6tables")
    )
    shared = [
        "-i bare -j RETURN",
        "-p tcp --dport 22 -j RETURN",
        "-p tcp --syn --dport 8000 -j DROP",
        "-p tcp --syn --dport 24000:24999 -j DROP",
        "-p tcp --syn --dport 32768:60999 -j DROP",
    ]
    assert four == ["-i lo -j RETURN", "-i eth0 -s 10.78.0.0/24 -j RETURN", *shared]
    assert six == ["-i lo -j RETURN", "-i eth1 -s fd00::/64 -j RETURN", *shared]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param({}, {22}, id="nobody is here"),
        pytest.param({"SSH_CONNECTION": "10.0.0.5 51000 10.0.0.1 2222"}, {22, 2222}, id="another port"),
        pytest.param({"SSH_CONNECTION": "odd"}, {22}, id="nonsense"),
    ],
)
def test_ssh_stays_open_where_it_is_used(said: dict[str, str], expected: set[int]) -> None:
    assert list_ssh_ports([said, {}]) == expected


@pytest.mark.parametrize(
    ("rules", "listening", "expected"),
    [
        pytest.param(RULES, (22, 80, 24001), (), id="nothing to say"),
        pytest.param(
            FirewallRules((FAST,), ((22_000, 29_999),)), (24001,), (), id="Ray's, in a larger range"
        ),
        pytest.param(
            FirewallRules((ClusterInterface("eth1", ("10.78.1.0/24",)),), CLOSED),
            (),
            ("eth1 has the default route",),
            id="the LAN",
        ),
        pytest.param(
            FirewallRules((ClusterInterface(None, ("10.9.0.0/24",)),), CLOSED),
            (),
            ("no link of this",),
            id="behind a router",
        ),
        pytest.param(RULES, (40_000, 9000), ("a program listens on port 40000",), id="another's port"),
    ],
)
def test_what_is_said_before(
    rules: FirewallRules, listening: tuple[int, ...], expected: tuple[str, ...]
) -> None:
    said = list(list_notes(rules, Net(NET.links, (default("eth1"),)), listening))
    assert len(said) == len(expected)
    assert all(line.startswith(start) for line, start in zip(said, expected, strict=True))
