"""Links and routes, as iproute2 and sysfs tell them, whole or in part."""

import json
from pathlib import Path
from typing import Any

import pytest

from medley.host.facts import network
from medley.host.facts.network import Address, Interface, Net, Route, find_link_kind
from medley.transcript import Answer, Transcript, parse_transcript

HOSTS = Path(__file__).parents[2] / "host" / "recorded"
PCI = "0000:01:00.0"


def asked(links: object = (), routes: object = (), sysfs: str = "") -> Transcript:
    """A text stands for itself, rows for their JSON."""
    said = {network.LINKS_QUESTION: links, network.ROUTES_QUESTION: routes, network.SYSFS_QUESTION: sysfs}
    return {q: Answer(text if isinstance(text, str) else json.dumps(text)) for q, text in said.items()}


def row(name: str = "eth0", *, state: str = "UP", **more: Any) -> dict[str, Any]:
    return {"ifindex": 2, "ifname": name, "mtu": 1500, "operstate": state, "link_type": "ether", **more}


def inet(ip: str, prefix: int = 24, **more: Any) -> dict[str, Any]:
    return {"family": "inet", "local": ip, "prefixlen": prefix, **more}


def link(*rows: dict[str, Any], sysfs: str = "") -> Interface:
    (found,) = network.read_net(asked(list(rows), sysfs=sysfs)).links
    return found


def recorded(host: str) -> Net:
    return network.read_net(parse_transcript((HOSTS / f"{host}.txt").read_text()))


def test_a_spark() -> None:
    """All of one half of a cage, read by hand."""
    found = {each.name: each for each in recorded("spark-pair-a").links}
    assert found["enP2p1s0f1np1"] == Interface(
        name="enP2p1s0f1np1",
        kind="ethernet",
        up=True,
        mtu=9000,
        addresses=(Address("192.168.101.10", 24),),
        mbit=200_000,
        driver="mlx5_core",
        pci="0002:01:00.1",
        port_name="p1",
    )
    assert (found["enp1s0f0np0"].up, found["enp1s0f0np0"].mbit) == (False, None)
    assert recorded("spark-pair-a").routes[0] == Route(
        "default", "enP7s7", gateway="192.168.1.1", source="192.168.1.10", metric=100
    )


def test_published_output() -> None:
    """In the shape of a published parser test: no flags, no type, no index."""
    names = {
        "lo": ("UNKNOWN", inet("127.0.0.1", 8)),
        "enP7s7": ("UP", inet("198.51.100.10")),
        "wlP9s9": ("UP", inet("198.51.100.11")),
        "enp1s0f0np0": ("UP", inet("198.18.0.1")),
        "docker0": ("DOWN", inet("198.51.100.254", 16)),
    }
    said = [
        {"ifname": name, "operstate": state, "addr_info": [each]} for name, (state, each) in names.items()
    ]
    assert [(each.name, each.kind, each.up) for each in network.read_net(asked(said)).links] == [
        ("lo", "loopback", True),
        ("enP7s7", "ethernet", True),
        ("wlP9s9", "wifi", True),
        ("enp1s0f0np0", "ethernet", True),
        ("docker0", "container", False),
    ]


KINDS = {
    "cpu-rack": "ens1f0np0 ens1f1np1 eno1 idrac: ethernet, bond0: bond, bond0.40: vlan",
    "orin-pair-a": "eno1: ethernet, wlP1p1s0: wifi, l4tbr0 usb0 usb1: gadget, can0 can1: virtual,"
    " docker0: container",
    "rtx-vpn-docker": "enp5s0: ethernet, wlp6s0: wifi, tailscale0 wg0 tun0 zt5u4yabcd: tunnel,"
    " docker0 br-4f1c2a9b7d3e veth1a2b3c4 veth5d6e7f8 virbr0 cni0 flannel.1 cali0a1b2c3d4e5: container,"
    " podman1: container",
    "rtx-wifi": "enp3s0: ethernet, wlp2s0: wifi, docker0: container",
    "spark-pair-a": "enP7s7 enp1s0f0np0 enp1s0f1np1 enP2p1s0f0np0 enP2p1s0f1np1: ethernet, wlP9s9: wifi,"
    " docker0: container",
    "thor-mgbe-a": "enP2p1s0 mgbe0_0 mgbe1_0 mgbe2_0 mgbe3_0: ethernet, wlP1p1s0: wifi,"
    " l4tbr0 usb0 usb1: gadget, can0 can1 can2 can3: virtual, docker0: container",
}


