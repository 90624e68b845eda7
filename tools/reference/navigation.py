"""The pages of the site by kind, each with its title: the `nav` of docs/mkdocs.yml."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from medley.cli import GROUPS
from tools.documents import DOCS

CONFIG = DOCS / "mkdocs.yml"
KINDS: Mapping[str, str] = {
    "Tutorials": "tutorials first-server two-sparks mixed-cluster",
    "How-to": "how-to install install/* upgrade uninstall nix own-flake nix-image jetson-orin choose-a- "
    "model add-a-model model-code recipes connect-clients open-the-api start-at-boot leave-it- "
    "running cluster-over-ssh cluster-by-hand copy-models containers network-setup test-the-network "
    "firewall monitor benchmark python-scripts troubleshoot add-a-known-failure field-report add-a-"
    "kind-of-host",
    "Reference": "reference cluster-toml model-toml host-toml lock-toml failure-toml tables doctor-checks "
    "known-failures metrics nixos-options support-matrix",
    "Explanation": "explanation how-planning-works prediction when-a-second-machine-helps networks "
    "environments engines launchers model-transfer nix security published-guides",
    "Contributing": "contributing architecture style testing simulated-cluster nix routes",
}
"""Each kind of page: its folder, and its pages in order. Pages that are not named come last, by name."""
_NAV = re.compile(r"^nav:\n(?:  .*\n)*", re.MULTILINE)


def configured(new: Mapping[Path, str]) -> str:
    """The text of the configuration, with the pages that are there and those that are new."""
    return _NAV.sub(lambda _: f"nav:\n{''.join(_lines(new))}", CONFIG.read_text(encoding="utf-8"))


def _lines(new: Mapping[Path, str]) -> Iterator[str]:
    there = {each for each in DOCS.rglob("*.md") if each.exists()} | set(new)
    yield "  - index.md\n"
    for kind, words in KINDS.items():
        folder, *order = words.split()
        pages = [each for each in there if each.is_relative_to(DOCS / folder) and each.parent.name != "cli"]
        if not pages:
            continue
        yield f"  - {kind}:\n"
        if kind == "Reference":
            yield from _verbs()
        for page in sorted(pages, key=lambda page: _place(page, DOCS / folder, order)):
            text = new[page] if page in new else page.read_text(encoding="utf-8")
            yield f"    - {json.dumps(_title(text), ensure_ascii=False)}: {page.relative_to(DOCS)}\n"


def start(before: str) -> str:
    """A line for each tutorial; where there is none, what stands there."""
    folder, *order = KINDS["Tutorials"].split()
    pages = sorted((DOCS / folder).glob("*.md"), key=lambda page: _place(page, DOCS / folder, order))
    lines = (f"- [{_title(page.read_text(encoding='utf-8'))}]({page.relative_to(DOCS)})" for page in pages)
    return "\n".join(lines) or before.strip()


def _verbs() -> Iterator[str]:
    yield "    - Verbs:\n      - reference/cli/index.md\n"
    for title, names in GROUPS.items():
        yield f"      - {title}:\n"
        yield from (f"        - {name}: reference/cli/{name}.md\n" for name in names.split())


def _place(page: Path, folder: Path, order: list[str]) -> tuple[int, str]:
    """Where a page stands among those of its kind."""
    name = str(page.relative_to(folder).with_suffix(""))
    known = name if "/" not in name else f"{name.partition('/')[0]}/*"
    return (order.index(known) if known in order else len(order)), name


def _title(text: str) -> str:
    return next(line[2:] for line in text.splitlines() if line.startswith("# ")).replace("`", "")
