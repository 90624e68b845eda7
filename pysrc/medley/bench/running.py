"""Running a bench: one start of the engine's benchmark after the other, each kept as soon as it is done."""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from medley import machine
from medley.bench.figures import Figures, raw
from medley.bench.load import Run
from medley.bench.record import Done
from medley.bench.surroundings import CLOCKS
from medley.command import Command
from medley.engine.client import Client, Offline
from medley.machine import Finished, Process
from medley.problem import Problem
from medley.watch import Watch

_LOOK_EVERY_S = 5
_SAID_LINES = 12

Start = Callable[[Run, Path], Command]
Read = Callable[[Mapping[str, Any], Run], Figures | None]


@dataclass(frozen=True)
class _Ended:
    command: Command
    finished: Finished
    text: str
    """Of its result file."""
    clocks: tuple[str, ...]


def done(run: Run, start: Start, read: Read, watch: Watch, *, gpus: bool, limit_s: float) -> Done:
    """One run; a Problem where it measured nothing. On Ctrl-C it is ended with all its children."""
    ended = _ended(str(run), run, start, watch, gpus=gpus, limit_s=limit_s)
    table = raw(ended.text)
    figures = read(table, run) if ended.finished.status == 0 else None
    if figures is None:
        raise _nothing(ended.command, ended.finished)
    if not figures.completed:
        raise _refused(run, ended.finished)
    return Done(run, figures, table, ended.clocks)


def offline(
    run: Run, mode: Offline, start: Start, client: Client, watch: Watch, *, gpus: bool, limit_s: float
) -> tuple[Done, ...]:
    """One start of the engine without a server: a Done each time that it measured."""
    what = f"{mode}, {run.concurrency} at once, from repeat {run.repeat}"
    ended = _ended(what, run, start, watch, gpus=gpus, limit_s=limit_s)
    found = client.offline_figures(ended.text, mode, run) if ended.finished.status == 0 else ()
    if not found:
        raise _nothing(ended.command, ended.finished)
    lines = ended.text.splitlines()
    texts = lines if len(lines) == len(found) else [ended.text] * len(found)
    return tuple(
        Done(replace(run, repeat=nth), figures, raw(text), ended.clocks, mode)
        for nth, (figures, text) in enumerate(zip(found, texts, strict=True), run.repeat)
    )


def _ended(what: str, run: Run, start: Start, watch: Watch, *, gpus: bool, limit_s: float) -> _Ended:
    with tempfile.TemporaryDirectory(prefix="medley-bench-") as folder:
        result = Path(folder) / "result.json"
        command = start(run, result)
        with watch.stage(what):
            finished, clocks = _finished(command, watch, limit_s, gpus=gpus)
        text = result.read_text(encoding="utf-8") if result.exists() else ""
    return _Ended(command, finished, text, clocks)


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
