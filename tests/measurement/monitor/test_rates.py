"""Rates by hand, and what becomes of counters that begin anew."""

import pytest

from medley.measurement.monitor.rates import Rates, compute_growth, compute_rates
from medley.measurement.monitor.sample import EngineSample, LinkSample, Sample
from tests.measurement.monitor.hosts import COUNTERS, FIGURES, later, spark


def between(first: Sample, second: Sample) -> Rates:
    return compute_rates(first, first, second)


def test_a_sample_goes_through_json() -> None:
    sample = later(spark())
    assert Sample.from_json(sample.to_json()) == sample


def test_rates_by_hand() -> None:
    rates = between(spark(), later(spark()))
    assert (rates.seconds, rates.cpu_busy) == (2.0, 0.5)
    wire, quiet = rates.links
    assert (wire.in_bytes_per_s, wire.out_bytes_per_s) == (1e9, 2.5e8)
    assert (wire.bad, quiet.bad, quiet.in_bytes_per_s) == ({"rx_dropped": 3}, {}, 0)
    (port,) = rates.ports
    assert (port.in_bytes_per_s, port.bad) == (5e9, {"symbol_error": 7})
    (served,) = rates.engines
    assert (served.running, served.waiting, served.kv_cache) == (3, 1, 0.45)
    assert (served.generated_tokens_per_s, served.prompt_tokens_per_s) == (100, 500)
    assert served.first_token_s == pytest.approx(0.35)


def test_errors_are_counted_since_we_look() -> None:
    first, previous, last = spark(), later(spark()), later(later(spark()))
    rates = compute_rates(first, previous, last)
    assert rates.links[0].bad == {"rx_dropped": 3}
    assert rates.links[0].in_bytes_per_s == 0


def test_where_no_first_token_came_since_it_is_that_of_all_since_we_look() -> None:
    first, last = spark(), later(spark())
    assert compute_rates(first, last, last).engines[0].first_token_s == pytest.approx(0.35)
    assert compute_rates(first, first, first).engines[0].first_token_s is None


def test_a_server_that_was_started_anew_counts_from_zero() -> None:
    again = spark().replace(at_s=101, engines=(engine({**FIGURES, "generated_tokens_total": 50}),))
    assert between(spark(), again).engines[0].generated_tokens_per_s == 50
    new = spark().replace(at_s=101, engines=(engine(FIGURES, "http://127.0.0.1:9000/v1"),))
    assert between(spark(), new).engines[0].generated_tokens_per_s == 0


def test_what_it_does_not_tell_is_none() -> None:
    bare = spark().replace(at_s=101, engines=(engine({}),))
    served = between(spark(), bare).engines[0]
    assert (served.running, served.generated_tokens_per_s, served.first_token_s, served.preempted) == (
        None,
    ) * 4


def test_a_new_link_of_an_old_name_has_no_rate() -> None:
    second = spark().replace(at_s=101, links=(LinkSample("enp1s0f0np0", 9, {**COUNTERS, "rx_bytes": 10**9}),))
    assert between(spark(), second).links[0].in_bytes_per_s == 0


def test_no_time_is_no_division_by_zero() -> None:
    assert between(spark(), spark()).cpu_busy == 0


def engine(figures: dict[str, float], url: str = "http://127.0.0.1:8000/v1") -> EngineSample:
    return EngineSample("gpt-oss-120b", url, "ready", figures)


@pytest.mark.parametrize(
    ("start", "count", "expected"),
    [
        pytest.param(10, 10, 0, id="still"),
        pytest.param(10, 15, 5, id="grown"),
        pytest.param((1 << 32) - 6, 4, 10, id="32 bits wrapped"),
        pytest.param((1 << 64) - 6, 4, 10, id="64 bits wrapped"),
        pytest.param(3 << 30, 1 << 32, 1 << 30, id="past 32 bits, so it has more"),
        pytest.param(1 << 20, 100, 100, id="begun anew"),
        pytest.param(1 << 40, 100, 100, id="begun anew, with 64 bits"),
    ],
)
def test_growth(start: int, count: int, expected: int) -> None:
    assert compute_growth(start, count) == expected
