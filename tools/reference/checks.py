"""The checks of `medley doctor`, from the code that runs them, with the words of the page about each."""

import re

from medley.doctor.registry import RULES
from tools.reference.table import table as markdown

HEADS = ("check", "looks at", "fails when", "fix")


def table(before: str) -> str:
    """A row for each check, in the order of the output; the last two cells are those that stand there."""
    words = {row[0]: row[2:4] for row in rows(before)}
    return markdown(
        HEADS,
        ((f"`{rule.name}`", rule.topic, *words.get(f"`{rule.name}`", ("", ""))) for rule in RULES),
    )


def rows(text: str) -> list[list[str]]:
    """The cells of a table's rows."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[1:]]
