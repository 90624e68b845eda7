"""RDMA ports, as sysfs tells them, whole or in part."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from medley.host.facts import rdma
from medley.host.facts.rdma import Gid, RdmaPort
from medley.transcript import Answer, parse_transcript

HOSTS = Path(__file__).parents[2] / "host" / "recorded"
LOCAL, ADDRESS = "fe80:0000:0000:0000:0000:00ff:fe00:0003", "0000:0000:0000:0000:0000:ffff:c0a8:640a"


def ports(files: Mapping[str, str]) -> tuple[RdmaPort, ...]:
    said = "".join(f"{path} {value}\n" for path, value in files.items())
    return rdma.read_ports({rdma.PORTS_QUESTION: Answer(said, 2)})


def port(**files: str) -> RdmaPort:
    """The one port of a device, from its files by their last names."""
    at = {"state": "ports/1", "rate": "ports/1", "link_layer": "ports/1", "sys_image_guid": "."}
    paths = {
        f"mlx5_0/{at.get(name, 'device')}/{name}".replace("/./", "/"): text for name, text in files.items()
    }
    (found,) = ports({"mlx5_0/ports/1/state": "4: ACTIVE", **paths})
    return found


def recorded(host: str) -> dict[str, RdmaPort]:
    return {
        each.device: each for each in rdma.read_ports(parse_transcript((HOSTS / f"{host}.txt").read_text()))
    }


def test_a_spark() -> None:
    """All of one half of a cage, read by hand."""
    assert recorded("spark-pair-a")["rocep1s0f1"] == RdmaPort(
        device="rocep1s0f1",
        port=1,
        active=True,
        link_layer="Ethernet",
        interface="enp1s0f1np1",
        mbit=200_000,
        pci="0000:01:00.1",
        pcie_width=4,
        pcie_gt=32.0,
        system_guid="0200:0000:0000:0001",
        port_name="p1",
        gids=(
            Gid(0, LOCAL, "IB/RoCE v1", "enp1s0f1np1", None),
            Gid(1, LOCAL, "RoCE v2", "enp1s0f1np1", None),
            Gid(2, ADDRESS, "IB/RoCE v1", "enp1s0f1np1", "192.168.100.10"),
            Gid(3, ADDRESS, "RoCE v2", "enp1s0f1np1", "192.168.100.10"),
        ),
    )


def index_of_address(found: RdmaPort) -> list[int]:
    return [gid.index for gid in found.gids if gid.address and gid.type == "RoCE v2"]


@pytest.mark.parametrize(
    ("host", "device", "active", "width", "indices"),
    [
        pytest.param("spark-pair-b", "roceP2p1s0f0", True, 4, [3], id="right"),
        pytest.param("spark-pair-b", "roceP2p1s0f1", False, 4, [], id="the cage with no cable"),
        pytest.param("spark-one-half-down", "roceP2p1s0f1", False, 4, [], id="half down"),
        pytest.param("spark-gid-drift", "rocep1s0f1", True, 4, [5], id="GID drift"),
        pytest.param("spark-pcie-x2", "roceP2p1s0f1", True, 2, [3], id="two lanes"),
        pytest.param("rtx-roce", "rocep65s0", True, 16, [3], id="an ordinary card"),
    ],
)
def test_recorded(host: str, device: str, *, active: bool, width: int, indices: list[int]) -> None:
    found = recorded(host)[device]
    assert (found.active, found.pcie_width, index_of_address(found)) == (active, width, indices)


def test_twins_are_known_by_what_is_no_name() -> None:
    found = recorded("spark-pair-a").values()
    assert len({each.system_guid for each in found}) == 1
    halves = {(each.port_name, (each.pci or "").split(":")[0]) for each in found}
    assert halves == {("p0", "0000"), ("p0", "0002"), ("p1", "0000"), ("p1", "0002")}


def test_a_port_that_is_down_still_has_its_interface() -> None:
    down = recorded("spark-one-half-down")["roceP2p1s0f1"]
    assert (down.interface, down.gids, down.mbit) == ("enP2p1s0f1np1", (), 40_000)


@pytest.mark.parametrize(
    ("field", "file", "text", "value"),
    [
        ("active", "state", "4: ACTIVE", True),
        ("active", "state", "1: DOWN", False),
        ("active", "state", "5: ACTIVE_DEFER", False),
        ("mbit", "rate", "200 Gb/sec (2X NDR)", 200_000),
        ("mbit", "rate", "2.5 Gb/sec (1X SDR)", 2_500),
        ("mbit", "rate", "fast", None),
        ("link_layer", "link_layer", "InfiniBand", "InfiniBand"),
        ("pcie_width", "current_link_width", "16", 16),
        ("pcie_width", "current_link_width", "255", None),
        ("pcie_gt", "current_link_speed", "32.0 GT/s PCIe", 32.0),
        ("pcie_gt", "current_link_speed", "8 GT/s", 8.0),
        ("pcie_gt", "current_link_speed", "Unknown", None),
        ("pci", "uevent", "PCI_SLOT_NAME=0000:01:00.0", "0000:01:00.0"),
        ("system_guid", "sys_image_guid", "3c6d:6603:0001:0203", "3c6d:6603:0001:0203"),
    ],
)
def test_a_file(field: str, file: str, text: str, value: object) -> None:
    assert getattr(port(**{file: text}), field) == value


def test_nothing_but_a_state() -> None:
    assert port() == RdmaPort("mlx5_0", 1, active=True, link_layer=None, interface=None)


@pytest.mark.parametrize(
    ("gid", "address"),
    [
        pytest.param(ADDRESS, "192.168.100.10", id="IPv4"),
        pytest.param(LOCAL, None, id="link-local"),
        pytest.param("0000:0000:0000:0000:0000:0000:0000:0000", "-", id="unused"),
        pytest.param("0000:0000", "-", id="no GID"),
    ],
)
def test_gid(gid: str, address: str | None) -> None:
    (found,) = ports({"mlx5_0/ports/1/state": "4: ACTIVE", "mlx5_0/ports/1/gids/3": gid})
    assert [each.address for each in found.gids] == ([] if address == "-" else [address])


def test_rows_come_by_number() -> None:
    rows = {f"mlx5_0/ports/1/gids/{index}": LOCAL for index in (10, 2, 0)}
    (found,) = ports({"mlx5_0/ports/1/state": "4: ACTIVE", **rows})
    assert [gid.index for gid in found.gids] == [0, 2, 10]


def test_two_ports_of_one_device_have_their_own_interfaces() -> None:
    """As older cards have; which of them a port without GIDs has is not told."""
    files = {f"mlx4_0/ports/{n}/state": "4: ACTIVE" for n in (1, 2)}
    files |= {f"mlx4_0/device/net/{name}/type": "1" for name in ("ens1", "ens1d1")}
    files |= {"mlx4_0/ports/2/gids/0": LOCAL, "mlx4_0/ports/2/gid_attrs/ndevs/0": "ens1d1"}
    assert [each.interface for each in ports(files)] == [None, "ens1d1"]


def test_the_question_itself(tmp_path: Path) -> None:
    """In a real shell, over files laid out as the kernel's; what cannot be read is a folder here."""
    unused = "0000:0000:0000:0000:0000:0000:0000:0000"
    files = {
        "sys_image_guid": "3c6d:6603:0001:0203",
        "device/uevent": "DRIVER=mlx5_core\nPCI_CLASS=20000\nPCI_SLOT_NAME=0000:01:00.0",
        "device/net/enp1s0f0np0/type": "1",
        "device/net/enp1s0f0np0/phys_port_name": "p0",
        "ports/1/state": "4: ACTIVE",
        "ports/1/rate": "200 Gb/sec (4X HDR)",
        "ports/1/gids/0": LOCAL,
        "ports/1/gid_attrs/types/0": "RoCE v2",
        "ports/1/gid_attrs/ndevs/0": "enp1s0f0np0",
        "ports/1/gids/1": unused,
    }
    for path, text in files.items():
        file = tmp_path / "rocep1s0f0" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    (tmp_path / "rocep1s0f0/ports/1/gid_attrs/types/1").mkdir()
    question = rdma.PORTS_QUESTION.replace("/sys/class/infiniband", str(tmp_path))
    said = subprocess.run(["sh", "-c", question], capture_output=True, text=True, check=True)
    assert said.stderr == ""
    assert len(said.stdout.splitlines()) == len(files) - 1  # one line a file, and none of the unused row
    assert rdma.read_ports({rdma.PORTS_QUESTION: Answer(said.stdout)}) == (
        RdmaPort(
            "rocep1s0f0",
            1,
            active=True,
            link_layer=None,
            interface="enp1s0f0np0",
            mbit=200_000,
            pci="0000:01:00.0",
            system_guid="3c6d:6603:0001:0203",
            port_name="p0",
            gids=(Gid(0, LOCAL, "RoCE v2", "enp1s0f0np0", None),),
        ),
    )


def test_not_asked() -> None:
    assert rdma.read_ports({}) == ()
