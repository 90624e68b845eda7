"""Settle: wait until what was begun here is up, or is seen to fail."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from medley import failure, membership, units
from medley.errands import gather
from medley.problem import Problem

LIMIT_S = 90
_LOOK_EVERY_S = 0.1
_STATE_EVERY_S = 1.0
"""It reads all of /proc, and Ray needs the processor."""
_WORDS = 6


def run(asked: Mapping[str, Any], note: Callable[[str], None]) -> Mapping[str, Any]:
    """`role`: a worker is up when Ray says so, a head when it has told who is there."""
    del note
    began = looked = time.monotonic()
    while time.monotonic() < began + LIMIT_S:
        lines = units.said(membership.UNIT)
        if asked["role"] == "head" and any(line.startswith(('{"nodes"', '{"error"')) for line in lines):
            return gather.answer(lines)
        if asked["role"] == "worker" and any(membership.UP in line for line in lines):
            return {}
        if time.monotonic() > looked + _STATE_EVERY_S:
            looked = time.monotonic()
            state = units.state(membership.UNIT)
            if state is None or not state.kept or state.restarts:
                raise _failed(lines or (state.said.splitlines() if state else []))
        time.sleep(_LOOK_EVERY_S)
    raise _failed(units.said(membership.UNIT))


def _failed(lines: list[str]) -> Problem:
    log = units.log(membership.UNIT)
    problem = Problem(
        "Ray could not be started",
        cause="\n".join(lines[-_WORDS:]) or f"it said nothing in {LIMIT_S} s",
        fix=f"read all of it there: less {log}; or medley explain {log}",
    )
    return failure.known_in(problem, lines)
