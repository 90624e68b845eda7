"""Run each load with the engine's own benchmark, against a server or without one, and save each result."""

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex

from medley.command import Command
from medley.errors import Problem
from medley.host import facts
from medley.host.redact import HostNames
from medley.measurement.bench import record
from medley.measurement.bench.clients import CLIENTS, OfflineMode
from medley.measurement.bench.context import CLOCKS_COMMAND, describe_conditions
from medley.measurement.bench.figures import read_result
from medley.measurement.bench.load import BenchLoad, BenchRun
from medley.measurement.bench.record import Record, RunResult
from medley.measurement.bench.target import BenchTarget, OfflineTarget
from medley.process import Process, ProcessResult, ask_host
from medley.progress import Progress
from medley.transcript import Transcript
from medley.values import Value

_CLOCKS_INTERVAL_S = 5
_KILL_GRACE_S = 5
_MAX_ERROR_LINES, _MAX_ERROR_CHARS = 12, 300


def measure_server(
    target: BenchTarget, load: BenchLoad, limit_s: float, progress: Progress, names: Iterable[HostNames] = ()
) -> Record:
    """Run the load and return the record, which is saved after each run.

    `names` are the hosts that the record calls host-2, host-3 and so on. Raise a Problem if a run fails.
    """
    new_record = Record(
        *_build_id(target.model),
        engine=target.engine,
        load=load,
        about=describe_conditions(
            target.engine, target.program_folder, target.transcripts, target.description, names
        ),
        expected=target.predict_figures(load, progress),
    )
    runner = Runner(progress, limit_s, _have_gpus(target.transcripts))

    def run_all() -> Iterator[tuple[RunResult]]:
        for run in load.list_runs():
            result = runner.run(target, run)
            rate = result.figures.output_tokens_per_s
            progress.note(f"{run}: {rate:.1f} tokens/s" if rate else str(run))
            yield (result,)

    try:
        return _save_results(new_record, run_all(), progress)
    finally:
        target.remove_key_copy()


def measure_offline(target: OfflineTarget, load: BenchLoad, limit_s: float, progress: Progress) -> Record:
    """Run all modes and return the record, which is saved after each start of the engine."""
    description = target.description
    new_record = Record(
        *_build_id(description.model),
        engine=description.engine,
        load=load,
        about=describe_conditions(
            description.engine, description.programs_folder, target.transcripts, description
        ),
    )
    runner = Runner(progress, limit_s, _have_gpus(target.transcripts))
    results = (runner.run_offline(target, mode, run) for mode, run in target.list_runs(load, progress))
    return _save_results(new_record, results, progress)


def _build_id(model: str) -> tuple[str, str, str]:
    """Return a new record's id, which sorts by time, the time, and the model."""
    time_utc = datetime.now(UTC)
    name = "".join(char if char.isalnum() or char in "-." else "-" for char in model.rpartition("/")[2])[:40]
    id_ = f"{time_utc:%Y%m%d-%H%M%S}-{name}-{token_hex(2)}"
    return id_, time_utc.isoformat(timespec="seconds"), model


def _have_gpus(transcripts: Mapping[str, Transcript]) -> bool:
    return any(facts.read_facts(answers).gpus for answers in transcripts.values())


def _save_results(new_record: Record, results: Iterable[tuple[RunResult, ...]], progress: Progress) -> Record:
    """Add the results to the record and save it after each; after an error, note the id of what is saved."""
    saved = new_record
    try:
        for batch in results:
            extended = saved.replace(done=(*saved.done, *batch))
            record.save_record(extended)
            saved = extended
        complete = saved.replace(whole=True)
        record.save_record(complete)
    except BaseException:
        if count := len(saved.counted):
            progress.note(f"stopped; {count} of its runs are kept: medley bench show {saved.id}")
        raise
    return complete


class _ClientOutput(Value):
    """A finished benchmark client: its result file as text, and the clocks during its run."""

    command: Command
    finished: ProcessResult
    text: str
    clocks: tuple[str, ...]