@pytest.mark.parametrize("host", KINDS)
def test_kinds(host: str) -> None:
    pairs = [part.split(":") for part in KINDS[host].split(", ")]
    expected = {name: kind.strip() for names, kind in pairs for name in names.split()}
    assert {each.name: each.kind for each in recorded(host).links} == {"lo": "loopback", **expected}


@pytest.mark.parametrize(
    ("state", "flags", "up"),
    [
        pytest.param("UP", ["UP", "LOWER_UP"], True, id="up"),
        pytest.param("UNKNOWN", ["POINTOPOINT", "UP", "LOWER_UP"], True, id="a tunnel has no state"),
        pytest.param("UNKNOWN", ["POINTOPOINT"], False, id="a tunnel set down"),
        pytest.param("DOWN", ["NO-CARRIER", "UP"], False, id="no cable"),
        pytest.param("UNKNOWN", ["NO-CARRIER", "UP"], False, id="no cable, no state"),
        pytest.param("LOWERLAYERDOWN", ["UP"], False, id="its bond has no cable"),
        pytest.param("DORMANT", ["UP", "LOWER_UP"], False, id="Wi-Fi without its key"),
        pytest.param("DOWN", ["BROADCAST"], False, id="set down"),
        pytest.param("UP", None, True, id="no flags told"),
    ],
)
def test_up(state: str, flags: list[str] | None, *, up: bool) -> None:
    said = row(state=state) | ({"flags": flags} if flags else {})
    assert link(said).up is up


@pytest.mark.parametrize(
    ("rows", "addresses"),
    [
        pytest.param([inet("10.0.0.1")], (Address("10.0.0.1", 24),), id="one"),
        pytest.param(
            [inet("10.0.0.1"), inet("10.0.0.9", secondary=True)],
            (Address("10.0.0.1", 24), Address("10.0.0.9", 24, secondary=True)),
            id="a second of the same subnet",
        ),
        pytest.param([{"family": "inet6", "local": "fe80::1", "prefixlen": 64}], (), id="IPv6"),
        pytest.param([inet("10.0.0.256"), inet("10.0.0.1", 33), inet("")], (), id="no addresses"),
        pytest.param(["inet", None, {}], (), id="no rows"),
        pytest.param("inet", (), id="no list"),
    ],
)
def test_addresses(rows: object, addresses: tuple[Address, ...]) -> None:
    assert link(row(addr_info=rows)).addresses == addresses


@pytest.mark.parametrize(
    ("sysfs", "mbit"),
    [("eth0/speed 25000", 25_000), ("eth0/speed -1", None), ("eth0/speed 4294967295", None), ("", None)],
    ids=["25GbE", "none", "none on an old kernel", "unreadable"],
)
def test_speed(sysfs: str, mbit: int | None) -> None:
    assert link(row(), sysfs=sysfs).mbit == mbit


def test_sysfs_of_another_namespace_is_not_this_links() -> None:
    """As in `ip netns exec` without a /sys of its own."""
    outer = f"eth0/speed 10000\neth0/uevent IFINDEX={{}}\neth0/device/uevent PCI_SLOT_NAME={PCI}\n"
    assert link(row(), sysfs=outer.format(2)).pci == PCI
    assert link(row(), sysfs=outer.format(7)) == link(row())


def test_a_usb_adapter_is_no_usb_interface() -> None:
    """The device's own DEVTYPE is of another sort than the link's."""
    sysfs = "eth0/device/uevent DEVTYPE=usb_interface\neth0/device/uevent DRIVER=r8152\n"
    assert link(row(), sysfs=sysfs).kind == "ethernet"


