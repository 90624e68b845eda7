"""docs/doctor.md says what the code does: every rule, every complaint, every symptom of the guides."""

import re

from medley.doctor.complaints import COMPLAINTS, UNCHECKED
from medley.doctor.rules import GUIDES, RULES
from tests.documented import DOCS

PAGE = DOCS / "doctor.md"


def tables() -> dict[str, str]:
    """What the page is to hold, as the code has it."""
    rules = (f"| `{each.name}` | {each.looks_at} | {each.wrong_when} | {each.mends} |" for each in RULES)
    named = {nr: ", ".join(f"`{each.name}`" for each in RULES if nr in each.complaints) for nr in COMPLAINTS}
    complaints = (
        f"| {said} | {'; '.join(filter(None, (named[nr], UNCHECKED.get(nr, ''))))} |"
        for nr, said in COMPLAINTS.items()
    )
    guides = (f"| {symptom} | {where} |" for symptom, where in GUIDES)
    return {
        "table": "\n".join(("| rule | looks at | fails when | mended by |", "|---|---|---|---|", *rules)),
        "complaints": "\n".join(("| complaint | rules |", "|---|---|", *complaints)),
        "guides": "\n".join(("| symptom | rules |", "|---|---|", *guides)),
    }


def test_the_page_is_as_the_code() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, table in tables().items():
        assert table in text, f"the {name} of docs/doctor.md is not as the code has it:\n{table}"


def test_every_complaint_has_a_rule_or_a_reason() -> None:
    named = {nr for rule in RULES for nr in rule.complaints}
    assert named | set(UNCHECKED) == set(COMPLAINTS)


def test_the_rules_that_the_guides_symptoms_name_are_there() -> None:
    names = {rule.name for rule in RULES}
    for symptom, where in GUIDES:
        told = set(re.findall(r"`([a-z][a-z-]*)`", where))
        assert told & names, symptom
        assert told - names == set(), symptom
