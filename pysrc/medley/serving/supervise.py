"""Supervise an engine from its start to its end.

`readiness.py` decides when it is ready, the monitors and the watchdog when it must end, and `restarter.py`
whether it starts again.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import NoReturn

from medley.command import Command
from medley.errors import Problem
from medley.explain import LastError, explain_engine_end
from medley.host import memory_pressure
from medley.process import Process, ProcessResult
from medley.process_identity import SharedMemoryCleaner
from medley.serving.readiness import EXIT_LIMIT_S, wait_for_completion
from medley.serving.run_monitors import CHECK_INTERVAL_S, Monitor, check_all
from medley.serving.watchdog import Watchdog
from medley.values import Value

_END_GRACE_S, _LOADING_GRACE_S = 15, 3


class EngineRun(Value):
    """An engine to run: its command, its API, and the readers of its output."""

    command: Command
    url: str
    model: str
    """The model's name in requests."""
    limit_s: float
    """Seconds until the first completion."""
    log: Path
    on_line: Callable[[str], None]
    find_last_error: LastError
    is_fatal: Callable[[str], bool] = lambda _: False


def supervise(
    run: EngineRun,
    *,
    on_ready: Callable[[str, float], None],
    on_lost: Callable[[str], None] = lambda _: None,
    monitors: Sequence[Monitor] = (),
    watchdog: Watchdog | None = None,
) -> NoReturn:
    """Run an engine until it ends, which is always a Problem; Ctrl-C and signals end it too.

    The monitors are checked several times a second. `on_lost` gets the reason why the model is served no
    longer, before the engine's processes end. In every case all processes of the engine are ended.
    """
    fatal_lines: list[str] = []

    def read_line(line: str) -> None:
        if run.is_fatal(line):
            fatal_lines.append(line)
        run.on_line(line)

    kernel_kills = memory_pressure.count_kernel_kills()
    shared_memory = SharedMemoryCleaner()
    engine = Process(run.command, read_line)
    started_s = time.monotonic()
    engine.prefer_for_oom_kill()
    completion = None
    try:
        completion = wait_for_completion(engine, run.url, run.model, run.limit_s, monitors)
        if completion is not None:
            on_ready(completion, time.monotonic() - started_s)
            with watchdog.watch(engine) if watchdog else nullcontext():
                while engine.wait(CHECK_INTERVAL_S) is None and not fatal_lines:
                    check_all(monitors)
                    shared_memory.check()
                    if watchdog:
                        watchdog.check()
        on_lost((fatal_lines or ["its engine ended"])[0][:200])
        if not fatal_lines:
            engine.wait(EXIT_LIMIT_S)
    except Problem as problem:
        on_lost(problem.what)
        raise
    finally:
        shared_memory.remove_unused()
        # While it imports, an engine does not end by SIGTERM, and it has no request to finish.
        engine.stop(_LOADING_GRACE_S if completion is None else _END_GRACE_S)
        shared_memory.remove_unused()
    finished = engine.poll() or ProcessResult(1, ())
    if fatal_lines:  # medley ended it, so its exit code has no meaning
        finished = ProcessResult(1, tuple(fatal_lines))
    raise explain_engine_end(
        finished,
        ready=completion is not None,
        log=run.log,
        last_error=run.find_last_error,
        killer=memory_pressure.describe_killer(kernel_kills),
    )
