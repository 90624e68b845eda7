"""Every plan in tests/plans/ is what is printed today; what changes is written anew and read in review."""

import pytest

from tests.plans import CLUSTERS, FOLDER, HOME, expected, printed


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_plans(cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in HOME.items():
        monkeypatch.setenv(name, value)
    of_cluster = [each for each in expected() if each[0].startswith(f"{cluster}+")]
    assert len(of_cluster) >= 18
    changed = [
        file
        for file, site, name, model, shape in of_cluster
        if (FOLDER / file).read_text() != printed(file, site, name, model, shape)
    ]
    assert not changed, "python -m tests.plans, then read git diff tests/plans"


def test_no_plan_is_of_nothing() -> None:
    known = {file for file, *_ in expected()} | {"README.md"}
    assert {path.name for path in FOLDER.iterdir()} == known


def test_the_readme_shows_what_is_printed() -> None:
    _, shown = (
        (FOLDER.parents[1] / "README.md").read_text().split("$ medley plan gpt-oss-120b --hosts spark:2\n")
    )
    lines = [line.removeprefix("    ") for line in shown.split("\n\n")[0].splitlines()]
    printed_lines = (FOLDER / "spark-2+gpt-oss-120b.txt").read_text().splitlines()
    assert len(lines) >= 8
    assert [line for line in lines if line not in printed_lines] == []
