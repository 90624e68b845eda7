"""A bench as people read it."""

import re
from dataclasses import replace

from medley.measurement.bench import BenchLoad
from medley.measurement.bench.report import lines, number
from tests.measurement.bench.benches import bench


def test_a_column_for_each_concurrency_and_the_prediction_below() -> None:
    said = list(lines(bench()))
    assert said[0] == "20261122-134510-demo-ab12: demo, vllm 0.32.0"
    assert said[1] == "alone on host-1"
    text = "\n".join(said)
    assert re.search(r"output, tokens/s +194 ±3% +387 ±3%", text)
    assert re.search(r"predicted, tokens/s +300 +1200", text)
    assert re.search(r"measured/predicted +0.65 +0.32", text)
    assert "predicted bound at 1, 4: the wire" in text
    assert all(len(line) <= 80 for line in said)


def test_many_concurrencies_go_on_below() -> None:
    load = BenchLoad((1, 2, 4, 8, 16, 32), 3, 32, 16, requests=8)
    said = list(lines(bench(load=load)))
    assert sum("output, tokens/s" in line for line in said) == 2
    assert all(len(line) <= 80 for line in said)


def test_what_is_not_whole_says_so() -> None:
    made = bench()
    said = "\n".join(lines(replace(made, whole=False, done=made.done[:3], expected={})))
    assert "it was stopped after 2 of its runs" in said
    assert "predicted" not in said


def test_failed_requests_are_said() -> None:
    made = bench()
    first, *others = made.done[1:]
    failed = replace(first, figures=replace(first.figures, failed=3))
    assert "3 requests failed" in list(lines(replace(made, done=(failed, *others))))


def test_numbers_have_three_digits() -> None:
    assert [number(each) for each in (0.0123, 1.234, 12.34, 123.4, 12345.6)] == [
        "0.0123",
        "1.23",
        "12.3",
        "123",
        "12346",
    ]
