"""What differs between two benches is named, and what is no matter is not."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from medley.bench.differing import differing
from medley.bench.record import Record
from tests.benches import about, bench

HOSTS = Path(__file__).parent / "hosts"
ENGINE = about()["engine"]


def host(name: str, same: str = "11") -> dict[str, str]:
    return {"name": "host-1", "same": same, "facts": (HOSTS / f"{name}.txt").read_text()}


def plan(*argv: str, **more: Any) -> dict[str, Any]:
    return {**about()["plan"], "argv": ["/env/bin/vllm", "serve", "/m", *argv], **more}


def clocked(record: Record, mhz: int) -> Record:
    line = f"0, {mhz} MHz, 2619 MHz, 1980 MHz, 250.00 W, 45"
    return replace(record, done=tuple(replace(each, clocks=(line,)) for each in record.done))


SPEED = {"host": "host-1", "index": 0, "gb_s": 200.0}


@pytest.mark.parametrize(
    ("one", "two", "said"),
    [
        pytest.param({}, {"engine": {**ENGINE, "versions": {"vllm": "0.33.0", "torch": "2.13.0"}}},
                     "vllm: 0.32.0 → 0.33.0", id="the engine's version"),
        pytest.param({}, {"engine": {**ENGINE, "lock": "a" * 64, "digest": "d2"}},
                     "lock: l1 → aaaaaaaaaaaa", id="its lock, and not its digest besides"),
        pytest.param({"plan": plan("--port", "1", "--max-num-seqs", "64")},
                     {"plan": plan("--port", "2", "--max-num-seqs", "8")},
                     "--max-num-seqs: 64 → 8", id="a flag, and not the port"),
        pytest.param({"plan": plan()}, {"plan": plan("--enforce-eager")},
                     "--enforce-eager: not set → on", id="a flag that is there alone"),
        pytest.param({"plan": plan()}, {"plan": plan(layout="two stages")},
                     "layout: alone on host-1 → two stages", id="the layout"),
        pytest.param({"plan": plan()}, {"plan": plan(env={"NCCL_IB_HCA": "x"})},
                     "NCCL_IB_HCA: not set → x", id="a variable"),
        pytest.param({"hosts": [host("spark")]}, {"hosts": [host("spark", "22")]},
                     "host is another one: the first's → the second's", id="a host like it"),
        pytest.param({"hosts": [host("spark")]}, {"hosts": [host("spark"), host("spark", "22")]},
                     "hosts: 1 → 2", id="one host more"),
        pytest.param({"measured": {"speeds": [SPEED], "wires": []}},
                     {"measured": {"speeds": [{**SPEED, "gb_s": 100.0}], "wires": []}},
                     "measured host-1 0, GB/s: 200 → 100", id="what was measured of a device"),
    ],
)  # fmt: skip
def test_what_differs_is_named(one: dict[str, Any], two: dict[str, Any], said: str) -> None:
    found = differing(bench(about=about(**one)), bench(about=about(**two)))
    assert found == (said,)


def test_the_clocks_of_a_gpu() -> None:
    assert differing(clocked(bench(), 1980), clocked(bench(), 1000)) == (
        "clock of GPU 0: 1980 MHz → 1000 MHz",
    )
    assert differing(clocked(bench(), 1980), clocked(bench(), 1950)) == ()


def test_another_kind_of_host_is_told_by_what_speed_hangs_on() -> None:
    one, two = about(hosts=[host("spark")]), about(hosts=[host("rtx-4090", "22")])
    found = differing(bench(about=one), bench(about=two))
    assert any(each.startswith("host, GPUs: NVIDIA GB10 → ") for each in found)
    assert any(each.startswith("host, memory: ") for each in found)


def test_seeds_and_names_are_no_difference() -> None:
    one = bench("a")
    two = replace(bench("b"), when="2027-01-01T00:00:00+00:00", load=replace(one.load, seed=99, repeats=5))
    assert differing(one, two) == ()


def test_a_server_of_which_nothing_is_known() -> None:
    assert "layout: alone on host-1 → not set" in differing(bench(), bench(about=about(plan=None)))
