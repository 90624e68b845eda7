"""Every check of the doctor, in the order in which it prints them."""

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
from medley.doctor.checks import Case, Check, Rule

_MODULES = (versions, network, manual_settings, reachability, kernel, memory, gpu, device_speed, system)

RULES = tuple(each for module in _MODULES for each in vars(module).values() if isinstance(each, Rule))


def checks(case: Case) -> Iterator[tuple[Rule, Check]]:
    """All of them, by rule and then by host."""
    for rule in RULES:
        yield from ((rule, check) for check in rule.look(case))
