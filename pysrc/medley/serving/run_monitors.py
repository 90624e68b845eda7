"""Check a running engine from outside, several times a second."""

from collections.abc import Sequence
from typing import Protocol

CHECK_INTERVAL_S = 0.1


class Monitor(Protocol):
    """A check that may end a running engine."""

    def check(self) -> None:
        """Raise a Problem if the engine must end; called several times a second."""


def check_all(monitors: Sequence[Monitor]) -> None:
    for monitor in monitors:
        monitor.check()
