"""What is read of an engine's result file, and what several runs come to."""

import json

import pytest

from medley.bench.figures import Figures, Spread, of_table, raw, spread, spreads
from tests.benches import FILES


def test_lists_tables_and_infinity_are_left_out() -> None:
    found = raw(FILES["vllm"].read_text())
    assert "latencies" not in found
    assert found["output_throughput"] == pytest.approx(387.02, abs=0.01)
    json.dumps(found, allow_nan=False)


def test_sglangs_configuration_with_its_key_is_left_out() -> None:
    text = FILES["sglang"].read_text()
    assert "sk-recorded-key" in text  # SGLang really writes it there
    found = raw(text)
    assert "sk-recorded-key" not in str(found)
    assert found["total_throughput"] == pytest.approx(714.03, abs=0.01)
    json.dumps(found, allow_nan=False)


def test_of_several_lines_the_last_counts() -> None:
    assert raw('{"duration": 1}\n{"duration": 2}\n') == {"duration": 2}


@pytest.mark.parametrize("text", ["", "\n", "not JSON", "[1]", '{"duration": 1', "{} {}"])
def test_what_is_no_result(text: str) -> None:
    assert raw(text) == {}


def test_a_spread_is_the_median_and_the_farthest() -> None:
    assert spread([3, None, 1, 2]) == Spread(2, 1, 3)
    assert spread([None]) is None
    assert Spread(100, 97, 101).half == pytest.approx(0.03)
    assert Spread(0, 0, 0).half == 0


def test_only_what_was_measured_has_a_spread() -> None:
    found = spreads([Figures(1, 8, 0, tpot_ms=5), Figures(1, 8, 0, tpot_ms=7)])
    assert found == {"tpot_ms": Spread(6, 5, 7)}


def test_figures_go_through_a_record() -> None:
    figures = Figures(1.5, 8, 0, output_tokens_per_s=9)
    assert of_table(json.loads(json.dumps(figures.__dict__))) == figures