@pytest.mark.parametrize("name", ["eth0;id", "$(id)", "-x", "a b", "`id`"])
def test_a_link_whose_name_is_a_command_is_left_out(name: str) -> None:
    """A fix names links in a command, and another host or a bug report may send any text."""
    rows = [row(), row(name), row("eth1", master=name)]
    assert [each.name for each in network.read_net(asked(rows)).links] == ["eth0"]
    sysfs = f"{name}/uevent:IFINDEX=3\neth0/uevent:IFINDEX=2\n"
    assert {each.name for each in network.read_net(asked(sysfs=sysfs)).links} <= {"eth0"}


def test_without_iproute2() -> None:
    """sysfs has all but addresses and routes."""
    told = parse_transcript((HOSTS / "spark-pair-a.txt").read_text())
    whole, part = (
        network.read_net(told),
        network.read_net(
            {network.SYSFS_QUESTION: told[network.SYSFS_QUESTION], network.LINKS_QUESTION: Answer("", 127)}
        ),
    )
    without = {each.name: each for each in part.links}
    assert part.routes == ()
    for each in whole.links:
        other = without[each.name]
        assert (other.up, other.mtu, other.mbit) == (each.up, each.mtu, each.mbit)
        assert (other.kind, other.pci, other.addresses) == (each.kind, each.pci, ())


@pytest.mark.parametrize(
    ("row", "routes"),
    [
        pytest.param(
            {"dst": "10.0.0.0/24", "dev": "eth0", "prefsrc": "10.0.0.1"},
            (Route("10.0.0.0/24", "eth0", source="10.0.0.1"),),
            id="a subnet",
        ),
        pytest.param(
            {"dst": "default", "gateway": "10.0.0.254", "dev": "eth0", "metric": 600},
            (Route("default", "eth0", gateway="10.0.0.254", metric=600),),
            id="default",
        ),
        pytest.param({"dst": "10.1.0.7", "dev": "wg0"}, (Route("10.1.0.7/32", "wg0"),), id="one host"),
        pytest.param(
            {"dst": "default", "nexthops": [{"gateway": "10.0.0.1", "dev": "a"}, {"dev": "b"}]},
            (Route("default", "a", gateway="10.0.0.1"), Route("default", "b")),
            id="two ways",
        ),
        pytest.param({"type": "blackhole", "dst": "10.0.0.0/8"}, (), id="a hole"),
        pytest.param({"dst": "nowhere", "dev": "eth0"}, (), id="no network"),
    ],
)
def test_routes(row: dict[str, object], routes: tuple[Route, ...]) -> None:
    assert network.read_net(asked(routes=[row])).routes == routes


@pytest.mark.parametrize(
    "said",
    ["", 'Option "-json" is unknown, try "ip -help".', '[{"ifname":"eth0"', "{}", "[[]]", "[" * 9999, "[{}]"],
    ids=["empty", "too old", "cut", "no list", "no objects", "too deep", "filtered, as by iproute2 4.15"],
)
def test_no_answer_is_no_link(said: str) -> None:
    assert network.read_net(asked(said, said)) == Net()


def test_not_asked() -> None:
    assert network.read_net({}) == Net()


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
    assert find_link_kind(name, made_as=made_as, link_type="ether") == kind


def test_an_end_in_a_bridge_is_a_containers() -> None:
    assert find_link_kind("eth0", made_as="veth", enslaved=True) == "container"


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
    assert find_link_kind(name, driver=driver, link_type=link_type) == kind


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
    assert find_link_kind(name, link_type=link_type) == kind


@pytest.mark.parametrize(
    ("number", "word", "kind"),
    [
        ("1", "ether", "virtual"),
        ("32", "infiniband", "infiniband"),
        ("512", "ppp", "tunnel"),
        ("768", "ipip", "tunnel"),
        ("769", "tunnel6", "tunnel"),
        ("772", "loopback", "loopback"),
        ("776", "sit", "tunnel"),
        ("778", "gre", "tunnel"),
        ("823", "gre6", "tunnel"),
        ("65534", "none", "tunnel"),
    ],
)
def test_a_number_of_sysfs_means_what_the_word_of_ip_means(number: str, word: str, kind: str) -> None:
    assert find_link_kind("home", link_type=number) == find_link_kind("home", link_type=word) == kind
