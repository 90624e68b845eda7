"""Every link of README.md and docs/ leads to a page of the site or a file, and to a heading that is there."""

from pathlib import Path

import pytest

from tools.links import faults, links, pages, slugified, titled


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_every_link_leads_somewhere(page: Path) -> None:
    assert list(faults(page)) == []


@pytest.mark.parametrize(
    ("link", "fault"),
    [
        ("[x](../index.md)", None),
        ("[x](../index.md#medley)", None),
        ("[x](https://example.org/no.md)", None),
        ("`[x](gone.md)`", None),
        ("```\n[x](gone.md)\n```", None),
        ("[x](gone.md)", "is not there"),
        ("[x](../index.md#gone)", "has no such heading"),
        ("[x](../../README.md)", "leaves docs/"),
        ("[index.md](../index.md)", "has a file name as its text"),
    ],
)
def test_a_wrong_link_is_found(link: str, fault: str | None, tmp_path: Path) -> None:
    made = tmp_path / "docs" / "how-to" / "page.md"
    made.parent.mkdir(parents=True)
    (tmp_path / "README.md").write_text("# Medley\n")
    (tmp_path / "docs" / "index.md").write_text("# Medley\n")
    made.write_text(link)
    found = list(faults(made, tmp_path / "docs"))
    assert [each.rpartition(") ")[2] for each in found] == ([fault] if fault else [])


def test_a_link_that_names_a_file_gets_its_title(tmp_path: Path) -> None:
    (tmp_path / "new.md").write_text("# Monitor the cluster\n\n## For Grafana\n")
    page = tmp_path / "page.md"
    page.write_text("[old.md](new.md), [old.md](new.md#for-grafana), [mine](new.md), [gone.md](gone.md)")
    assert titled(page) == (
        "[Monitor the cluster](new.md), [For Grafana](new.md#for-grafana), [mine](new.md), [gone.md](gone.md)"
    )


def test_links_are_numbered_by_line() -> None:
    assert list(links("a\n`b`\n[c](d.md)")) == [(3, "c", "d.md")]


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [("vLLM 0.32 and 0.33", "vllm-032-and-033"), ("`medley init`: hosts", "medley-init-hosts")],
)
def test_the_anchor_of_a_heading(heading: str, anchor: str) -> None:
    assert slugified(heading) == anchor
