"""`medley bench` of a model over two hosts says what the engine's own benchmark says when typed by hand."""

import os

import pytest

from tests.rack.bench_pairs import benched

pytestmark = [pytest.mark.rack, pytest.mark.slow]


def test_its_median_lies_within_the_spread_of_five_runs_by_hand() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes namespaces and mounts")
    with benched() as served:
        found = served.pairs(5)
    assert found.within, found
