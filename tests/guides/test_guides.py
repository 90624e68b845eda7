"""docs/explanation/published-guides.md compares guides with Medley's dry runs; differences have reasons."""

import re
from fnmatch import fnmatchcase

import pytest

from tools.documents import DOCS
from tools.guides import compare, extract
from tools.guides.extract import Fact
from tools.guides.page import PAGE, Compared, compared, page
from tools.guides.scenarios import place, scenarios, table
from tools.plan_outputs import HOME

AGAIN = "python -m tools.guides, then review git diff docs/explanation/published-guides.md"


@pytest.fixture(scope="module")
def facts() -> list[Fact]:
    return extract.read()


@pytest.fixture(scope="module")
def found(facts: list[Fact]) -> list[Compared]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in HOME.items():
            patch.setenv(name, value)
        return compared(facts)


def test_the_page_is_written_from_today_s_dry_runs(found: list[Compared], facts: list[Fact]) -> None:
    assert PAGE.read_text(encoding="utf-8") == page(found, facts), AGAIN


def test_every_setting_of_a_guide_has_a_row(found: list[Compared], facts: list[Fact]) -> None:
    rows = {(each.scenario.name, row.item) for each in found for row in each.rows}
    assert len(facts) > 600
    for fact in facts:
        names = [each.scenario.name for each in found if each.scenario.has(fact)]
        assert names, f"{place(fact)} is in no scenario"
        assert all((name, fact.item) in rows for name in names), f"{fact} has no row"


def test_no_row_differs_without_a_reason(found: list[Compared]) -> None:
    rows = [row for each in found for row in each.rows]
    assert [row for row in rows if not row.same and not row.reason] == []


def test_every_reason_has_its_row(found: list[Compared]) -> None:
    """A reason that nothing needs any more is of a Medley that was."""
    rows = [row for each in found for row in each.rows]
    used = {(row.scenario, f"{row.group} {row.item}") for row in rows if row.reason}
    known = compare.reasons()
    own = {(name, key) for name, of in known.items() if name != "any" for key in of}
    assert own - used == set()
    assert set(known["any"]) - {key for name, key in used if (name, key) not in own} == set()


def test_every_pattern_and_source_is_of_a_fact(facts: list[Fact]) -> None:
    for each in scenarios():
        for pattern in each.facts:
            assert any(fnmatchcase(place(fact), pattern) for fact in facts), f"{each.name}: {pattern}"
    assert set(table()["sources"]) == {fact.source for fact in facts}


def test_a_page_that_a_reason_names_is_there() -> None:
    text = "\n".join(why for of in compare.reasons().values() for why in of.values())
    named = set(re.findall(r"docs/[\w/-]+\.md", text))
    assert {each for each in named if not (DOCS.parent / each).exists()} == set()
