"""Check the links of README.md and docs/: `python -m tools.links` lists those that lead nowhere.

A page of docs/ links to pages of docs/ only, because a site has nothing else; a path of the repository is a
code span. `python -m tools.links --write` gives a link the title of its target where its text is a file name.
"""

import os
import re
import sys
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tools.documents import DOCS

ROOT = DOCS.parent
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(`+)[^`](?:.*?[^`])?\1(?!`)")
_LINK = re.compile(r"(?<!\\)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
_FILE = re.compile(r"^`?[\w./-]+\.md`?$")


def pages() -> list[Path]:
    """README.md and every page of the site."""
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def title(page: Path) -> str:
    """The first heading of a page."""
    return next(iter(headings(page).values()))


@cache
def headings(page: Path) -> dict[str, str]:
    """The headings of a page by their anchors, as Python-Markdown names these."""
    found: dict[str, str] = {}
    for heading in _HEADING.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        slug = anchor = slugified(heading)
        number = 0
        while anchor in found:
            number += 1
            anchor = f"{slug}_{number}"
        found[anchor] = heading
    return found


def slugified(heading: str) -> str:
    """The anchor of a heading."""
    text = unicodedata.normalize("NFKD", heading.replace("`", "")).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower())


def links(text: str) -> Iterator[tuple[int, str, str]]:
    """The line, text and target of each link of a page, without its code."""
    for pattern in (_FENCE, _CODE):
        text = pattern.sub(lambda found: re.sub(r"[^\n]", "x", found[0]), text)
    for found in _LINK.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, found[1], found[2]


def faults(page: Path, docs: Path = DOCS) -> Iterator[str]:
    """What is wrong with the links of a page, a line each."""
    in_site = page.is_relative_to(docs)
    for line, text, target in links(page.read_text(encoding="utf-8")):
        name, _, anchor = target.partition("#")
        if ":" in name:
            continue
        path = Path(os.path.normpath(page.parent / name)) if name else page
        fault = (
            "leaves docs/"
            if in_site and not path.is_relative_to(docs)
            else "is not there"
            if not path.exists()
            else "has no such heading"
            if anchor and anchor not in headings(path)
            else "has a file name as its text"
            if in_site and _FILE.match(text)
            else None
        )
        if fault:
            yield f"{page.relative_to(docs.parent)}:{line}: [{text}]({target}) {fault}"


def titled(page: Path) -> str:
    """The text of a page, its links that name files renamed after what they lead to."""

    def link(found: re.Match[str]) -> str:
        name, _, anchor = found[2].partition("#")
        path = page.parent / name if name else page
        if ":" in name or not _FILE.match(found[1]) or not path.exists():
            return found[0]
        return f"[{headings(path).get(anchor) or title(path)}]({found[2]})"

    return _LINK.sub(link, page.read_text(encoding="utf-8"))


if __name__ == "__main__":
    if "--write" in sys.argv:
        for each in sorted(DOCS.rglob("*.md")):
            each.write_text(titled(each), encoding="utf-8")
    sys.stdout.write("".join(f"{fault}\n" for each in pages() for fault in faults(each)))
