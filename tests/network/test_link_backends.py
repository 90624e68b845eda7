"""What each manager of addresses is told, and how it is taken back: written by hand."""

from pathlib import Path

import pytest

from medley.network import link_apply, link_backends
from medley.network.link_apply import AddressManager, AddressProgram
from medley.network.link_backends import Change, FileChange
from medley.network.link_setup import LinkSetting
from tests.problems import raises_problem

ONE = LinkSetting("enp1s0f1np1", "ethernet", "192.168.100.10/24", 9000, 1500, has_address=False)
TWIN = LinkSetting("enP2p1s0f1np1", "ethernet", "192.168.101.10/24", 9000, 9000, has_address=False)
MOVED = TWIN.replace(dropped_addresses=("192.168.100.11/24",))

YAML = """\
# Written by medley link setup, which replaces it; taken back by medley link setup --undo.
network:
  version: 2
  ethernets:
    enP2p1s0f1np1:
      dhcp4: false
      dhcp6: false
      link-local: []
      addresses: [192.168.101.10/24]
      mtu: 9000
      optional: true
    enp1s0f1np1:
      dhcp4: false
      dhcp6: false
      link-local: []
      addresses: [192.168.100.10/24]
      mtu: 9000
      optional: true
"""


def lines(change: Change) -> tuple[list[str], list[str]]:
    return [str(each) for each in change.commands], [str(each) for each in change.undo]


def test_netplan_writes_one_file() -> None:
    change = link_backends.build_netplan_change((ONE, TWIN), None)
    assert change.file == FileChange(Path("/etc/netplan/60-medley.yaml"), YAML, None)
    assert lines(change) == (["netplan generate", "netplan apply"], ["netplan generate", "netplan apply"])
    first, second, hunk, *_ = change.preview.splitlines()
    assert (first, second) == ("--- /dev/null", "+++ /etc/netplan/60-medley.yaml")
    assert hunk == "@@ -0,0 +1,18 @@"


def test_netplan_keeps_what_the_file_has_of_other_links() -> None:
    """And what was put there by hand."""
    old = YAML.replace("      mtu: 9000\n", "      mtu: 4000\n", 1).replace(
        "101.10/24]", "101.10/24, 10.9.0.1/24]"
    )
    change = link_backends.build_netplan_change((ONE.replace(mtu=1500),), old)
    assert change.file is not None
    assert change.file.text == old.replace("mtu: 9000", "mtu: 1500")
    assert [line for line in change.file.diff.splitlines() if line[0] in "+-"][2:] == [
        "-      mtu: 9000",
        "+      mtu: 1500",
    ]


def test_netplan_says_where_an_address_has_to_go_by_hand() -> None:
    _, note = link_backends.build_netplan_change((MOVED,), None).notes
    assert "remove 192.168.100.11/24 of enP2p1s0f1np1 from the other one" in note


def test_network_manager_makes_a_connection_and_deletes_it() -> None:
    change = link_backends.build_network_manager_change((ONE,), {}, {"enp1s0f1np1": "11112222-aaaa"})
    assert lines(change) == (
        [
            (
                "nmcli connection add type ethernet con-name medley-enp1s0f1np1 ifname enp1s0f1np1"
                " ipv4.method manual ipv4.addresses 192.168.100.10/24 ipv4.never-default yes"
                " 802-3-ethernet.mtu 9000 connection.autoconnect yes connection.autoconnect-priority 100"
                " ipv6.method disabled"
            ),
            "nmcli connection up medley-enp1s0f1np1",
        ],
        ["nmcli connection delete medley-enp1s0f1np1", "nmcli connection up 11112222-aaaa"],
    )


def test_network_manager_changes_a_connection_of_ours_and_back() -> None:
    change = link_backends.build_network_manager_change((ONE,), {"enp1s0f1np1": ("10.9.0.1/24", "4000")}, {})
    assert lines(change) == (
        [
            (
                "nmcli connection modify medley-enp1s0f1np1"
                " ipv4.method manual ipv4.addresses 192.168.100.10/24 ipv4.never-default yes"
                " 802-3-ethernet.mtu 9000 connection.autoconnect yes connection.autoconnect-priority 100"
                " ipv6.method disabled"
            ),
            "nmcli connection up medley-enp1s0f1np1",
        ],
        [
            (
                "nmcli connection modify medley-enp1s0f1np1"
                " ipv4.method manual ipv4.addresses 10.9.0.1/24 ipv4.never-default yes"
                " 802-3-ethernet.mtu 4000"
            ),
            "nmcli connection up medley-enp1s0f1np1",
        ],
    )


def test_nixos_is_told_what_to_write() -> None:
    change = link_backends.build_nixos_change((ONE,))
    assert (change.commands, change.undo, change.file) == ((), (), None)
    assert (
        change.preview
        == """\
{
  networking.interfaces."enp1s0f1np1" = {
    useDHCP = false;
    mtu = 9000;
    ipv4.addresses = [ { address = "192.168.100.10"; prefixLength = 24; } ];
  };
  networking.networkmanager.unmanaged = [ "interface-name:enp1s0f1np1" ];
}
"""
    )


@pytest.mark.parametrize(
    ("setting", "up", "commands", "undo"),
    [
        pytest.param(
            ONE,
            True,
            ["link set dev enp1s0f1np1 mtu 9000", "address add 192.168.100.10/24 dev enp1s0f1np1"],
            ["address del 192.168.100.10/24 dev enp1s0f1np1", "link set dev enp1s0f1np1 mtu 1500"],
            id="address and MTU",
        ),
        pytest.param(
            ONE.replace(has_address=True),
            True,
            ["link set dev enp1s0f1np1 mtu 9000"],
            ["link set dev enp1s0f1np1 mtu 1500"],
            id="the MTU alone",
        ),
        pytest.param(
            MOVED,
            False,
            [
                "address del 192.168.100.11/24 dev enP2p1s0f1np1",
                "link set dev enP2p1s0f1np1 up",
                "address add 192.168.101.10/24 dev enP2p1s0f1np1",
            ],
            [
                "address del 192.168.101.10/24 dev enP2p1s0f1np1",
                "link set dev enP2p1s0f1np1 down",
                "address add 192.168.100.11/24 dev enP2p1s0f1np1",
            ],
            id="down, and in the other half's network",
        ),
    ],
)
def test_ip(setting: LinkSetting, up: bool, commands: list[str], undo: list[str]) -> None:  # noqa: FBT001 - a table's
    change = link_backends.build_iproute_change((setting,), frozenset({setting.interface} if up else ()))
    assert lines(change) == ([f"ip {each}" for each in commands], [f"ip {each}" for each in undo])
    assert "this does not survive a reboot" in change.notes[0]


NMCLI = "nmcli connection modify NAME ipv4.method manual"


@pytest.mark.parametrize(
    ("manager", "cause", "fix"),
    [
        ("netplan", "netplan", "addresses: [192.168.100.10/24]"),
        (
            "networkmanager",
            "NetworkManager",
            "nmcli connection modify NAME ipv4.method manual ipv4.addresses 192.168.100.10/24",
        ),
    ],
)
def test_a_bond_is_left_to_its_owner(manager: AddressProgram, cause: str, fix: str) -> None:
    bond = ONE.replace(interface="bond0", kind="bond")
    with raises_problem("bond0", cause=cause, fix=fix):
        link_apply.build_change((bond,), AddressManager(program=manager))
