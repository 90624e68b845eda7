"""A kind of host that a user has added is planned by its table."""

import re
from pathlib import Path

import pytest

from medley import config
from medley.errors import Problem
from medley.host.facts import GIB
from medley.planner import Device
from medley.planner.device_specs import SHIPPED, reached, stated, step_pace
from medley.planner.kinds import is_unified
from medley.planner.memory import usable_bytes

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


@pytest.fixture
def add_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEDLEY_CONFIG", str(tmp_path))
    (tmp_path / "hosts").mkdir()
    return tmp_path / "hosts" / "mine.toml"


def test_unified_memory_keeps_what_the_system_needs(add_kind: Path) -> None:
    add_kind.write_text(TABLE.format(unified="true", like="spark", gpu="GB10", formats='["nvfp4"]'))
    assert is_unified("mine")
    assert (
        usable_bytes("mine", 120 * GIB, 118 * GIB) == 102 * GIB == usable_bytes("spark", 120 * GIB, 118 * GIB)
    )
    assert stated("mine") == stated("spark")


def test_formats_and_pace_are_those_of_the_table(add_kind: Path) -> None:
    add_kind.write_text(TABLE.format(unified="false", like="desktop", gpu="", formats='["fp8"]'))
    assert usable_bytes("mine", 100 * GIB, 95 * GIB) == 92 * GIB
    assert step_pace("mine", SHIPPED) == step_pace("rtx", SHIPPED) > step_pace("spark", SHIPPED)
    operations = {
        weights: reached(Device("a", 0, "mine", GIB, 1000, 100), weights, SHIPPED).operations
        for weights in ("bf16", "fp8", "nvfp4")
    }
    assert operations["fp8"] > operations["bf16"] > operations["nvfp4"], "NVFP4 is unpacked first"


@pytest.mark.parametrize("section", ["speed", "memory"])
def test_a_kind_without_them_is_refused(add_kind: Path, section: str) -> None:
    text = TABLE.format(unified="true", like="spark", gpu="", formats="[]")
    add_kind.write_text(re.sub(rf"\[{section}\]\n(?:[^\[].*\n)*", "", text))
    with pytest.raises(Problem, match=section) as caught:
        _ = config.hosts()["mine"]
    assert str(add_kind) in caught.value.what
