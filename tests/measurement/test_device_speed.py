from typing import Any

import pytest

from medley.measurement.device_speed import DeviceSpeeds, HostDevices, find_problem
from medley.planner.device_history import find_slow_devices as slow_devices
from medley.planner.devices import DeviceIdentity, DeviceSpeed
from tests.problems import assert_problem

GIB = 1 << 30
GB10 = (DeviceIdentity(0, "GB10", 120 * GIB, "GPU-aa"),)
TWO_GPUS = (
    DeviceIdentity(0, "RTX 5090", 32 * GIB, "GPU-bb"),
    DeviceIdentity(1, "RTX 3090", 24 * GIB, "GPU-cc"),
)
HOSTS = {
    "10.0.0.1": HostDevices("one (10.0.0.1)", GB10),
    "10.0.0.2": HostDevices("two (10.0.0.2)", TWO_GPUS),
    "10.0.0.3": HostDevices("three (10.0.0.3)", ()),
}
WHEN = "2026-11-22T03:00:00+00:00"
ABOUT = {"side": 8192, "dtype": "bfloat16", "threads": 8, "torch": "2.13.0", "ray": "2.60.0"}
RATES = {"gb_s": 200.0, "few_tflops": 2.5, "tflops": 60.0}


def build_event(address: str, uuid: str | None = None, **rates: float) -> dict[str, Any]:
    return {"device": address, "uuid": uuid, **ABOUT, **RATES, **rates}


def collect_speeds(*events: dict[str, Any]) -> DeviceSpeeds:
    speeds = DeviceSpeeds()
    for event in events:
        speeds = speeds.add_event(event, HOSTS, WHEN)
    return speeds


def test_a_gpu_is_known_by_its_uuid_whatever_number_cuda_gives_it() -> None:
    speeds = collect_speeds(
        {"step": "read weights"}, build_event("10.0.0.2", "cc"), build_event("10.0.0.2", "bb"), {"done": True}
    )
    assert [(device.index, device.name) for device in speeds.devices] == [(1, "RTX 3090"), (0, "RTX 5090")]
    assert speeds.devices[0].memory_bytes == 24 * GIB
    assert speeds.devices[0].when == WHEN


def test_the_only_device_needs_no_uuid() -> None:
    (device,) = collect_speeds(build_event("10.0.0.1")).devices
    assert (device.host, device.index, device.name, device.gb_s) == ("one (10.0.0.1)", 0, "GB10", 200)


@pytest.mark.parametrize(
    "event", [build_event("10.0.0.2", "dd"), build_event("10.0.0.3")], ids=["unknown uuid", "no facts told"]
)
def test_a_device_that_no_facts_show_is_not_kept(event: dict[str, Any]) -> None:
    speeds = collect_speeds(event)
    assert not speeds.devices
    assert list(speeds.failed.values()) == ["its facts show no such device"]


def test_hosts_that_serve_are_left_alone_and_those_that_fail_are_named() -> None:
    speeds = collect_speeds({"busy": "10.0.0.1"}, {"failed": "10.0.0.2", "said": "CUDA out of memory"})
    assert speeds.busy == ("one (10.0.0.1)",)
    problem = find_problem(speeds)
    assert problem is not None
    assert_problem(problem, "two (10.0.0.2)", cause="CUDA out of memory")


BASE = DeviceSpeed("a", 0, "GB10", 120 * GIB, 200.0, 2.5, 60.0, "bfloat16", 8, WHEN, "2.13.0")


@pytest.mark.parametrize(
    ("others", "slow"),
    [
        pytest.param([{"host": "b"}], [], id="equals"),
        pytest.param([{"host": "b", "gb_s": 110.0}], [], id="over half"),
        pytest.param([{"host": "b", "gb_s": 90.0}], ["b"], id="under half in reading"),
        pytest.param([{"host": "b", "tflops": 20.0}], ["b"], id="under half in multiplying: heat"),
        pytest.param([{"host": "b", "gb_s": 500.0}], ["a"], id="the one that is named may be the first"),
        pytest.param([{"host": "b", "name": "Orin", "gb_s": 50.0}], [], id="another device is no equal"),
        pytest.param(
            [{"host": "b", "gb_s": 20.0}, {"host": "c", "tflops": 6.0}], ["b", "c"], id="two of three"
        ),
    ],
)
def test_who_is_far_below_its_equals(others: list[dict[str, Any]], slow: list[str]) -> None:
    speeds = DeviceSpeeds((BASE, *(BASE.replace(**changes) for changes in others)))
    assert [changes.host for changes, _ in slow_devices(speeds.devices)] == slow
    problem = find_problem(speeds)
    assert (problem is not None) == bool(slow)
    if problem:
        assert problem.what.startswith(", ".join(slow))
        assert all(f"{host}: " in problem.cause for host in slow)
