"""Waiting for what will come true, but not for ever."""

import time
from collections.abc import Callable


def within(limit_s: float, question: Callable[[], bool]) -> bool:
    """Ask until the answer is yes; no, if it is not in time."""
    deadline = time.monotonic() + limit_s
    while not (answer := question()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return answer
