"""Ending is to ask processes to end, and then to insist."""

import contextlib
import os
import signal
import time

from medley.family import alive


def end(pids: set[int], grace_s: float) -> None:
    """Ask processes to end, and after `grace_s` seconds insist."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    insist(pids)


def insist(family: set[int], limit_s: float = 3) -> None:
    """Kill what is left of a family, and wait until it is gone."""
    deadline = time.monotonic() + limit_s
    while (left := {pid for pid in family if alive(pid)}) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _reap(left)
        time.sleep(0.05)
    # Also those that ended by themselves: a zombie keeps the namespace it is in from going.
    _reap(family)


def _reap(pids: set[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
