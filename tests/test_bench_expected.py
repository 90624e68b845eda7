"""The prediction in the terms that a benchmark measures."""

import pytest

from medley.bench.expected import asked, expected, of_prediction
from medley.bench.load import Load
from medley.layout.shapes import Layout, Stage
from medley.predict import Prediction, predict
from tests.layouts import QWEN_72B, spark

LOAD = Load((1, 4), input_tokens=1000, output_tokens=100)
TOLD = Prediction(0.5, 200.0, 50.0, 150.0, 260.0, "the wire", (0.02,), 4000.0)
"""Four streams of 50 tokens a second, and 4000 tokens of prompts."""


def test_the_time_of_the_prompts_is_counted() -> None:
    """Four prompts are read in a second, and four answers written in two."""
    found = of_prediction(TOLD, LOAD, 4)
    assert found.output_tokens_per_s == pytest.approx(400 / 3)
    assert (found.low, found.high) == pytest.approx((100.0, 400 / 3 * 1.3))
    assert found.tpot_ms == pytest.approx(20)
    assert found.bound == "the wire"


def test_the_first_token_is_known_of_one_stream_alone() -> None:
    assert of_prediction(TOLD, LOAD, 1).ttft_ms == 500
    assert of_prediction(TOLD, LOAD, 4).ttft_ms is None


def test_half_an_answer_stands_behind_a_stream_on_average() -> None:
    found = asked(LOAD, 4)
    assert (found.concurrency, found.prompt_tokens, found.context_tokens) == (4, 1000, 1050)


def test_more_streams_are_more_tokens_and_never_as_many_as_without_prompts() -> None:
    layout = Layout((Stage((spark(),), QWEN_72B.layers),))
    rates = [expected(QWEN_72B, layout, LOAD, many).output_tokens_per_s for many in (1, 4, 16)]
    assert rates == sorted(rates)
    assert rates[2] < predict(QWEN_72B, layout, asked(LOAD, 16)).tokens_per_s
