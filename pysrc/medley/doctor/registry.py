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

_MODULES = (versions, network, manual_settings, reachability, kernel, memory, gpu, device_speed, system)

RULES = tuple(rule for module in _MODULES for rule in vars(module).values() if isinstance(rule, Rule))


def run_checks(examination: Examination) -> Iterator[tuple[Rule, Check]]:
    """Run every rule on the examination; results come in the order of RULES, then of the hosts."""
    for rule in RULES:
        yield from ((rule, check) for check in rule.run(examination))
