"""Every plan in tests/plans/ is what is printed today; what changes is written anew and read in review."""

import pytest

from tests.plans import CLUSTERS, FOLDER, STATE, expected, printed


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_plans(cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_STATE", STATE)
    of_cluster = [each for each in expected() if each[0].startswith(f"{cluster}+")]
    assert len(of_cluster) >= 18
    changed = [
        file
        for file, site, name, model, shape in of_cluster
        if (FOLDER / file).read_text() != printed(site, name, model, shape)
    ]
    assert not changed, "python -m tests.plans, then read git diff tests/plans"


def test_no_plan_is_of_nothing() -> None:
    known = {file for file, *_ in expected()} | {"README.md"}
    assert {path.name for path in FOLDER.iterdir()} == known
