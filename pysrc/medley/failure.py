"""A failure as medley tells it: what explain knows of the output, or the program's last words."""

from collections.abc import Iterable
from pathlib import Path

from medley.problem import Problem


def known(problem: Problem, log: Path) -> Problem:
    """The same with cause and fix of what its log shows; else its fix says how to ask."""
    try:
        with log.open("rb") as file:
            better = _known(problem, iter(lambda: file.read(1 << 20), b""))
    except OSError:
        return problem
    more = f"read its whole output: less {log}"
    if better is None:
        fix = f"medley explain {log}\n{more}"
        return Problem(problem.what, cause=problem.cause, fix=fix, status=problem.status)
    return Problem(better.what, cause=better.cause, fix=f"{better.fix}\n{more}", status=better.status)


def known_in(problem: Problem, lines: Iterable[str]) -> Problem:
    """The same, where the output is in no file."""
    return _known(problem, ["\n".join(lines).encode()]) or problem


def _known(problem: Problem, blocks: Iterable[bytes]) -> Problem | None:
    from medley.explain import Log, explained  # noqa: PLC0415 - only a failure needs what it knows
    from medley.explain.known import HIGH  # noqa: PLC0415 - the same

    found = explained([Log("output", blocks)]).first
    if found is None or found.confidence != HIGH:
        return None
    said = found.problem()
    return Problem(problem.what, cause=f"{said.what}: {said.cause}", fix=said.fix, status=problem.status)
