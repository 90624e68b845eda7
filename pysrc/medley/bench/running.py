"""Running a bench: one start of the engine's benchmark after the other, each kept as soon as it is done."""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from medley import machine
from medley.bench.figures import Figures, raw
from medley.bench.load import Run
from medley.bench.record import Done, Mode
from medley.bench.surroundings import CLOCKS
from medley.command import Command
from medley.machine import Finished, Process
from medley.problem import Problem
from medley.watch import Watch

_LOOK_EVERY_S = 5
_SAID_LINES = 12

Start = Callable[[Run, Path], Command]
Read = Callable[[Mapping[str, Any], Run], Figures | None]


def done(
    run: Run, start: Start, read: Read, watch: Watch, *, gpus: bool, limit_s: float, mode: Mode = "served"
) -> Done:
    """One run; a Problem where it measured nothing. On Ctrl-C it is ended with all its children."""
    with tempfile.TemporaryDirectory(prefix="medley-bench-") as folder:
        result = Path(folder) / "result.json"
        command = start(run, result)
        with watch.stage(str(run)):
            finished, clocks = _finished(command, watch, limit_s, gpus=gpus)
        text = result.read_text(encoding="utf-8") if result.exists() else ""
    table = raw(text)
    figures = read(table, run) if finished.status == 0 else None
    if figures is None:
        raise _nothing(command, finished)
    if not figures.completed:
        raise _refused(run, finished)
    return Done(run, figures, table, clocks, mode)


def _finished(
    command: Command, watch: Watch, limit_s: float, *, gpus: bool
) -> tuple[Finished, tuple[str, ...]]:
    process, clocks = Process(command, watch.line), list[str]()
    deadline = time.monotonic() + limit_s
    try:
        while (left_s := deadline - time.monotonic()) > 0:
            finished = process.wait(min(left_s, _LOOK_EVERY_S))
            if finished:
                return finished, tuple(dict.fromkeys(clocks))
            if gpus:
                clocks.extend(_clocks())
    except BaseException:
        process.stop(grace_s=5)
        raise
    process.stop(grace_s=5)
    raise Problem(
        "the engine's benchmark did not finish",
        cause=f"its limit is {limit_s:.0f} s a run",
        fix="ask for less, or give it longer: --requests 8 --timeout 7200",
    )


def _clocks() -> Iterator[str]:
    answer = machine.ask([CLOCKS])[CLOCKS]
    if answer.status == 0:
        yield from answer.text.splitlines()


def _nothing(command: Command, finished: Finished) -> Problem:
    said = [line for line in finished.lines if line.strip()][-_SAID_LINES:]
    return Problem(
        "the engine's benchmark measured nothing",
        cause="\n".join(
            [f"it ended with exit code {finished.status}:", *(f"  {line[:300]}" for line in said)]
        ),
        fix=f"run it by itself: {command}",
    )


def _refused(run: Run, finished: Finished) -> Problem:
    reasons = [line for line in finished.lines if "rror" in line]
    return Problem(
        f"the server answered none of {run.requests} requests",
        cause=reasons[-1][:300] if reasons else "the engine's benchmark does not say why",
        fix='ask it once: medley ask "Hello"; its log is what medley logs shows',
    )
