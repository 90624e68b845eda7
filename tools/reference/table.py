"""Tables of Markdown."""

import html
import re
from collections.abc import Iterable, Sequence

_CODE = re.compile(r"(`[^`]+`)")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; its cells have no line breaks and no bare bars."""
    return "\n".join(
        (_row(heads), f"|{'---|' * len(heads)}", *(_row([each or "–" for each in row]) for row in rows))
    )


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def cell(text: str) -> str:
    """A text as it can stand in a cell: on one line, without bars."""
    parts = _CODE.split(prose(" ".join(text.split())))
    return "".join(code(part[1:-1]) if at % 2 else part.replace("|", "\\|") for at, part in enumerate(parts))


def code(text: str) -> str:
    """Code that can stand in a cell; a bar in backticks differs between a site and a forge."""
    if "|" not in text:
        return f"`{text}`"
    return f"<code>{html.escape(text, quote=False).replace('|', '&#124;')}</code>"


def prose(text: str) -> str:
    """A program's text as Markdown: what looks like a tag or emphasis is neither; code in a line stays."""
    parts = _CODE.split(text)
    return "".join(
        part if at % 2 else re.sub(r"([*\[\]])", r"\\\1", part.replace("<", "&lt;"))
        for at, part in enumerate(parts)
    )
