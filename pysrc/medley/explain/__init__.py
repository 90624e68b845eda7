"""Turn the end of a process into a Problem, with the known failure in its log."""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from medley import storage
from medley.errors import Problem
from medley.explain.lines import COLOR
from medley.process import ProcessResult
from medley.unusable_file import skip_unusable_file

_SIGNAL_STATUS = 128
_KERNEL_KILL = "as the kernel does when memory runs out"
# Lines that Python prints at any end, which are not the reason.
_UNINFORMATIVE_LINE = re.compile(r"^\s+warnings\.warn\(|Warning: |resource_tracker|kill_process_tree")

LastError = Callable[[Sequence[str]], str | None]


def explain_engine_end(
    finished: ProcessResult, *, ready: bool, log: Path, last_error: LastError, killer: str = _KERNEL_KILL
) -> Problem:
    """Return the engine's end as a Problem, with the known failure or last error, and its exit code.

    `killer`: who sends SIGKILL, in words.
    """
    message = last_error(finished.lines) or next(
        (
            line.strip()
            for line in reversed(finished.lines)
            if line.strip() and not _UNINFORMATIVE_LINE.search(line)
        ),
        "it printed nothing",
    )
    if finished.status == _SIGNAL_STATUS + 9:
        message = f"it was killed (SIGKILL), {killer}. Its last line: {message}"
    problem = Problem(
        f"the engine ended with exit code {finished.status}{'' if ready else ' before it was ready'}",
        cause=COLOR.sub("", message)[:1000],
        fix=f"read its whole output: less {log}",
        status=finished.status or 1,
    )
    return explain_problem(problem, log)


def explain_problem(problem: Problem, log: Path) -> Problem:
    """Add cause and fix of the known failure in its log, else how to search for it."""
    with skip_unusable_file():
        if file := storage.open_file(log):
            with file:
                blocks = iter(lambda: file.read(1 << 20), b"")
                return _add_known_failure(
                    problem, blocks, f"medley explain {log}", f"read its whole output: less {log}"
                )
    return problem


def explain_output(problem: Problem, lines: Iterable[str]) -> Problem:
    return _add_known_failure(problem, ["\n".join(lines).encode()], problem.fix)


def _add_known_failure(problem: Problem, blocks: Iterable[bytes], fix: str, *more_fixes: str) -> Problem:
    from medley.explain.diagnosis import explain_logs  # noqa: PLC0415 - only after a failure
    from medley.explain.scanned_log import Log  # noqa: PLC0415 - as above

    explanation, cause = explain_logs([Log("output", blocks)]), problem.cause
    if explanation.first and explanation.first.is_proven:
        known_failure = explanation.first.problem()
        cause, fix = f"{known_failure.what}: {known_failure.cause}", known_failure.fix
    warnings = (f"{warning}; details: medley check" for warning in explanation.warnings)
    return Problem(
        problem.what, cause=cause, fix="\n".join([fix, *more_fixes, *warnings]), status=problem.status
    )
