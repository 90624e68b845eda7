"""Ending is to ask processes to end, and then to insist."""

import contextlib
import os
import signal
import time
from collections.abc import Collection

from medley.process_identity import Identity


def end(processes: Collection[Identity], grace_s: float) -> None:
    """Ask processes to end, and after `grace_s` seconds insist."""
    for each in processes:
        each.signal(signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while any(each.alive for each in processes) and time.monotonic() < deadline:
        time.sleep(0.05)
    insist(processes)


def insist(family: Collection[Identity], limit_s: float = 3) -> None:
    """Kill what is left of a family, and wait until it is gone."""
    deadline = time.monotonic() + limit_s
    while (left := [each for each in family if each.alive]) and time.monotonic() < deadline:
        for each in left:
            each.signal(signal.SIGKILL)
        _reap(left)
        time.sleep(0.05)
    # Also those that ended by themselves: a zombie keeps the namespace it is in from going.
    _reap(family)


def _reap(processes: Collection[Identity]) -> None:
    for each in processes:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(each.pid, os.WNOHANG)
