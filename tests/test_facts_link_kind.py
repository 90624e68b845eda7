"""What made a link, its driver and its name tell what it leads to."""

import pytest

from medley.facts.link_kind import link_kind


@pytest.mark.parametrize(
    ("made_as", "name", "kind"),
    [
        ("veth", "veth0abc", "container"),
        ("veth", "eth0", "ethernet"),
        ("veth", "mgbe0_0", "ethernet"),
        ("veth", "docker0", "container"),
        ("veth", "tailscale0", "tunnel"),
        ("macvlan", "eth0", "ethernet"),
        ("bridge", "br0", "bridge"),
        ("bridge", "br-lan", "bridge"),
        ("bridge", "vmbr0", "bridge"),
        ("bridge", "br-0123456789ab", "container"),
        ("bridge", "docker_gwbridge", "container"),
        ("bridge", "l4tbr0", "gadget"),
        ("bond", "wlan-or-so", "bond"),
        ("vlan", "eth0.5", "vlan"),
        ("wireguard", "home", "tunnel"),
        ("tun", "eth7", "tunnel"),
        ("vxlan", "flannel.1", "container"),
        ("vxlan", "overlay", "tunnel"),
        ("dummy", "eth9", "virtual"),
        ("gadget", "eth1", "gadget"),
        ("wlan", "eth1", "wifi"),
        ("ipoib", "ibp1s0.8001", "infiniband"),
    ],
)
def test_made(made_as: str, name: str, kind: str) -> None:
    assert link_kind(name, made_as=made_as, link_type="ether") == kind


def test_an_end_in_a_bridge_is_a_containers() -> None:
    assert link_kind("eth0", made_as="veth", enslaved=True) == "container"


@pytest.mark.parametrize(
    ("name", "driver", "link_type", "kind"),
    [
        ("enP2p1s0", "r8126", "ether", "ethernet"),
        ("mgbe0_0", "nvethernet", "ether", "ethernet"),
        ("wg-lan", "e1000e", "ether", "ethernet"),
        ("wlP9s9", "mt7925e", "ether", "wifi"),
        ("enx3c6d66000001", "rndis_host", "ether", "gadget"),
        ("usb0", "cdc_ether", "ether", "gadget"),
        ("can0", "mttcan", "can", "virtual"),
        ("ibp1s0", "mlx5_core", "infiniband", "infiniband"),
    ],
)
def test_hardware(name: str, driver: str, link_type: str, kind: str) -> None:
    assert link_kind(name, driver=driver, link_type=link_type) == kind


@pytest.mark.parametrize(
    ("name", "link_type", "kind"),
    [
        ("lo", "", "loopback"),
        ("dummy-lo", "loopback", "loopback"),
        ("virbr0", "ether", "container"),
        ("cali123", "ether", "container"),
        ("ztabc", "ether", "tunnel"),
        ("vpn", "none", "tunnel"),
        ("rndis0", "ether", "gadget"),
        ("wlan0", "ether", "wifi"),
        ("wwan0", "none", "virtual"),
        ("eth0", "ether", "ethernet"),
        ("something", "ether", "virtual"),
    ],
)
def test_by_name_alone(name: str, link_type: str, kind: str) -> None:
    """iproute2 was too old to say what made it, or is missing."""
    assert link_kind(name, link_type=link_type) == kind
