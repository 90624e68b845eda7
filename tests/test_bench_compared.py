"""Two benches: their ratios, and when a difference is none."""

from dataclasses import replace

import pytest

from medley.bench.compared import compared, lines
from medley.bench.load import Load
from medley.problem import Problem
from tests.benches import about, bench


def verdicts(first: tuple[float, ...], second: tuple[float, ...]) -> dict[str, str]:
    found = compared(bench(factors=first), bench(factors=second))
    return {each.measure.name: each.verdict for each in found if each.concurrency == 4}


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
    found = verdicts(first, second)
    assert (found["output_tokens_per_s"], found["tpot_ms"]) == (rate, time)


def test_the_ratio_is_of_medians_with_what_the_runs_allow() -> None:
    found = next(iter(compared(bench(factors=(1, 0.9, 1.1)), bench(factors=(2, 1.9, 2.2)))))
    assert found.measure.name == "output_tokens_per_s"
    assert found.ratio == pytest.approx(2)
    assert (found.low, found.high) == pytest.approx((1.9 / 1.1, 2.2 / 0.9))


def test_of_single_runs_no_spread_is_known() -> None:
    load = Load((1, 4), repeats=1, input_tokens=32, output_tokens=16, requests=8)
    one, two = bench(load=load, factors=(1,)), bench(load=load, factors=(9,))
    assert {each.verdict for each in compared(one, two)} == {"spread unknown"}


def test_nothing_in_common() -> None:
    other = bench(load=Load((2,), 1, 32, 16, requests=8), factors=(1,))
    with pytest.raises(Problem, match="nothing in common") as raised:
        compared(bench(), other)
    assert raised.value.fix == "medley bench --concurrency 1,4"


def test_as_people_read_it() -> None:
    one, two = (
        bench("first"),
        bench("second", factors=(1.2, 1.18, 1.25), about=about(medley={"version": "2", "source": "b"})),
    )
    said = "\n".join(lines(one, two, compared(one, two)))
    assert "differs: medley: 0.1 (aa) → 2 (b)" in said
    assert "  output, tokens/s             387 → 464.4  1.20 (1.15-1.28)  better" in said


def test_another_load_is_said_first() -> None:
    one = bench()
    two = replace(one, load=replace(one.load, input_tokens=64))
    said = list(lines(one, two, compared(one, two)))
    assert said[3] == "differs: tokens in: 32 → 64"
    assert "their loads differ, so their figures measure different things" in said


def test_a_bench_compared_with_itself_differs_in_nothing() -> None:
    said = list(lines(bench(), bench(), compared(bench(), bench())))
    assert "differs: nothing that is known" in said
    assert all(line.endswith("within the spread") for line in said if line.startswith("  "))
