"""Run each load with the engine's own benchmark, against a server or without one; keep each result."""

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex

from medley.command import Command
from medley.errors import Problem
from medley.host import facts
from medley.host.redact import HostNames
from medley.measurement.bench import BenchLoad, BenchRun, record, result_table
from medley.measurement.bench.clients import CLIENTS, Offline
from medley.measurement.bench.context import CLOCKS, conditions
from medley.measurement.bench.record import Done, Record
from medley.measurement.bench.target import BenchTarget, OfflineTarget
from medley.process import Finished, Process, ask
from medley.progress import Progress
from medley.transcript import Transcript

_CLOCKS_EVERY_S = 5
_SHOWN_LINES = 12


def measure(
    target: BenchTarget, load: BenchLoad, limit_s: float, progress: Progress, names: Iterable[HostNames] = ()
) -> Record:
    """The record, kept after each run; `names` are of hosts that it calls host-2, host-3 … in this order."""
    made = Record(
        *_new_id(target.model),
        engine=target.engine,
        load=load,
        about=conditions(target.engine, target.binary, target.transcripts, target.what, names),
        expected=target.expected(load, progress),
    )
    runner = Runner(progress, limit_s, _have_gpus(target.transcripts))

    def results() -> Iterator[tuple[Done]]:
        for run in load.runs():
            done = runner.run(target, run)
            rate = done.figures.output_tokens_per_s
            progress.note(f"{run}: {rate:.1f} tokens/s" if rate else str(run))
            yield (done,)

    return _kept(made, results(), progress)


def measure_offline(target: OfflineTarget, load: BenchLoad, limit_s: float, progress: Progress) -> Record:
    """Run all modes; keep each engine start's result as soon as it ends."""
    what = target.what
    made = Record(
        *_new_id(what.model),
        engine=what.engine,
        load=load,
        about=conditions(what.engine, what.programs, target.transcripts, what),
    )
    runner = Runner(progress, limit_s, _have_gpus(target.transcripts))
    results = (runner.run_offline(target, mode, run) for mode, run in target.runs(load, progress))
    return _kept(made, results, progress)


def _new_id(model: str) -> tuple[str, str, str]:
    """Return a new record's id, which sorts by time, the time, and the model."""
    now = datetime.now(UTC)
    name = "".join(each if each.isalnum() or each in "-." else "-" for each in model.rpartition("/")[2])[:40]
    return f"{now:%Y%m%d-%H%M%S}-{name}-{token_hex(2)}", now.isoformat(timespec="seconds"), model


def _have_gpus(transcripts: Mapping[str, Transcript]) -> bool:
    return any(facts.facts(each).gpus for each in transcripts.values())


def _kept(made: Record, results: Iterable[tuple[Done, ...]], progress: Progress) -> Record:
    """The record with these results, saved after each; where they break off, note what is kept."""
    try:
        for done in results:
            more = replace(made, done=(*made.done, *done))
            record.save(more)
            made = more
        whole = replace(made, whole=True)
        record.save(whole)
    except BaseException:
        if count := len(made.counted):
            progress.note(f"stopped; {count} of its runs are kept: medley bench show {made.id}")
        raise
    return whole


@dataclass(frozen=True)
class _Ended:
    command: Command
    finished: Finished
    text: str
    clocks: tuple[str, ...]


@dataclass(frozen=True)
class Runner:
    """Runs an engine's benchmark, each run with the same limit."""

    progress: Progress
    limit_s: float
    gpus: bool = False
    """Whether to note the clocks of this host's."""

    def run(self, target: BenchTarget, run: BenchRun) -> Done:
        """Run once; a Problem if nothing was measured."""
        ended = self._ended(str(run), lambda result: target.command(run, result))
        table = result_table(ended.text)
        figures = CLIENTS[target.engine].figures(table, run) if ended.finished.status == 0 else None
        if figures is None:
            raise _nothing_measured(ended)
        if not figures.completed:
            reasons = [line for line in ended.finished.lines if "rror" in line]
            raise Problem(
                f"the server answered none of {run.requests} requests",
                cause=reasons[-1][:300] if reasons else "the engine's benchmark does not say why",
                fix='ask it once: medley chat "Hello"; its log is what medley logs shows',
            )
        return Done(run, figures, table, ended.clocks)

    def run_offline(self, target: OfflineTarget, mode: Offline, run: BenchRun) -> tuple[Done, ...]:
        """One start of the engine without a server: a Done each time that it measured."""
        what = f"{mode}, {run.concurrency} concurrent, from repeat {run.repeat}"
        ended = self._ended(what, lambda result: target.command(mode, run, result))
        client = CLIENTS[target.what.engine]
        found = client.offline_figures(ended.text, mode, run) if ended.finished.status == 0 else ()
        if not found:
            raise _nothing_measured(ended)
        lines = ended.text.splitlines()
        texts = lines if len(lines) == len(found) else [ended.text] * len(found)
        return tuple(
            Done(replace(run, repeat=nth), figures, result_table(text), ended.clocks, mode)
            for nth, (figures, text) in enumerate(zip(found, texts, strict=True), run.repeat)
        )

    def _ended(self, what: str, start: Callable[[Path], Command]) -> _Ended:
        with tempfile.TemporaryDirectory(prefix="medley-bench-") as folder:
            result = Path(folder) / "result.json"
            command = start(result)
            with self.progress.stage(what):
                finished, clocks = self._finished(command)
            text = result.read_text(encoding="utf-8") if result.exists() else ""
        return _Ended(command, finished, text, clocks)

    def _finished(self, command: Command) -> tuple[Finished, tuple[str, ...]]:
        """On Ctrl-C the process is ended with all its children."""
        process, clocks = Process(command, self.progress.line), list[str]()
        deadline = time.monotonic() + self.limit_s
        try:
            while (left_s := deadline - time.monotonic()) > 0:
                finished = process.wait(min(left_s, _CLOCKS_EVERY_S))
                if finished:
                    return finished, tuple(dict.fromkeys(clocks))
                if self.gpus:
                    answer = ask([CLOCKS])[CLOCKS]
                    clocks += answer.text.splitlines() if answer.status == 0 else ()
        finally:
            if process.poll() is None:
                process.stop(grace_s=5)
        raise Problem(
            "the engine's benchmark did not finish",
            cause=f"its limit is {self.limit_s:.0f} s a run",
            fix="ask for less, or give it longer: --requests 8 --timeout 7200",
        )


def _nothing_measured(ended: _Ended) -> Problem:
    shown = [f"  {line[:300]}" for line in ended.finished.lines if line.strip()][-_SHOWN_LINES:]
    return Problem(
        "the engine's benchmark measured nothing",
        cause="\n".join([f"it ended with exit code {ended.finished.status}:", *shown]),
        fix=f"run it by itself: {ended.command}",
    )
