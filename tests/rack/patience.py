"""Waiting for what will come true, but not for ever."""

import time
from collections.abc import Callable


def within(limit_s: float, question: Callable[[], bool]) -> bool:
    """Ask until the answer is yes; no, if it is not in time.

    Between two questions lies as long as one takes: who is waited for needs the processors too.
    """
    began = time.monotonic()
    deadline = began + limit_s
    while not (answer := question()) and time.monotonic() < deadline:
        time.sleep(max(0.01, time.monotonic() - began))
        began = time.monotonic()
    return answer
