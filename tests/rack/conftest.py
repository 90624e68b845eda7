import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cache

import pytest

from medley.schema import EngineName
from tests.rack.matrix import Cell, Matrix
from tests.rack.rack import Rack, up
from tests.rack.spec import Spec
from tests.rack.tokens import CLEAR_NATS, Answer

Up = Callable[[Spec | int], Rack]
Alone = Callable[[EngineName], Answer]


@pytest.fixture
def rack() -> Iterator[Up]:
    """Brings racks up, as many as a test wants; all are down when it ends."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes namespaces and mounts")
    with ExitStack() as stack:
        yield lambda spec: stack.enter_context(up(_named(spec)))


@pytest.fixture(scope="session")
def alone() -> Alone:
    """What each engine answers on one host, in float32: it is started once, for every test that compares."""

    @cache
    def answer(engine: EngineName) -> Answer:
        with up(_named(1)) as rack:
            found, _ = Matrix(rack).answer(Cell(engine, "solo"))
        assert found.margin > CLEAR_NATS, "else rounding could decide, and equal tokens would say little"
        return found

    return answer


def _named(spec: Spec | int) -> Spec:
    """`ls` shows whose it is, and the racks that somebody plays with keep their names."""
    return replace(Spec(spec) if isinstance(spec, int) else spec, name=f"pytest-{os.getpid()}")
