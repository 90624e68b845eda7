"""Record what `medley plan` prints, where a page shows it."""

import os
import re

from tools.plan_outputs import HOME, Case, printed
from tools.tutorials.pages import ROOT, TUTORIALS

PAGES = (
    ROOT / "README.md",
    *sorted(TUTORIALS.glob("*.md")),
    ROOT / "docs" / "how-to" / "choose-a-model.md",
    ROOT / "docs" / "explanation" / "when-a-second-machine-helps.md",
)
_BLOCK = re.compile(r"^```console\n.*?^```", re.MULTILINE | re.DOTALL)
_SHOWN = re.compile(
    r"^(\S*\$ medley plan (\S+) --hosts (\S+)(.*?)(?: \| head -(\d+))?\n)(?:(?!```|\S*\$ ).*\n)*",
    re.MULTILINE,
)


def recorded(page: str) -> str:
    """Return the page with each plan of its `console` blocks as it is printed today."""
    return _BLOCK.sub(lambda block: _SHOWN.sub(_printed, block[0]), page)


def _printed(found: re.Match[str]) -> str:
    command, model, cluster, options, first = found.groups()
    case = Case(cluster, model, options)
    lines = printed(case).rstrip("\n").splitlines()
    if any(line.startswith("  cause: ") for line in lines):
        lines[0] = f"medley: {lines[0]}"  # which `main` puts before a Problem
    return command + "".join(f"{line}\n" for line in lines[: int(first) if first else None])


def record() -> None:
    """Write the pages again."""
    os.environ |= HOME
    for page in PAGES:
        page.write_text(recorded(page.read_text()))
