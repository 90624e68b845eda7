"""A kind of host that a user has added is planned by its table."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from medley import config
from medley.doctor.checks import Check, Examination, ExaminedHost
from medley.doctor.registry import RULES
from medley.errors import Problem
from medley.host.facts import GIB, Facts
from medley.host.facts.gpu import Gpu
from medley.host.health import Health
from medley.host.health.gpu import GpuState, GpuStates, GpuUser
from medley.host.kind import find_kind
from medley.network.fabric.choose import choose_fabric
from medley.network.fabric.variables import list_group_variables
from medley.planner import Device
from medley.planner.device_history import list_findings
from medley.planner.device_specs import (
    SHIPPED_EFFICIENCY,
    compute_reached_speed,
    compute_step_pace,
    find_stated_speed,
)
from medley.planner.kinds import is_unified
from medley.planner.memory import compute_usable_bytes
from tests.network.networks import spark
from tests.planner.test_device_history import day

TABLE = """\
title = "a desk of my own"
systems = ["aarch64-linux"]
device = "cuda"
[recognise]
gpu = "GB200"
[memory]
unified = {unified}
[speed]
like = "{like}"
gpu = "{gpu}"
native_formats = {formats}
"""
AS_SPARK = """\
[power]
slow_fix = "sudo poweroff  # unplug it"
stuck_below = 0.4
stuck_cause = "its power supply gives too little"
[network]
no_gpudirect = [""]
"""
STUCK = GpuStates(
    (GpuState("0000:01:00.0", (GpuUser(1, "python3", is_graphics=False),), mhz=507, max_mhz=3003),)
)


@pytest.fixture
def add_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEDLEY_CONFIG", str(tmp_path))
    (tmp_path / "hosts").mkdir()
    return tmp_path / "hosts" / "mine.toml"


def test_unified_memory_keeps_what_the_system_needs(add_kind: Path) -> None:
    add_kind.write_text(TABLE.format(unified="true", like="spark", gpu="GB10", formats='["nvfp4"]'))
    assert is_unified("mine")
    assert (
        compute_usable_bytes("mine", 120 * GIB, 118 * GIB)
        == 102 * GIB
        == compute_usable_bytes("spark", 120 * GIB, 118 * GIB)
    )
    assert find_stated_speed("mine") == find_stated_speed("spark")


def test_formats_and_pace_are_those_of_the_table(add_kind: Path) -> None:
    add_kind.write_text(TABLE.format(unified="false", like="desktop", gpu="", formats='["fp8"]'))
    assert compute_usable_bytes("mine", 100 * GIB, 95 * GIB) == 92 * GIB
    assert (
        compute_step_pace("mine", SHIPPED_EFFICIENCY)
        == compute_step_pace("rtx", SHIPPED_EFFICIENCY)
        > compute_step_pace("spark", SHIPPED_EFFICIENCY)
    )
    operations = {
        weights: compute_reached_speed(
            Device("a", 0, "mine", GIB, 1000, 100), weights, SHIPPED_EFFICIENCY
        ).operations_per_s
        for weights in ("bf16", "fp8", "nvfp4")
    }
    assert operations["fp8"] > operations["bf16"] > operations["nvfp4"], "NVFP4 is unpacked first"


@pytest.mark.parametrize("section", ["speed", "memory"])
def test_a_kind_without_them_is_refused(add_kind: Path, section: str) -> None:
    text = TABLE.format(unified="true", like="spark", gpu="", formats="[]")
    add_kind.write_text(re.sub(rf"\[{section}\]\n(?:[^\[].*\n)*", "", text))
    with pytest.raises(Problem, match=section) as caught:
        _ = config.load_hosts()["mine"]
    assert str(add_kind) in caught.value.what


def test_power_and_network_are_those_of_the_table(add_kind: Path) -> None:
    """A Spark's values in a table of the user's have a Spark's effect on a GPU of another name."""
    text = TABLE.format(unified="true", like="spark", gpu="GB10", formats="[]")
    sparks = {f"h{nth}": spark(nth) for nth in (1, 2)}
    mine = {name: each.replace(gpus=(Gpu(0, "NVIDIA GB200"),)) for name, each in sparks.items()}
    add_kind.write_text(text + AS_SPARK)
    assert variables(mine) == variables(sparks)
    assert variables(mine)["NCCL_NET_GDR_LEVEL"] == "LOC"
    (check,) = checks("clocks", mine["h1"])
    assert check.problem
    assert (check.problem.cause, check.problem.fix) == (
        "its power supply gives too little",
        "sudo poweroff  # unplug it",
    )
    (found,) = list_findings([day(1), day(2), day(3, 150, kind="mine")])
    assert found.fix == check.problem.fix


def test_without_values_no_gpu_is_stuck_or_without_gpudirect(add_kind: Path) -> None:
    add_kind.write_text(TABLE.format(unified="true", like="spark", gpu="GB10", formats="[]"))
    mine = {f"h{nth}": spark(nth).replace(gpus=(Gpu(0, "NVIDIA GB200"),)) for nth in (1, 2)}
    assert "NCCL_NET_GDR_LEVEL" not in variables(mine)
    (check,) = checks("clocks", mine["h1"])
    assert check.state == "ok"


def variables(hosts: Mapping[str, Facts]) -> dict[str, str]:
    return {each.name: each.value for each in list_group_variables(choose_fabric(hosts), hosts)}


def checks(rule: str, facts: Facts) -> list[Check]:
    host = ExaminedHost("h1", facts, Health(gpus=STUCK), find_kind(facts))
    (look,) = (each.run for each in RULES if each.name == rule)
    return list(look(Examination({"h1": host})))
