"""A model over two hosts of which one is slow: the plan learns it by measuring, and cuts the layers so."""

import statistics
from pathlib import Path

import pytest

from tests.rack.uneven import EQUAL, uneven

pytestmark = pytest.mark.rack


def test_the_planned_split_is_faster_than_the_equal_one(tmp_path: Path) -> None:
    with uneven(tmp_path) as hosts:
        planned = hosts.planned()
        first, second = map(int, planned.split(","))
        assert first > second, planned
        rates = {
            split: statistics.median(hosts.tokens_per_s(split, 3, forced=split != planned))
            for split in (EQUAL, planned)
        }
        assert rates[planned] > 1.2 * rates[EQUAL], rates
