"""Every plan in tests/planner/outputs/ is what `medley plan` answers today; review what changes."""

import pytest

from tools.plan_outputs import CLUSTERS, FOLDER, HOME, TABLE, WHOLE, cases, line, printed

AGAIN = "python -m tools.plan_outputs, then review git diff tests/planner/outputs"


@pytest.fixture(autouse=True)
def _folders_of_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in HOME.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("name", WHOLE)
def test_a_plan_is_printed_as_it_was(name: str) -> None:
    command, _, shown = (FOLDER / f"{name}.txt").read_text().partition("\n")
    assert command == f"$ medley plan {WHOLE[name]}", AGAIN
    assert shown == printed(WHOLE[name]), AGAIN


def test_every_case_is_as_the_table_has_it() -> None:
    recorded = TABLE.read_text().splitlines()
    every = list(cases())
    assert len(every) == len(set(every)) >= 18 * len(CLUSTERS)
    assert [line(case) for case in every] == recorded, AGAIN


def test_no_plan_is_of_nothing() -> None:
    known = {f"{name}.txt" for name in WHOLE} | {"README.md", TABLE.name}
    assert {path.name for path in FOLDER.iterdir()} == known
