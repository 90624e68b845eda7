"""Read the commands of a page with the output that it shows, and compare that with what is printed.

A `console` block has lines such as `spark-1$ medley up`; the lines below are the output. In it `…` stands for
any text within a line, and on a line of its own for any number of lines.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from medley.cli import VERBS

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
ANY = "…"
CHAT = "chat" if "chat" in VERBS else "ask"
_BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PROMPT = re.compile(r"^([a-z][a-z0-9-]*)?\$ (.*)$")


@dataclass(frozen=True)
class Step:
    """One command of a page, the host it is typed on (empty: this one), and the output below it."""

    host: str
    command: str
    shown: tuple[str, ...]


def steps(text: str) -> Iterator[Step]:
    """Yield the commands of a page's `console` blocks, in their order."""
    for block in _BLOCK.findall(text):
        host, command, shown = "", "", list[str]()
        for line in [*block.splitlines(), "$ "]:
            if (prompt := _PROMPT.match(line)) is None:
                shown.append(line)
                continue
            if command:
                yield Step(host, command, tuple(shown))
            host, command, shown = prompt[1] or "", prompt[2], []


def difference(shown: tuple[str, ...], printed: str) -> str | None:
    """Return both texts where a page shows what the command did not print; None where they agree."""
    lines = [line.rstrip() for line in printed.strip("\n").splitlines()]
    if re.fullmatch(_pattern(shown), "".join(f"{line}\n" for line in lines)):
        return None
    return "\n".join(["the page shows:", *shown, "", "the command printed:", *lines])


def _pattern(shown: tuple[str, ...]) -> str:
    kept = shown[: len(shown) - next((n for n, line in enumerate(reversed(shown)) if line), len(shown))]
    return "".join(
        r"(?:.*\n)*?" if line == ANY else re.escape(line).replace(re.escape(ANY), ".*?") + r"\n"
        for line in kept
    )
