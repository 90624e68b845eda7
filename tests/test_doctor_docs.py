"""docs/doctor.md says what the code does: every rule, every complaint, every symptom of the guides."""

import re

from medley.doctor.rules import GUIDES, RULES, UNCHECKED
from tests.documented import DOCS

COMPLAINTS = range(1, 26)
PAGE = DOCS / "doctor.md"


def tables() -> dict[str, str]:
    """What the page is to hold, as the code has it."""
    rules = (f"| `{each.name}` | {each.looks_at} | {each.wrong_when} | {each.mends} |" for each in RULES)
    by_row = {
        row: ", ".join(f"`{each.name}`" for each in RULES if row in each.complaints) for row in COMPLAINTS
    }
    complaints = (
        f"| {row} | {'; '.join(filter(None, (by_row[row], UNCHECKED.get(row, ''))))} |" for row in COMPLAINTS
    )
    guides = (f"| {symptom} | {where} |" for symptom, where in GUIDES)
    return {
        "table": "\n".join(("| rule | looks at | fails when | mended by |", "|---|---|---|---|", *rules)),
        "complaints": "\n".join(("| row | rules |", "|---|---|", *complaints)),
        "guides": "\n".join(("| symptom | rules |", "|---|---|", *guides)),
    }


def test_the_page_is_as_the_code() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, table in tables().items():
        assert table in text, f"the {name} of docs/doctor.md is not as the code has it:\n{table}"


def test_every_complaint_has_a_rule_or_a_reason() -> None:
    named = {row for rule in RULES for row in rule.complaints}
    assert named | set(UNCHECKED) == set(COMPLAINTS)


def test_the_rules_that_the_guides_symptoms_name_are_there() -> None:
    names = {rule.name for rule in RULES}
    for symptom, where in GUIDES:
        told = set(re.findall(r"`([a-z][a-z-]*)`", where))
        assert told & names, symptom
        assert told - names == set(), symptom
