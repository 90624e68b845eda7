"""docs/how-to/troubleshoot.md names checks of the doctor that there are."""

import re

from medley.doctor.registry import RULES
from tools.documents import DOCS

NAMES = {rule.name for rule in RULES}


def rows(heading: str) -> list[list[str]]:
    """The cells of the table below a heading of the page."""
    _, _, text = (
        (DOCS / "how-to" / "troubleshoot.md").read_text(encoding="utf-8").partition(f"## {heading}\n")
    )
    table = [line for line in text.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table[1:]]


def test_each_complaint_and_each_symptom_names_rules_that_are_there() -> None:
    table = [*rows("Complaints about other tools, and where they went"), *rows("The guides' troubleshooting")]
    assert len(table) > len(RULES) / 2
    for symptom, where in table:
        names = set(re.findall(r"`([a-z][a-z-]*)`", where))
        assert names, symptom
        assert names <= NAMES, symptom
