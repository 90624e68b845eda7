"""vLLM's Ray executor puts ranks where medley planned them, on clusters of declared GPUs."""

import os

import pytest

from tests.rack.placement import Case, environment, placed

pytestmark = pytest.mark.rack


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Case((("rtx", 1),) * 3, 1, 3), id="a pipeline of three hosts"),
        pytest.param(Case((("rtx", 2),) * 2, 2, 2), id="two stages of two GPUs"),
    ],
)
def test_ranks_are_where_they_were_planned(case: Case) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes namespaces and mounts")
    found = placed(case, environment(), name=f"pytest-{os.getpid()}")
    assert len(found.planned) == case.tensor * case.stages
    assert found.seen == found.planned
    assert found.refusal is None
