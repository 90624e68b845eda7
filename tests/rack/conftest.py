import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from tests.rack.rack import Rack, up
from tests.rack.spec import Spec

Up = Callable[[Spec | int], Rack]


@pytest.fixture
def rack() -> Iterator[Up]:
    """Brings racks up, as many as a test wants; all are down when it ends."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes namespaces and mounts")
    with ExitStack() as stack:
        yield lambda spec: stack.enter_context(up(_named(spec)))


def _named(spec: Spec | int) -> Spec:
    """`ls` shows whose it is, and the racks that somebody plays with keep their names."""
    return replace(Spec(spec) if isinstance(spec, int) else spec, name=f"pytest-{os.getpid()}")
