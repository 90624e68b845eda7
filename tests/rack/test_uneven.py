"""A model over two hosts of which one is slow: the plan learns it by measuring, and cuts the layers so."""

import json
import statistics
from pathlib import Path

import pytest

from tests.rack.cluster import medley
from tests.rack.uneven import EQUAL, uneven

pytestmark = pytest.mark.rack


@pytest.mark.slow
def test_the_planned_split_is_faster_than_the_equal_one(tmp_path: Path) -> None:
    with uneven(tmp_path) as hosts:
        planned = hosts.planned()
        first, second = map(int, planned.split(","))
        assert first > second, planned
        with hosts.serving(EQUAL, forced=True):
            equal = statistics.median(hosts.tokens_per_s(3))
        with hosts.serving(planned, forced=False):
            faster = statistics.median(hosts.tokens_per_s(3))
            assert faster > 1.2 * equal, (planned, faster, equal)
            tested = medley(hosts.rack.hosts[0], "collective-test", "--only", "speed", "--json")
            assert tested.status == 0, tested.lines
            found = json.loads(next(line for line in tested.lines if line.startswith("{")))
            assert len(found["busy"]) == 2, "who serves is not measured"
