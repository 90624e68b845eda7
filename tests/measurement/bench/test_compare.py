"""Two benches: their ratios, and when a difference is none."""

from pathlib import Path
from typing import Any

import pytest

from medley.measurement.bench.compare import compare_records, format_comparison, list_differences
from medley.measurement.bench.load import BenchLoad
from medley.measurement.bench.record import Record
from tests.measurement.bench.benches import about, bench
from tests.problems import raises_problem


def verdicts(first: tuple[float, ...], second: tuple[float, ...]) -> dict[str, str]:
    comparisons = compare_records(bench(factors=first), bench(factors=second))
    return {
        comparison.figure_kind.name: comparison.verdict
        for comparison in comparisons
        if comparison.row[1] == 4
    }


@pytest.mark.parametrize(
    ("first", "second", "rate", "time"),
    [
        pytest.param((1, 0.98, 1.03), (1.2, 1.18, 1.25), "better", "better", id="every run beyond"),
        pytest.param((1, 0.98, 1.03), (0.8, 0.78, 0.83), "worse", "worse", id="every run below"),
        pytest.param(
            (1, 0.98, 1.03), (1.1, 1.02, 1.2), "within the spread", "within the spread", id="one among"
        ),
        pytest.param((1, 1, 1), (1, 1, 1), "within the spread", "within the spread", id="the same"),
        pytest.param((1, 1, 1), (1.0001, 1.0001, 1.0001), "better", "better", id="a little, and always"),
    ],
)
def test_a_difference_is_one_where_no_run_lies_among_the_others(
    first: tuple[float, ...], second: tuple[float, ...], rate: str, time: str
) -> None:
    verdict_by_measure = verdicts(first, second)
    assert (verdict_by_measure["output_tokens_per_s"], verdict_by_measure["tpot_ms"]) == (rate, time)


def test_the_ratio_is_of_medians_with_what_the_runs_allow() -> None:
    comparison = next(iter(compare_records(bench(factors=(1, 0.9, 1.1)), bench(factors=(2, 1.9, 2.2)))))
    assert comparison.figure_kind.name == "output_tokens_per_s"
    assert comparison.ratio == pytest.approx(2)
    assert (comparison.low, comparison.high) == pytest.approx((1.9 / 1.1, 2.2 / 0.9))


def test_of_single_runs_no_spread_is_known() -> None:
    load = BenchLoad((1, 4), repeats=1, input_tokens=32, output_tokens=16, requests=8)
    first, second = bench(load=load, factors=(1,)), bench(load=load, factors=(9,))
    assert {comparison.verdict for comparison in compare_records(first, second)} == {"spread unknown"}


def test_nothing_in_common() -> None:
    second = bench(load=BenchLoad((2,), 1, 32, 16, requests=8), factors=(1,))
    with raises_problem(
        cause=("served at 1, served at 4; ", "served at 2"), fix="medley bench --concurrency 1,4"
    ):
        compare_records(bench(), second)


def test_as_people_read_it() -> None:
    first, second = (
        bench("first"),
        bench("second", factors=(1.2, 1.18, 1.25), about=about(medley={"version": "2", "source": "b"})),
    )
    text = "\n".join(format_comparison(first, second, compare_records(first, second)))
    assert "differs: medley: 0.1 (aa) → 2 (b)" in text
    assert "  output, tokens/s             387 → 464.4  1.20 (1.15-1.28)  better" in text


def test_another_load_is_said_first() -> None:
    first = bench()
    second = first.replace(load=first.load.replace(input_tokens=64))
    lines = list(format_comparison(first, second, compare_records(first, second)))
    assert lines[3] == "differs: tokens in: 32 → 64"
    assert "their loads differ, so their figures measure different things" in lines


def test_a_bench_compared_with_itself_differs_in_nothing() -> None:
    lines = list(format_comparison(bench(), bench(), compare_records(bench(), bench())))
    assert "differs: nothing that is known" in lines
    assert all(line.endswith("within the spread") for line in lines if line.startswith("  "))


HOSTS = Path(__file__).parents[2] / "host" / "recorded"
ENGINE = about()["engine"]


def host(name: str, same: str = "11") -> dict[str, str]:
    return {"name": "host-1", "same": same, "facts": (HOSTS / f"{name}.txt").read_text()}


def plan(*argv: str, **fields: Any) -> dict[str, Any]:
    return {**about()["plan"], "argv": ["/env/bin/vllm", "serve", "/m", *argv], **fields}


def clocked(record: Record, mhz: int) -> Record:
    line = f"0, {mhz} MHz, 2619 MHz, 1980 MHz, 250.00 W, 45"
    return record.replace(done=tuple(result.replace(clocks=(line,)) for result in record.done))


SPEED = {"host": "host-1", "index": 0, "gb_s": 200.0}


@pytest.mark.parametrize(
    ("first", "second", "difference"),
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
def test_what_differs_is_named(first: dict[str, Any], second: dict[str, Any], difference: str) -> None:
    differences = list_differences(bench(about=about(**first)), bench(about=about(**second)))
    assert differences == (difference,)


def test_the_clocks_of_a_gpu() -> None:
    assert list_differences(clocked(bench(), 1980), clocked(bench(), 1000)) == (
        "clock of GPU 0: 1980 MHz → 1000 MHz",
    )
    assert list_differences(clocked(bench(), 1980), clocked(bench(), 1950)) == ()


def test_another_kind_of_host_is_told_by_what_speed_hangs_on() -> None:
    first, second = about(hosts=[host("spark")]), about(hosts=[host("rtx-4090", "22")])
    differences = list_differences(bench(about=first), bench(about=second))
    assert any(difference.startswith("host, GPUs: NVIDIA GB10 → ") for difference in differences)
    assert any(difference.startswith("host, memory: ") for difference in differences)


def test_seeds_and_names_are_no_difference() -> None:
    first = bench("a")
    second = bench("b").replace(when="2027-01-01T00:00:00+00:00", load=first.load.replace(seed=99, repeats=5))
    assert list_differences(first, second) == ()


def test_a_server_of_which_nothing_is_known() -> None:
    assert "layout: alone on host-1 → not set" in list_differences(bench(), bench(about=about(plan=None)))
