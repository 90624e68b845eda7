"""A bench as people read it."""

import re

from medley.measurement.bench.load import BenchLoad
from medley.measurement.bench.report import format_number, format_record
from tests.measurement.bench.benches import bench


def test_a_column_for_each_concurrency_and_the_prediction_below() -> None:
    lines = list(format_record(bench()))
    assert lines[0] == "20261122-134510-demo-ab12: demo, vllm 0.32.0"
    assert lines[1] == "alone on host-1"
    text = "\n".join(lines)
    assert re.search(r"output, tokens/s +194 ±3% +387 ±3%", text)
    assert re.search(r"predicted, tokens/s +300 +1200", text)
    assert re.search(r"measured/predicted +0.65 +0.32", text)
    assert "predicted bound at 1, 4: the wire" in text
    assert all(len(line) <= 80 for line in lines)


def test_many_concurrencies_go_on_below() -> None:
    load = BenchLoad((1, 2, 4, 8, 16, 32), 3, 32, 16, requests=8)
    lines = list(format_record(bench(load=load)))
    assert sum("output, tokens/s" in line for line in lines) == 2
    assert all(len(line) <= 80 for line in lines)


def test_what_is_not_whole_says_so() -> None:
    record = bench()
    text = "\n".join(format_record(record.replace(whole=False, done=record.done[:3], expected={})))
    assert "it was stopped after 2 of its runs" in text
    assert "predicted" not in text


def test_failed_requests_are_said() -> None:
    record = bench()
    first, *rest_of_results = record.done[1:]
    failed = first.replace(figures=first.figures.replace(failed=3))
    assert "3 requests failed" in list(format_record(record.replace(done=(failed, *rest_of_results))))


def test_numbers_have_three_digits() -> None:
    assert [format_number(value) for value in (0.0123, 1.234, 12.34, 123.4, 12345.6)] == [
        "0.0123",
        "1.23",
        "12.3",
        "123",
        "12346",
    ]
