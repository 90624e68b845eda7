from dataclasses import replace
from pathlib import Path

import pytest

from medley import measured
from medley.measured import NOTHING, Measured, Speed, Wire

GIB = 1 << 30
CPU = Speed(
    "a (10.0.0.1)", 0, "Xeon", 24 * GIB, 12.5, 0.1, 0.9, "bfloat16", 2, "2026-11-22T03:00:00", "2.13", "2.60"
)
WIRE = Wire("a (10.0.0.1)", "b (10.0.0.2)", "gloo", 941.5, 70.0, "2026-11-22T03:00:00")


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    return tmp_path


def test_what_is_kept_is_read_again() -> None:
    measured.keep([CPU], [WIRE])
    assert measured.read() == Measured({("a (10.0.0.1)", 0): CPU}, {WIRE.ends: WIRE})


def test_newer_figures_take_the_place_of_older_ones_and_of_no_others() -> None:
    other = replace(CPU, index=1)
    measured.keep([CPU, other], [WIRE])
    newer, back = replace(CPU, gb_s=3.0), replace(WIRE, one=WIRE.two, two=WIRE.one, mbit=100)
    measured.keep([newer], [back])
    found = measured.read()
    assert set(found.speeds.values()) == {newer, other}
    assert list(found.wires.values()) == [back]


@pytest.mark.parametrize(
    ("name", "gib", "known"),
    [
        pytest.param("Xeon", 24, True, id="the same"),
        pytest.param("EPYC", 24, False, id="another processor"),
        pytest.param("Xeon", 48, False, id="other memory"),
    ],
)
def test_a_device_that_is_another_is_not_known(name: str, gib: int, known: bool) -> None:  # noqa: FBT001 - a table's cell
    found = NOTHING.having([CPU], [])
    assert (found.speed(CPU.host, 0, name, gib * GIB) is not None) == known
    assert found.speed(CPU.host, 1, name, gib * GIB) is None


def test_a_wire_has_no_direction() -> None:
    found = NOTHING.having([], [WIRE])
    assert found.wire(WIRE.two, WIRE.one) == found.wire(WIRE.one, WIRE.two) == WIRE
    assert found.wire(WIRE.one, "c") is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"speeds": [], "wire": []}', '{"speeds": [{}], "wires": []}']
)
def test_a_file_of_another_medley_is_as_good_as_none(state: Path, text: str) -> None:
    (state / "measured.json").write_text(text)
    assert measured.read() == NOTHING
    measured.keep([CPU], [])
    assert list(measured.read().speeds.values()) == [CPU]
