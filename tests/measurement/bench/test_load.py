"""Engines' result files, and the spread of several runs."""

import json

import pytest

from medley.measurement.bench.figures import Figures, Spread, compute_spreads, read_result
from medley.measurement.bench.load import BenchLoad, parse_concurrencies
from tests.measurement.bench.benches import FILES
from tests.problems import raises_problem


def test_lists_tables_and_infinity_are_left_out() -> None:
    result = read_result(FILES["vllm"].read_text())
    assert "latencies" not in result
    assert result["output_throughput"] == pytest.approx(387.02, abs=0.01)
    json.dumps(result, allow_nan=False)


def test_sglangs_configuration_with_its_key_is_left_out() -> None:
    text = FILES["sglang"].read_text()
    assert "sk-recorded-key" in text  # SGLang really writes it there
    result = read_result(text)
    assert "sk-recorded-key" not in str(result)
    assert result["total_throughput"] == pytest.approx(714.03, abs=0.01)
    json.dumps(result, allow_nan=False)


def test_of_several_lines_the_last_counts() -> None:
    assert read_result('{"duration": 1}\n{"duration": 2}\n') == {"duration": 2}


@pytest.mark.parametrize("text", ["", "\n", "not JSON", "[1]", '{"duration": 1', "{} {}"])
def test_what_is_no_result(text: str) -> None:
    assert read_result(text) == {}


def test_a_spread_is_the_median_and_the_farthest() -> None:
    runs = [Figures(1, 8, 0, tpot_ms=value) for value in (3, None, 1, 2)]
    assert compute_spreads(runs) == {"tpot_ms": Spread(2, 1, 3)}
    assert Spread(100, 97, 101).relative_half_range == pytest.approx(0.03)
    assert Spread(0, 0, 0).relative_half_range == 0


def test_only_what_was_measured_has_a_spread() -> None:
    spread_by_measure = compute_spreads([Figures(1, 8, 0, tpot_ms=5), Figures(1, 8, 0, tpot_ms=7)])
    assert spread_by_measure == {"tpot_ms": Spread(6, 5, 7)}


def test_each_repeat_has_every_concurrency_after_one_warm_up() -> None:
    runs = list(BenchLoad((1, 4), repeats=2, seed=5).list_runs())
    assert [(run.repeat, run.concurrency) for run in runs] == [(0, 4), (1, 1), (1, 4), (2, 1), (2, 4)]
    assert [run.requests for run in runs] == [4, 8, 16, 8, 16]


def test_no_two_runs_have_the_same_prompts() -> None:
    seeds = [run.seed for run in BenchLoad((1, 4, 16), repeats=3, seed=5).list_runs()]
    assert seeds == list(range(5, 15))


def test_requests_are_as_asked() -> None:
    assert {run.requests for run in BenchLoad((1, 4), requests=2).list_runs() if run.repeat} == {2}


def test_a_list_of_concurrencies() -> None:
    assert parse_concurrencies("16,1,4,4") == (1, 4, 16)


@pytest.mark.parametrize("text", ["", "0", "1,", "4097", "x", "-1", "1.5"])
def test_what_is_no_list_of_concurrencies(text: str) -> None:
    with raises_problem(f"--concurrency {text} ", cause=" 4096", fix="--concurrency 1,4,16"):
        parse_concurrencies(text)


def test_without_a_server_a_batch_is_repeated_in_one_start_and_a_heap_in_many() -> None:
    load = BenchLoad((1, 4), repeats=3, seed=5)
    assert [(run.concurrency, run.requests) for run in load.list_latency_runs()] == [(1, 3), (4, 3)]
    assert [(run.concurrency, run.requests, run.repeat) for run in load.list_throughput_runs()] == [
        (4, 16, 1),
        (4, 16, 2),
        (4, 16, 3),
    ]
    assert len({run.seed for run in load.list_throughput_runs()}) == 3
