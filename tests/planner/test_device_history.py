"""Records as a host keeps them, and what their comparison names."""

import json
import shlex
from pathlib import Path

import pytest

from medley.planner import device_history
from medley.planner.device_history import (
    ProbeRecord,
    build_slower_than_equal_finding,
    find_slow_devices,
    list_findings,
    parse_records,
)
from medley.planner.devices import DeviceSpeed

GIB = 1 << 30
GB10 = DeviceSpeed(
    "spark", 0, "NVIDIA GB10", 120 * GIB, 230, 3, 60, "bfloat16", 20, "", "2.13.0", None, 512 << 20
)
RX = "net/enp1s0f0np0/statistics/rx_crc_errors"
LANES = "net/enp1s0f0np0/device/current_link_width"


def day(number: int, gb_s: float = 230, tflops: float = 60, **more: object) -> ProbeRecord:
    when = f"2026-11-{number:02}T03:00:00+00:00"
    speed = GB10.replace(gb_s=gb_s, tflops=tflops, when=when).to_table()
    return ProbeRecord(when, (speed,), driver="580.95", kind="spark").replace(**more)


def whats(*records: ProbeRecord) -> list[str]:
    return [each.what for each in list_findings(records)]


def test_a_gb10_in_its_slow_state_is_named_with_figures_and_since_when() -> None:
    """63 against 94 ms a step, as published, is two thirds of the speed."""
    gpus = {"0": {"clocks.sm": "2405", "temperature.gpu": "52"}}
    (found,) = list_findings([day(1), day(2, 226), day(3, 154), day(4, 152, gpus=gpus)])
    assert found.what == "Device 0 (NVIDIA GB10) is slower than its own past"
    assert "152 GB/s on 2026-11-04, 67% of 228 GB/s, the median of 2 earlier records" in found.cause
    assert "slow since 2026-11-03T03:00Z; 2405 MHz, 52 °C" in found.cause
    assert "unplug the power supply at both ends for a minute" in found.fix


@pytest.mark.parametrize(
    ("records", "named"),
    [
        pytest.param([day(1), day(2, 100)], False, id="one record is no past"),
        pytest.param([day(1), day(2), day(3, 185)], False, id="80 percent"),
        pytest.param([day(1), day(2), day(3, 183)], True, id="less than 80 percent"),
        pytest.param([day(1), day(2), day(3, tflops=40)], True, id="it multiplies slowly"),
        pytest.param([day(1), day(2), day(3, 150), day(4)], False, id="well again"),
        pytest.param([day(1), day(2), *(day(each, 150) for each in range(3, 28))], True, id="slow for weeks"),
        pytest.param([day(1), day(2), day(3, 150), day(4, speeds=())], True, id="not measured since"),
        pytest.param([day(1), day(2), day(3, 150, driver="590.1")], False, id="another driver"),
        pytest.param([day(1), day(2), day(3, 150, mode="MODE_30W")], False, id="another power mode"),
        pytest.param(
            [day(1), day(2), day(3, 150, stated={"0": 273.0})], True, id="documented does not hide it"
        ),
    ],
)
def test_slower_than_its_own_past(records: list[ProbeRecord], named: bool) -> None:  # noqa: FBT001 - a table
    assert bool(whats(*records)) == named


def test_a_cpu_is_named_once_it_was_slow_for_an_hour() -> None:
    past = [day(1, device="cpu"), day(2, device="cpu"), day(3, 100, device="cpu")]
    later = (day(3, 100, device="cpu").replace(when=f"2026-11-03T{at}:00+00:00") for at in ("03:59", "04:00"))
    early, due = ([*past, each] for each in later)
    assert not whats(*past)
    assert not whats(*early)
    assert whats(*due)
    assert not whats(*early, day(3, device="cpu").replace(when="2026-11-03T05:00:00+00:00"))


def test_a_measurement_of_another_size_is_no_past() -> None:
    small = day(3, 150)
    (speed,) = small.speeds
    assert not whats(day(1), day(2), small.replace(speeds=({**speed, "weights_bytes": 1 << 20},)))


def test_far_below_the_documented_speed() -> None:
    (found,) = list_findings([day(1, 130, stated={"0": 273.0})])
    assert found.cause == "130 GB/s on 2026-11-01, documented 273 GB/s"
    assert not whats(day(1, 140, stated={"0": 273.0}))


