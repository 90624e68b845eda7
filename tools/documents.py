"""The programs that stand in the documentation, as a reader would copy them."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def programs(page: str) -> list[str]:
    """Every Python block of a page, in order."""
    return _BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))
