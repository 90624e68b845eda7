"""Time limits of tests: a hung test fails with the stacks of all threads, and the others go on.

pytest-timeout starts and cancels the timers; pyproject.toml has the limit of plain tests. Its own timer fires
once, and prints the other threads to a terminal, which a worker of pytest-xdist does not have. This one
repeats, because a clean-up can hang too, and puts the stacks into the failure.
"""

import signal
import sys
import threading
import traceback
from collections.abc import Generator, Iterator
from typing import Protocol

import pytest
import pytest_timeout

# An engine may take ten minutes to start. Tests of it have limits of their own, whose messages say more.
LIMITS_S = {"slow": 3600, "rack": 900, "engine": 900, "nix": 900}
AGAIN_S = 60
"""How long clean-up may take after the limit until it is interrupted too."""

_LIMIT = pytest.StashKey[float]()


class Settings(Protocol):
    timeout: float
    method: str
    disable_debugger_detection: bool | None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give marked tests their limits, unless --timeout or a mark of the test itself names another."""
    if config.getoption("timeout") is not None:
        return
    for item in items:
        limits = [limit_s for name, limit_s in LIMITS_S.items() if item.get_closest_marker(name)]
        if limits and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(max(limits)))


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Settings) -> bool | None:
    if settings.method != "signal":
        return None

    def expired(*_: object) -> None:
        __tracebackhide__ = True
        if settings.disable_debugger_detection or not pytest_timeout.is_debugging():
            pytest.fail("\n".join([f"Timeout: it took more than {settings.timeout:g} s", *stacks()]))

    signal.signal(signal.SIGALRM, expired)
    item.stash[_LIMIT] = settings.timeout
    _start(item)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> bool | None:
    if _LIMIT not in item.stash:
        return None
    signal.setitimer(signal.ITIMER_REAL, 0)
    return True


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Limit the teardown too: pytest-timeout cancels the timer of a test that failed."""
    if _LIMIT in item.stash:
        _start(item)
    return (yield)


def _start(item: pytest.Item) -> None:
    signal.setitimer(signal.ITIMER_REAL, item.stash[_LIMIT], AGAIN_S)


def stacks() -> Iterator[str]:
    """The stacks of all threads but this one, whose stack is the failure's traceback."""
    frames = sys._current_frames()  # noqa: SLF001 # documented, and the only way
    for thread in threading.enumerate():
        if thread.ident in frames and thread is not threading.current_thread():
            yield f"Stack of {thread.name}:"
            yield from traceback.format_stack(frames[thread.ident])
