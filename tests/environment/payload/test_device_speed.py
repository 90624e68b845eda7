"""The arithmetic of a measurement; the measuring itself is tests/engine's and the rack's."""

import pytest

from medley.environment.payload import device_speed


def test_rates_by_hand() -> None:
    """4096² weights of 2 bytes in 2 ms: 33.6 MB, 16.8 GB/s; 8 and 256 tokens do 268 and 8590 million each."""
    found = device_speed.compute_rates({"side": 4096}, {1: 0.002, 8: 0.002, 256: 0.01})
    assert found["gb_s"] == pytest.approx(16.78, rel=1e-3)
    assert found["few_tflops"] == pytest.approx(0.1342, rel=1e-3)
    assert found["tflops"] == pytest.approx(0.859, rel=1e-3)


def test_what_is_read_is_larger_than_a_cache_and_fits_anywhere() -> None:
    for device, side in device_speed.MATRIX_SIDES.items():
        size = 2 * side * side * device_speed.MATRIX_COUNTS[device]
        assert 256 << 20 <= size <= 1 << 30


def test_two_seconds_of_it_see_a_quota() -> None:
    (first, run_s), *_ = device_speed.RUNS_TOKENS_S
    assert first == 1
    assert run_s >= 2
    assert sum(run_s for _, run_s in device_speed.RUNS_TOKENS_S) < 10
