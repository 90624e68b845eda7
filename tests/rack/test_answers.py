"""A real model's answers over hosts are those of transformers, by every launcher and with every option."""

import pytest

from tests.rack.answers import CASES, HOSTS, rows
from tests.rack.conftest import Up

pytestmark = [pytest.mark.rack, pytest.mark.slow]


def test_each_way_to_serve_answers_as_transformers_does(rack: Up) -> None:
    for row, case in zip(rows(rack(HOSTS), CASES, 2), CASES, strict=True):
        assert bool(row.why_not) == bool(case.refusal), (row.name, row.why_not)
        assert case.refusal in row.why_not, row.name
        assert row.faults == (), row.name
        assert row.equal == row.answers or case.option.may_differ, (row.name, row.differences)
