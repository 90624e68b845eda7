"""Tell how a process ended as a Problem, with the known failure that its log shows."""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from medley.errors import Problem
from medley.process import Finished

_KILLED = 128
# What Python says at any end, which is no reason.
_IDLE = re.compile(r"^\s+warnings\.warn\(|Warning: |resource_tracker|kill_process_tree")

LastError = Callable[[Sequence[str]], str | None]


def died(finished: Finished, *, ready: bool, log: Path, last_error: LastError) -> Problem:
    """The engine's end as a Problem: what its log shows or its last error, and its own exit code."""
    said = last_error(finished.lines) or next(
        (line.strip() for line in reversed(finished.lines) if line.strip() and not _IDLE.search(line)),
        "it said nothing",
    )
    if finished.status == _KILLED + 9:
        said = f"something killed it (SIGKILL); when memory runs out the kernel does. Its last words: {said}"
    problem = Problem(
        f"the engine ended with exit code {finished.status}{'' if ready else ' before it was ready'}",
        cause=said[:1000],
        fix=f"read its whole output: less {log}",
        status=finished.status or 1,
    )
    return explain_problem(problem, log)


def explain_problem(problem: Problem, log: Path) -> Problem:
    """The same with cause and fix of what its log shows; else its fix says how to ask."""
    try:
        with log.open("rb") as file:
            blocks = iter(lambda: file.read(1 << 20), b"")
            return _better(problem, blocks, f"medley explain {log}", f"read its whole output: less {log}")
    except OSError:
        return problem


def explain_output(problem: Problem, lines: Iterable[str]) -> Problem:
    """The same, where the output is in no file."""
    return _better(problem, ["\n".join(lines).encode()], problem.fix)


def _better(problem: Problem, blocks: Iterable[bytes], fix: str, *more: str) -> Problem:
    """With what is known for sure, and which of the known failures could not be looked for."""
    from medley.explain.diagnosis import explained  # noqa: PLC0415 - only a failure needs what is known
    from medley.explain.findings import Log  # noqa: PLC0415 - the same

    found, cause = explained([Log("output", blocks)]), problem.cause
    if found.first and found.first.confidence == "high":
        known = found.first.problem()
        cause, fix = f"{known.what}: {known.cause}", known.fix
    warnings = (f"{each}; medley check says more" for each in found.warnings)
    return Problem(problem.what, cause=cause, fix="\n".join([fix, *more, *warnings]), status=problem.status)
