"""End: everything of medley's that runs on this host, and the files that it needed."""

import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from medley import machine, membership, serving, store, token, units
from medley.family import alive

_SERVERS_LIMIT_S = 40


def run(asked: Mapping[str, Any], note: Callable[[str], None]) -> Mapping[str, Any]:
    """With `part` only its part in a cluster; else what is served too, and what only a cluster needs."""
    ended = 0
    if not asked["part"]:
        kept = [state.name for state in units.states() if state.name != membership.UNIT]
        for name in kept:
            note(f"end {name} …")
            ended += units.stop(name)
        ended += _servers(note)
    note("end Ray …")
    ended += membership.stop()
    store.remove(membership.folder())
    if not asked["part"]:
        for file in (token.path(), store.state() / "gathered.json"):
            file.unlink(missing_ok=True)
        for folder in (units.folder(), serving.folder()):
            store.remove(folder)
    return {"ended": ended, "left": sorted(membership.processes())}


def _servers(note: Callable[[str], None]) -> int:
    """Those that somebody serves in a terminal: told as by Ctrl-C, so that they say why they end."""
    found = {server.pid for server in serving.servers()}
    for pid in found:
        note(f"end the server of process {pid} …")
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _SERVERS_LIMIT_S
    while any(alive(pid) for pid in found) and time.monotonic() < deadline:
        time.sleep(0.1)
    machine.end({pid for pid in found if alive(pid)}, grace_s=0)
    return len(found)
