from itertools import combinations
from pathlib import Path

import pytest

from medley import config
from medley.host.hypothetical import build_hosts
from medley.host.kind import SiteHost, match_kind
from medley.network.fabric.choice import NetworkOptions
from medley.planner import Device, HostLink, build_group_finder
from medley.planner import devices as planner_devices
from medley.planner.devices import (
    NO_MEASUREMENTS,
    DeviceIdentity,
    DeviceSpeed,
    LinkSpeed,
    Measurements,
    add_measurements,
    read_measurements,
)
from medley.planner.site_network import SiteNetwork
from tests.network.networks import wired

GIB = 1 << 30
CPU = DeviceSpeed(
    "a (10.0.0.1)", 0, "Xeon", 24 * GIB, 12.5, 0.1, 0.9, "bfloat16", 2, "2026-11-22T03:00:00", "2.13", "2.60"
)
WIRE = LinkSpeed("a (10.0.0.1)", "b (10.0.0.2)", "gloo", 941.5, 70.0, "2026-11-22T03:00:00")


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    return tmp_path


def test_what_is_kept_is_read_again() -> None:
    add_measurements([CPU], [WIRE])
    assert read_measurements() == Measurements({("a (10.0.0.1)", 0): CPU}, {WIRE.ends: WIRE})


def test_newer_figures_take_the_place_of_older_ones_and_of_no_others() -> None:
    other = CPU.replace(index=1)
    add_measurements([CPU, other], [WIRE])
    newer, back = CPU.replace(gb_s=3.0), WIRE.replace(one=WIRE.two, two=WIRE.one, mbit=100)
    add_measurements([newer], [back])
    found = read_measurements()
    assert set(found.speeds.values()) == {newer, other}
    assert list(found.links.values()) == [back]


@pytest.mark.parametrize(
    ("name", "gib", "known"),
    [
        pytest.param("Xeon", 24, True, id="the same"),
        pytest.param("EPYC", 24, False, id="another processor"),
        pytest.param("Xeon", 48, False, id="other memory"),
    ],
)
def test_a_device_that_is_another_is_not_known(name: str, gib: int, known: bool) -> None:  # noqa: FBT001 - a table's cell
    found = NO_MEASUREMENTS.merge([CPU], [])
    assert (found.find_speed(CPU.host, 0, name, gib * GIB) is not None) == known
    assert found.find_speed(CPU.host, 1, name, gib * GIB) is None


def test_a_wire_has_no_direction() -> None:
    found = NO_MEASUREMENTS.merge([], [WIRE])
    assert found.find_link(WIRE.two, WIRE.one) == found.find_link(WIRE.one, WIRE.two) == WIRE
    assert found.find_link(WIRE.one, "c") is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"speeds": [], "wire": []}', '{"speeds": [{}], "wires": []}']
)
def test_a_file_of_another_medley_is_as_good_as_none(state: Path, text: str) -> None:
    (state / "measured.json").write_text(text)
    assert read_measurements() == NO_MEASUREMENTS
    add_measurements([CPU], [])
    assert list(read_measurements().speeds.values()) == [CPU]


def hosts(asked: str) -> dict[str, SiteHost]:
    known = config.load_hosts()
    return {name: SiteHost(facts, match_kind(facts, known)) for name, facts in build_hosts(asked).items()}


def devices(asked: str) -> list[Device]:
    return list(planner_devices.list_devices(hosts(asked)))


def reached(host: str, unit: DeviceIdentity, gb_s: float) -> DeviceSpeed:
    when = "2026-11-22T03:00:00+00:00"
    return DeviceSpeed(
        host, unit.index, unit.name, unit.memory_bytes, gb_s, 0.1, 0.4, "bfloat16", 8, when, "2.13"
    )


def test_what_was_measured_counts_on_that_device_alone_and_a_plan_says_so() -> None:
    found = hosts("cpu:2,spark")
    (unit,) = planner_devices.list_device_identities(*found["cpu-1"])
    known = NO_MEASUREMENTS.merge([reached("cpu-1", unit, 12.3)], [])
    first, second, spark = planner_devices.list_devices(found, known)
    assert (first.bandwidth_gb_s, first.bf16_tflops, first.measured) == (12.3, 0.4, True)
    assert [second, spark] == list(planner_devices.list_devices(found))[1:]
    assert list(planner_devices.explain_measurements(found, known)) == [
        "cpu-1 0: measured 12.3 GB/s and 0.4 TFLOPS on 2026-11-22; stated 30 and 0.5"
    ]
    other = NO_MEASUREMENTS.merge([reached("cpu-1", unit.replace(memory_bytes=1), 12.3)], [])
    assert list(planner_devices.list_devices(found, other)) == list(planner_devices.list_devices(found))
    assert not list(planner_devices.explain_measurements(found, other))


