"""Supervision: from an engine's start to its end, with a word when it is ready and a Problem when it dies."""

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from medley import api, failure
from medley.command import Command
from medley.machine import Finished, Process
from medley.problem import Problem

_LOOK_EVERY_S = 0.1
_END_LIMIT_S = 5
_KILLED = 128
# What Python says at any end, which is no reason.
_IDLE = re.compile(r"^\s+warnings\.warn\(|Warning: |resource_tracker|kill_process_tree")

LastError = Callable[[Sequence[str]], str | None]


def supervise(
    command: Command,
    *,
    url: str,
    model: str,
    limit_s: float,
    log: Path,
    on_line: Callable[[str], None],
    on_ready: Callable[[api.Completion, float], None],
    last_error: LastError,
    fatal: Callable[[str], bool] = lambda _: False,
    key: str | None = None,
    check: Callable[[], None] = lambda: None,
) -> NoReturn:
    """Run an engine until it ends, which is always a Problem: it is only left by Ctrl-C or a signal.

    `check` is asked all the time, and raises a Problem where something else ends it. `limit_s` is how long it
    may take to answer its first completion. However this is left, no process of the
    engine's stays behind.
    """
    lost: list[str] = []

    def watched(line: str) -> None:
        if fatal(line):
            lost.append(line)
        on_line(line)

    process = Process(command, watched)
    began = time.monotonic()
    try:
        completion = _until_ready(process, lambda: api.answered(url, model, key), model, limit_s, check)
        if completion is not None:
            on_ready(completion, time.monotonic() - began)
            while process.wait(_LOOK_EVERY_S) is None and not lost:
                check()
        if not lost:
            process.wait(_END_LIMIT_S)
    finally:
        process.stop()
    finished = process.poll()
    if lost:  # it was we who ended it, so its exit code says nothing
        finished = Finished(1, tuple(lost))
    raise died(finished or Finished(1, ()), ready=completion is not None, log=log, last_error=last_error)


def _until_ready(
    process: Process,
    answered: Callable[[], api.Completion | None],
    model: str,
    limit_s: float,
    check: Callable[[], None],
) -> api.Completion | None:
    """The first completion, or None when the engine ended instead."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if process.wait(_LOOK_EVERY_S) is not None:
            return None
        check()
        try:
            completion = answered()
        except Problem:
            # A dying engine breaks the connection first; then its own last error says more.
            if process.wait(_END_LIMIT_S) is not None:
                return None
            raise
        if completion is not None:
            return completion
    raise Problem(
        f"{model} is not ready after {limit_s:g} s",
        cause=(list(process.last) or ["the engine said nothing"])[-1][:300],
        fix=f"give it longer: --timeout {max(1800, limit_s * 2):.0f}",
    )


def died(finished: Finished, *, ready: bool, log: Path, last_error: LastError) -> Problem:
    """The engine's end as a Problem: what its log shows or its last error, and its own exit code."""
    said = last_error(finished.lines) or next(
        (line.strip() for line in reversed(finished.lines) if line.strip() and not _IDLE.search(line)),
        "it said nothing",
    )
    if finished.status == _KILLED + 9:
        said = f"something killed it (SIGKILL); when memory runs out the kernel does. Its last words: {said}"
    when = "" if ready else " before it was ready"
    problem = Problem(
        f"the engine ended with exit code {finished.status}{when}",
        cause=said[:1000],
        fix=f"read its whole output: less {log}",
        status=finished.status or 1,
    )
    return failure.known(problem, log)
