"""The page of the architecture shows what the code is, and no module is too long to take in."""

from pathlib import Path

import pytest

from tools.architecture import AREAS, PACKAGE, PAGE, page, plain

MODULES = sorted(PACKAGE.rglob("*.py"))
LONGEST = 400
"""Lines: a module is one concept that can be taken in."""


def test_the_page_shows_it() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tools.architecture writes it again"


def test_the_top_has_the_areas_and_few_modules() -> None:
    assert {file.parent.name for file in PACKAGE.glob("*/__init__.py")} == set(AREAS)
    assert len(plain()) <= 15


@pytest.mark.parametrize("file", MODULES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_a_module_can_be_taken_in(file: Path) -> None:
    assert file.read_text(encoding="utf-8").count("\n") <= LONGEST
