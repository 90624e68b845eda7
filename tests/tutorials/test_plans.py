"""Every plan on a page is what `medley plan` prints today."""

from pathlib import Path

import pytest

from tools.plan_outputs import HOME
from tools.tutorials.pages import ROOT, steps
from tools.tutorials.plans import PAGES, recorded


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_a_page_shows_what_is_printed(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in HOME.items():
        monkeypatch.setenv(name, value)
    text = page.read_text()
    assert recorded(text) == text, "python -m tools.tutorials, then review git diff"
    assert "medley plan" not in text or any(step.shown for step in steps(text)), "a plan in no console block"


def test_a_stale_plan_is_found() -> None:
    page = "```console\n$ medley plan demo --hosts cpu:1 | head -1\nanything\n$ true\nkept\n```\n"
    assert recorded(page) == page.replace("anything", "demo on cpu-1")


def test_the_mixed_cluster_is_planned_as_the_page_explains() -> None:
    text = next(page for page in PAGES if page.name == "mixed-cluster.md").read_text()
    first, larger, smaller = (step for step in steps(text) if "plan" in step.command)
    assert "2 stages of 28,20 layers" in first.shown[0]
    warned = next(at for at, line in enumerate(first.shown) if "orin-r39-1 is not used" in line)
    assert "NCCL" in first.shown[warned + 1]
    assert "does not fit" in larger.shown[0]
    assert smaller.shown[0] == "gpt-oss-120b on thor-1"
