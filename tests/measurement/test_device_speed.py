from dataclasses import replace
from typing import Any

import pytest

from medley.measurement.device_speed import Measurable, Speeds, verdict
from medley.planner.device_history import slow as slow_devices
from medley.planner.devices import DeviceSpeed, MeasuredDevice
from tests.problems import assert_problem

GIB = 1 << 30
GB10 = (MeasuredDevice(0, "GB10", 120 * GIB, "GPU-aa"),)
TWO = (MeasuredDevice(0, "RTX 5090", 32 * GIB, "GPU-bb"), MeasuredDevice(1, "RTX 3090", 24 * GIB, "GPU-cc"))
HOSTS = {
    "10.0.0.1": Measurable("one (10.0.0.1)", GB10),
    "10.0.0.2": Measurable("two (10.0.0.2)", TWO),
    "10.0.0.3": Measurable("three (10.0.0.3)", ()),
}
WHEN = "2026-11-22T03:00:00+00:00"
ABOUT = {"side": 8192, "dtype": "bfloat16", "threads": 8, "torch": "2.13.0", "ray": "2.60.0"}
RATES = {"gb_s": 200.0, "few_tflops": 2.5, "tflops": 60.0}


def device(address: str, uuid: str | None = None, **rates: float) -> dict[str, Any]:
    return {"device": address, "uuid": uuid, **ABOUT, **RATES, **rates}


def folded(*events: dict[str, Any]) -> Speeds:
    found = Speeds()
    for event in events:
        found = found.having(event, HOSTS, WHEN)
    return found


def test_a_gpu_is_known_by_its_uuid_whatever_number_cuda_gives_it() -> None:
    found = folded(
        {"step": "read weights"}, device("10.0.0.2", "cc"), device("10.0.0.2", "bb"), {"done": True}
    )
    assert [(each.index, each.name) for each in found.devices] == [(1, "RTX 3090"), (0, "RTX 5090")]
    assert found.devices[0].memory_bytes == 24 * GIB
    assert found.devices[0].when == WHEN


def test_the_only_device_needs_no_uuid() -> None:
    (found,) = folded(device("10.0.0.1")).devices
    assert (found.host, found.index, found.name, found.gb_s) == ("one (10.0.0.1)", 0, "GB10", 200)


@pytest.mark.parametrize(
    "event", [device("10.0.0.2", "dd"), device("10.0.0.3")], ids=["unknown uuid", "no facts told"]
)
def test_a_device_that_no_facts_show_is_not_kept(event: dict[str, Any]) -> None:
    found = folded(event)
    assert not found.devices
    assert list(found.failed.values()) == ["its facts show no such device"]


def test_hosts_that_serve_are_left_alone_and_those_that_fail_are_named() -> None:
    found = folded({"busy": "10.0.0.1"}, {"failed": "10.0.0.2", "said": "CUDA out of memory"})
    assert found.busy == ("one (10.0.0.1)",)
    problem = verdict(found)
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
    found = Speeds((BASE, *(replace(BASE, **each) for each in others)))
    assert [each.host for each, _ in slow_devices(found.devices)] == slow
    problem = verdict(found)
    assert (problem is not None) == bool(slow)
    if problem:
        assert problem.what.startswith(", ".join(slow))
        assert all(f"{host}: " in problem.cause for host in slow)
