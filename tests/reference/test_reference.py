"""The generated reference is what the code is, and none of its cells is empty."""

from pathlib import Path

import pytest
from plumbum import cli

from medley.cli import GROUPS, Medley, Verb
from medley.doctor.registry import RULES
from medley.schema import Model
from tools.documents import DOCS
from tools.reference import checks, keys, navigation, verbs
from tools.reference.pages import BLOCKS, CLI, blocks, stale, written
from tools.reference.table import cell, table

AGAIN = "python -m tools.reference writes it again"
WRITTEN = dict(written())


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_a_page_is_as_written(page: Path) -> None:
    assert page.exists(), AGAIN
    assert page.read_text(encoding="utf-8") == WRITTEN[page], AGAIN


def test_no_page_is_left_of_what_is_gone() -> None:
    assert stale() == [], AGAIN


def test_every_verb_and_every_option_has_its_place() -> None:
    known = Medley("medley").load_verbs()
    assert {name for names in GROUPS.values() for name in names.split()} == set(known)
    for name, kind in known.items():
        page = WRITTEN[CLI / f"{name}.md"]
        for info in kind(f"medley {name}").list_switch_infos():
            assert all(f"--{each}" in page for each in info.names if len(each) > 1), (name, info.names)


class GroupedVerb(Verb):
    """A verb with a group of options, as plumbum has them."""

    DESCRIPTION_MORE = "\nIt takes NAME|PATH.\n\nExamples:\n    medley grouped -n 2 <FILE>\n"
    number = cli.SwitchAttr(
        ["-n", "--number"], cli.Range(1, 1024), argname="N", help="how many", group="Layout"
    )
    kind = cli.SwitchAttr("--kind", cli.Set("a", "b"), argname="KIND", help="a or c", requires=["-n"])


def test_a_page_has_groups_ranges_choices_and_examples() -> None:
    page = "\n".join(verbs.page("grouped", GroupedVerb))
    assert "It takes NAME|PATH." in page
    assert "```text\nmedley grouped -n 2 <FILE>\n```" in page
    layout = page.partition("**Layout**")[2]
    assert "| `-n, --number N` | how many; 1 to 1,024 |" in layout
    assert "| `--kind KIND` | a or c; one of `a`, `b`; needs `-n` |" in page


def test_every_block_is_on_a_page() -> None:
    assert blocks() == set(BLOCKS)


@pytest.mark.parametrize("name", keys.FILES)
def test_every_key_has_a_meaning(name: str) -> None:
    """A key without a docstring gets its meaning on the page."""
    found = dict(keys.words(WRITTEN[CLI.parent / f"{name}.md"]))
    assert found
    assert [key for key, meaning in found.items() if meaning == "–"] == []


def test_every_check_has_its_words() -> None:
    """When it fails, and the fix: a person writes them on the page."""
    rows = checks.rows(WRITTEN[CLI.parent / "doctor-checks.md"])
    assert [row[0] for row in rows] == [f"`{rule.name}`" for rule in RULES]
    assert [row[0] for row in rows if "–" in row[2:]] == []


def test_a_meaning_on_the_page_is_kept_where_the_code_has_none() -> None:
    made = keys.keys(Model, "| `title` | text | required | mine |\n| `license` | text | – | not this |")
    assert "| `title` | text | required | mine |" in made
    assert "not this" not in made


def test_the_site_lists_every_page() -> None:
    text = WRITTEN[navigation.CONFIG]
    listed = [line.rpartition(" ")[2] for line in text.splitlines() if line.endswith(".md")]
    pages = {*DOCS.rglob("*.md"), *WRITTEN} - {navigation.CONFIG}
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in pages)


def test_a_cell_breaks_no_table() -> None:
    assert cell("a | b\n <c> `*.toml` *") == "a \\| b &lt;c> `*.toml` \\*"
    assert cell("as `N|KINDS`") == "as <code>N&#124;KINDS</code>"
    assert table(("x", "y"), [("1", "")]) == "| x | y |\n|---|---|\n| 1 | – |"