class Runner(Value):
    """Runner of an engine's benchmark; each run has the same limit."""

    progress: Progress
    limit_s: float
    has_gpus: bool = False
    """Whether to record the clocks of this host's GPUs."""

    def run(self, target: BenchTarget, run: BenchRun) -> RunResult:
        """Run once, or raise a Problem if the client measures nothing."""
        output = self._run_client(str(run), lambda result: target.build_command(run, result))
        table = read_result(output.text)
        figures = CLIENTS[target.engine].read_figures(table, run) if output.finished.status == 0 else None
        if figures is None:
            raise _no_result_problem(output)
        if not figures.completed:
            errors = [line for line in output.finished.lines if "rror" in line]
            cause = errors[-1][:_MAX_ERROR_CHARS] if errors else "the engine's benchmark does not say why"
            raise Problem(
                f"the server answered none of {run.requests} requests",
                cause=cause,
                fix='ask it once: medley chat "Hello"; its log is what medley logs shows',
            )
        return RunResult(run, figures, table, output.clocks)

    def run_offline(self, target: OfflineTarget, mode: OfflineMode, run: BenchRun) -> tuple[RunResult, ...]:
        """Start the engine once without a server; return a result for each of its measurements."""
        title = f"{mode}, {run.concurrency} concurrent, from repeat {run.repeat}"
        output = self._run_client(title, lambda result: target.build_command(mode, run, result))
        client = CLIENTS[target.description.engine]
        all_figures = (
            client.read_offline_figures(output.text, mode, run) if output.finished.status == 0 else ()
        )
        if not all_figures:
            raise _no_result_problem(output)
        lines = output.text.splitlines()
        texts = lines if len(lines) == len(all_figures) else [output.text] * len(all_figures)
        return tuple(
            RunResult(run.replace(repeat=repeat), figures, read_result(text), output.clocks, mode)
            for repeat, (figures, text) in enumerate(zip(all_figures, texts, strict=True), run.repeat)
        )

    def _run_client(self, title: str, build: Callable[[Path], Command]) -> _ClientOutput:
        """Run the command that `build` returns for the path of its result file."""
        with tempfile.TemporaryDirectory(prefix="medley-bench-") as folder:
            result = Path(folder) / "result.json"
            command = build(result)
            with self.progress.stage(title):
                finished, clocks = self._wait_for_client(command)
            text = result.read_text(encoding="utf-8") if result.exists() else ""
        return _ClientOutput(command, finished, text, clocks)

    def _wait_for_client(self, command: Command) -> tuple[ProcessResult, tuple[str, ...]]:
        """Run the command within the limit; after an error or Ctrl-C no process of it is left."""
        process, clocks = Process(command, self.progress.line), list[str]()
        deadline = time.monotonic() + self.limit_s
        try:
            while (remaining_s := deadline - time.monotonic()) > 0:
                finished = process.wait(min(remaining_s, _CLOCKS_INTERVAL_S))
                if finished:
                    return finished, tuple(dict.fromkeys(clocks))
                if self.has_gpus:
                    answer = ask_host([CLOCKS_COMMAND])[CLOCKS_COMMAND]
                    clocks += answer.text.splitlines() if answer.status == 0 else ()
        finally:
            if process.poll() is None:
                process.stop(grace_s=_KILL_GRACE_S)
        raise Problem(
            "the engine's benchmark did not finish",
            cause=f"its limit is {self.limit_s:.0f} s a run",
            fix="ask for less, or give it longer: --requests 8 --timeout 7200",
        )


def _no_result_problem(output: _ClientOutput) -> Problem:
    lines = [f"  {line[:_MAX_ERROR_CHARS]}" for line in output.finished.lines if line.strip()]
    status = output.finished.status
    return Problem(
        "the engine's benchmark measured nothing",
        cause="\n".join([f"it ended with exit code {status}:", *lines[-_MAX_ERROR_LINES:]]),
        fix=f"run it by itself: {output.command}",
    )
