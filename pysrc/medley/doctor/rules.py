"""The rules: everything that the doctor looks at, in the order in which it tells it."""

from collections.abc import Iterator

from medley.doctor import group_rules, host_rules
from medley.doctor.shapes import Case, Check, Rule

RULES: tuple[Rule, ...] = (*group_rules.RULES, *host_rules.RULES)


def checks(case: Case) -> Iterator[tuple[Rule, Check]]:
    """All of them, by rule and then by host."""
    for rule in RULES:
        yield from ((rule, check) for check in rule.look(case))
