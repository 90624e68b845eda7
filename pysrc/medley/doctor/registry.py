"""List every check of the doctor, in the order in which it prints them."""

from collections.abc import Iterator

from medley.doctor import (
    device_speed,
    gpu,
    kernel,
    manual_settings,
    memory,
    network,
    reachability,
    system,
    versions,
)
from medley.doctor.checks import Check, Examination, Rule
from medley.errors import Problem
from medley.planner.report import make_printable

_MODULES = (versions, network, manual_settings, reachability, kernel, memory, gpu, device_speed, system)

RULES = tuple(rule for module in _MODULES for rule in vars(module).values() if isinstance(rule, Rule))


def run_checks(examination: Examination) -> Iterator[tuple[Rule, Check]]:
    """Run every rule on the examination; results come in the order of RULES, then of the hosts."""
    for rule in RULES:
        yield from ((rule, _fold_lines(check)) for check in rule.run(examination))


def _fold_lines(check: Check) -> Check:
    """Put summary, title and cause in one line each: words of hosts in them may hold line breaks."""
    problem = check.problem
    return check.replace(
        summary=_fold_text(check.summary),
        problem=problem
        and Problem(_fold_text(problem.what), cause=_fold_text(problem.cause), fix=problem.fix),
    )


def _fold_text(text: str) -> str:
    return text if text.isprintable() else make_printable(text)