@pytest.mark.parametrize(
    ("asked", "backend", "counts"),
    [
        pytest.param("cpu:2", "gloo", True, id="CPUs talk over Gloo"),
        pytest.param("spark:2", "nccl", True, id="GPUs over NCCL"),
        pytest.param("spark:2", "gloo", False, id="what Gloo had beside a served model is not what NCCL has"),
    ],
)
def test_a_measured_wire_counts_where_the_engine_takes_the_same(
    asked: str,
    backend: str,
    counts: bool,  # noqa: FBT001 - a table's cell
) -> None:
    facts = build_hosts(asked)
    one, other = facts
    known = NO_MEASUREMENTS.merge([], [LinkSpeed(one, other, backend, 941.5, 70.0, "2026-11-22")])
    link = SiteNetwork(facts, NetworkOptions(), known).find_link(other, one)
    stated = SiteNetwork(facts, NetworkOptions()).find_link(other, one)
    assert isinstance(stated, HostLink)
    assert link == (HostLink(941, 70.0, stated.rdma, measured=True) if counts else stated)


@pytest.mark.parametrize("pairs", [3, 2])
def test_the_wire_of_three_hosts_is_measured_where_all_its_pairs_are(pairs: int) -> None:
    facts = build_hosts("cpu:3")
    when = "2026-11-22"
    wires = [LinkSpeed(one, other, "gloo", 941.0, 70.0, when) for one, other in combinations(facts, 2)]
    found = build_group_finder(
        SiteNetwork(facts, NetworkOptions(), NO_MEASUREMENTS.merge([], wires[:pairs])).find_link
    )(facts)
    assert isinstance(found, HostLink)
    assert found.measured == (pairs == 3)


@pytest.mark.parametrize(
    ("asked", "gib", "bandwidth"),
    [
        # 85 % of 121.69 GiB: above it unified hosts were seen to wedge.
        pytest.param("spark", 103.4, 273, id="a Spark shares its memory"),
        # The card's own 95.6 GiB, less vLLM's 8 %.
        pytest.param("rtx", 87.9, 1792, id="a card has its own"),
        pytest.param("rtx-5090", 29.3, 1792, id="a smaller card"),
    ],
)
def test_a_device(asked: str, gib: float, bandwidth: float) -> None:
    (found,) = devices(asked)
    assert found.memory_bytes / GIB == pytest.approx(gib, abs=0.2)
    assert found.bandwidth_gb_s == bandwidth
    assert found.host == f"{asked}-1"


def test_every_gpu_of_a_host_is_one_and_a_host_without_is_its_cpu() -> None:
    found = devices("cpu,orin:2,thor")
    assert [(each.host, each.index) for each in found] == [
        ("cpu-1", 0),
        ("orin-1", 0),
        ("orin-2", 0),
        ("thor-1", 0),
    ]


@pytest.mark.parametrize(
    ("asked", "rdma", "mbit"),
    [
        pytest.param("spark:2", True, 200_000, id="both halves of a cable"),
        pytest.param("spark,rtx", True, 100_000, id="as fast as the slower end"),
        pytest.param("thor:2", False, 100_000, id="four lanes over sockets"),
        pytest.param("spark,thor", False, 1_000, id="nothing in common but the LAN"),
    ],
)
def test_a_link_is_what_the_fabric_of_the_two_is(asked: str, rdma: bool, mbit: int) -> None:  # noqa: FBT001 - a table's cell
    hosts = build_hosts(asked)
    one, other = hosts
    link = SiteNetwork(hosts, NetworkOptions()).find_link(one, other)
    assert isinstance(link, HostLink)
    assert (link.rdma, link.mbit) == (rdma, mbit)
    assert SiteNetwork(hosts, NetworkOptions()).find_link(other, one) == link


def test_hosts_that_cannot_talk_have_no_link() -> None:
    hosts = build_hosts("spark,rtx")
    assert SiteNetwork(hosts, NetworkOptions(link="192.168.101.0/24")).find_link(*hosts) is None


@pytest.mark.parametrize(
    ("cables", "expected"),
    [
        pytest.param("1.0-2.1 2.0-3.1 3.0-1.1", (200_000, True), id="a ring carries for all three"),
        pytest.param("1.0-2.0 1.1-3.0 2.1-3.1", (10_000, False), id="a mirrored one only for pairs"),
        pytest.param("1.0-2.1 2.0-3.1", (10_000, False), id="a line neither"),
    ],
)
def test_three_hosts_have_what_their_cabling_carries_between_all(
    cables: str, expected: tuple[int, bool]
) -> None:
    facts, wishes = wired(3, cables), NetworkOptions()
    network = SiteNetwork(facts, wishes)
    pair = network.find_link
    between = build_group_finder(pair, network.find_group_link)
    found, two = between(facts), between(["h1", "h2"])
    assert isinstance(found, HostLink)
    assert (found.mbit, found.rdma) == expected
    assert two == pair("h1", "h2")
    assert isinstance(two, HostLink)
    assert two.rdma


def test_three_hosts_whom_no_network_reaches_have_no_link() -> None:
    facts, wishes = wired(3, "1.0-2.1 2.0-3.1 3.0-1.1", lan=None), NetworkOptions()
    network = SiteNetwork(facts, wishes)
    pair = network.find_link
    found = build_group_finder(pair, network.find_group_link)(facts)
    assert found == "ring of 3: h1 – h2 – h3: no network connects all of these hosts"