@pytest.mark.parametrize(
    ("before", "now", "what"),
    [
        ({"links": {"eth1": 100_000}}, {"links": {"eth1": 10_000}}, "Link eth1 is slower than its own past"),
        ({"files": {LANES: 4}}, {"files": {LANES: 2}}, "enp1s0f0np0 has 2 PCIe lanes, and had 4"),
        ({"files": {RX: 7}}, {"files": {RX: 103}}, "Errors on enp1s0f0np0 rise: rx_crc_errors"),
        ({"files": {RX: 7}}, {"files": {RX: 8}}, None),
        ({"files": {RX: 700}}, {"files": {RX: 3}}, None),
        ({"links": {"eth1": 10_000}}, {"links": {"eth1": 100_000}}, None),
        ({"links": {"eth1": 10_000}}, {"links": {}}, None),
    ],
)
def test_links(before: dict[str, object], now: dict[str, object], what: str | None) -> None:
    assert whats(day(1, **before), day(2, **now)) == ([what] if what else [])  # type: ignore[arg-type]


def test_a_rate_of_errors_and_lanes_of_a_gpu() -> None:
    gpu = {"0": {"pcie.link.width.current": "4", "pcie.link.width.max": "16"}}
    lanes, errors = list_findings([day(1, files={RX: 7}), day(2, files={RX: 103}, gpus=gpu)])
    assert lanes.what == "GPU 0 has 4 of 16 PCIe lanes"
    assert "96 more from 2026-11-01T03:00Z to 2026-11-02T03:00Z, 4 an hour" in errors.cause


def test_equals_on_other_hosts() -> None:
    here, there = GB10.replace(gb_s=100, when="2026-11-02"), GB10.replace(host="spark-2", when="2026-11-03")
    ((each, best),) = find_slow_devices([here, there])
    found = build_slower_than_equal_finding(each, best, "thor")
    assert found.what == "Device 0 (NVIDIA GB10) is slower than its equal in spark-2"
    assert "100 GB/s and 60 TFLOPS on 2026-11-02; there 230 GB/s" in found.cause
    assert found.fix == "sudo nvpmodel -m 0; sudo jetson_clocks"


@pytest.mark.parametrize(
    ("kind", "word"), [("cpu", "systemd-cgtop"), ("rtx", "nvidia-smi"), (None, "nvidia-smi")]
)
def test_the_fix_is_that_of_the_kind(kind: str | None, word: str) -> None:
    (found,) = list_findings([day(1), day(2), day(3, 150, kind=kind)])
    assert word in found.fix.split()


def test_the_history_is_bounded_and_passes_over_what_it_cannot_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    for number in range(70):
        device_history.add_record(day(1 + number % 28))
    file = tmp_path / device_history.HISTORY_FILE
    assert len(device_history.read_history()) == 60
    assert device_history.read_history()[-1].devices[0].name == "NVIDIA GB10"
    file.write_text('{"when": 1}\nhalf a li\n' + file.read_text())
    assert len(parse_records(file.read_text().splitlines())) == 60


@pytest.mark.parametrize(
    "fields",
    [
        {"files": {"net/eth0\ntouch P #/statistics/rx_errors": 1}},
        {"links": {"eth0\n": 1}},
        {"links": {"--driver": 1}},
        {"when": "yesterday"},
        {"when": "2026-11-01T03:00:00"},
    ],
)
def test_a_record_without_a_time_or_with_names_of_two_lines_is_refused(fields: dict[str, object]) -> None:
    row = {"when": "2026-11-01T03:00:00+00:00"}
    assert parse_records([json.dumps(row)])
    assert not parse_records([json.dumps(row | fields)])


def test_names_of_links_are_words_of_a_fix() -> None:
    files = "net/$(touch P)/statistics/rx_errors"
    past = day(1, links={"x; touch P": 100_000}, files={files: 0})
    findings = list_findings([past, day(2, links={"x; touch P": 10_000}, files={files: 100_000})])
    words = [word for finding in findings for word in shlex.split(finding.fix)]
    assert {"x; touch P", "$(touch P)"} <= set(words)
