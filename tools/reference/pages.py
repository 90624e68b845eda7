"""Every page of the generated reference, as it should stand.

Whole pages are those of the verbs. Elsewhere a command writes what is between `<!-- generated: NAME -->` and
`<!-- end -->`, and the words around it are a person's.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tools.documents import DOCS
from tools.reference import checks, failures, keys, metrics, navigation, verbs

CLI = DOCS / "reference" / "cli"
_BLOCK = re.compile(r"(<!-- generated: (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
BLOCKS: Mapping[str, Callable[[str], str]] = {
    **keys.BLOCKS,
    "checks": checks.table,
    "failures": failures.table,
    "metrics": metrics.table,
    "tutorials": navigation.start,
}
"""What writes each block, from what stands there."""


def written() -> Iterator[tuple[Path, str]]:
    """Every page with generated text, and its text; last the site's configuration, which lists all pages."""
    pages = {CLI / f"{name}.md": text for name, text in verbs.pages().items()}
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        if page.parent != CLI and _BLOCK.search(text):
            pages[page] = _BLOCK.sub(_block, text)
    yield from pages.items()
    yield navigation.CONFIG, navigation.configured(pages)


def stale() -> list[Path]:
    """Pages of verbs that are there no more."""
    return sorted(set(CLI.glob("*.md")) - {CLI / f"{name}.md" for name in verbs.pages()})


def blocks() -> set[str]:
    """The names of the blocks that pages have."""
    return {
        found[2] for page in DOCS.rglob("*.md") for found in _BLOCK.finditer(page.read_text(encoding="utf-8"))
    }


def _block(found: re.Match[str]) -> str:
    return f"{found[1]}\n{BLOCKS[found[2]](found[3])}\n\n{found[4]}"
