"""Wait for an event in a test, and show the state where it does not come."""

import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

LIMIT_S = 30.0
_LEAST_REST_S = 0.01
STATE_CHARACTERS = 4000

T = TypeVar("T")


def wait_for(
    description: str,
    condition: Callable[[], T | None],
    limit_s: float = LIMIT_S,
    *,
    state: Callable[[], object] | None = None,
) -> T:
    """Return the first result of `condition` that is true; after `limit_s`, fail with `description`.

    The message ends with the value of `state`, of which lines and long text keep their end.
    """
    results: list[T] = []

    def is_true() -> bool:
        found = condition()
        if found:
            results.append(found)
        return bool(found)

    if becomes_true(is_true, limit_s):
        return results[0]
    shown = "" if state is None else f"; state: {_shown(state)}"
    raise AssertionError(f"did not become true within {limit_s:g} s: {description}{shown}")


def becomes_true(condition: Callable[[], object], limit_s: float) -> bool:
    """Return whether `condition` becomes true within `limit_s`, where either answer is a result.

    It rests between two looks for as long as a look takes, because the program that it waits for needs the
    processors too. The last look begins after the limit, so a test that gets no processor misses nothing.
    """
    deadline = time.monotonic() + limit_s
    while True:
        began = time.monotonic()
        if condition():
            return True
        if began >= deadline:
            return False
        time.sleep(max(_LEAST_REST_S, time.monotonic() - began))


class NewThreads:
    """The threads that begin after this object is made; a thread of an earlier test may end meanwhile."""

    def __init__(self) -> None:
        self._before = set(threading.enumerate())

    def alive(self) -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread not in self._before]

    def wait_until_ended(self, limit_s: float = LIMIT_S) -> None:
        wait_for("the new threads end", lambda: not self.alive(), limit_s, state=self.alive)


def _shown(state: Callable[[], object]) -> str:
    try:
        value = state()
    except Exception as error:  # noqa: BLE001 - the wait has failed, and its message must not be lost
        return f"unknown, because of {error!r}"
    text = _lines(value)
    return text if len(text) <= STATE_CHARACTERS else f"…{text[-STATE_CHARACTERS:]}"


def _lines(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Iterable) and not isinstance(value, dict | bytes):
        each = list(value)
        if each and all(isinstance(line, str) for line in each):
            return "\n".join(each)
        return repr(each)
    return repr(value)
