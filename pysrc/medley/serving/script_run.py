"""Run a user's script on this host until it ends."""

import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from medley import explain
from medley.engine.launch import ENGINES
from medley.errors import Problem
from medley.process import Process
from medley.progress import Output
from medley.serving import server_records
from medley.serving.launch_log import log_launch, print_launch, write_files
from medley.serving.launches import PreparedLaunch
from medley.serving.rank_monitor import RankMonitor
from medley.serving.run_monitors import Monitor
from medley.values import Value

_CHECK_INTERVAL_S = 0.1
_MAX_ERROR_LINES = 400
_MAX_CAUSE_CHARS = 1000


class ScriptRun(Value):
    """A script; on several hosts it is done when it is done on all."""

    script: Path

    def run(self, prepared: PreparedLaunch, ranks: RankMonitor, output: Output) -> int:
        """Run the script to its end on every host; raise a Problem if it fails."""
        rendezvous = prepared.rendezvous
        self._run_here(prepared, rendezvous or ranks, output)
        while rendezvous and not all(member.is_done for member in rendezvous.members):
            rendezvous.check()
            time.sleep(_CHECK_INTERVAL_S)
        return 0

    def _run_here(self, prepared: PreparedLaunch, monitor: Monitor, output: Output) -> None:
        launch, engine = prepared.launch, ENGINES[prepared.order.engine]
        write_files(launch)
        print_launch(launch, output.say, output.say)
        log = server_records.get_log_file(f"run-{self.script.stem}")
        fatal_lines, error_lines = list[str](), deque[str](maxlen=_MAX_ERROR_LINES)
        with log_launch(log, launch) as write_line:

            def on_line(line: str) -> None:
                write_line(line)
                output.out(line)

            def on_error(line: str) -> None:
                write_line(line)
                error_lines.append(line)
                if engine.is_fatal(line):
                    fatal_lines.append(line)
                output.error(line)

            process = Process(launch.command, on_line, on_error)
            try:
                while process.wait(_CHECK_INTERVAL_S) is None and not fatal_lines:
                    monitor.check()
            finally:
                process.stop()
        finished = process.poll()
        status = 1 if fatal_lines or not finished else finished.status
        if status:
            # Stdout and stderr arrive in no fixed order, so the lines of stderr count as the last ones.
            lines = fatal_lines or list(process.last_lines)
            raise self._problem(status, engine.find_last_error(lines), (*lines, *error_lines), log)

    def _problem(self, status: int, error: str | None, lines: Iterable[str], log: Path) -> Problem:
        printed_lines = [line for line in lines if line.strip()]
        cause = error or (printed_lines[-1] if printed_lines else "")
        problem = Problem(
            f"{self.script.name} ended with exit code {status}",
            cause=cause.strip()[:_MAX_CAUSE_CHARS] or "it printed nothing",
            fix=f"read its whole output: less {log}",
            status=status,
        )
        return explain.explain_problem(problem, log)
