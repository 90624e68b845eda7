"""The failures that `medley explain` knows, from failures/*.toml."""

import re
import tomllib
from pathlib import Path

from medley.explain.patterns import Failure, File
from tools.documents import DOCS
from tools.reference.table import cell, code
from tools.reference.table import table as markdown

FAILURES = DOCS.parent / "failures"


def table(_before: str = "") -> str:
    """A row for each known failure and each phase in which a log may end, by file."""
    known = [failure for file in sorted(FAILURES.glob("*.toml")) for failure in _read(file)]
    return markdown(("name", "failure", "a line that shows it"), map(_row, known))


def _read(file: Path) -> tuple[Failure, ...]:
    found = File.from_table(tomllib.loads(file.read_text(encoding="utf-8")))
    return (*found.failure, *found.wording, *(phase for phase in found.phase if not phase.complete))


def _row(known: Failure) -> tuple[str, str, str]:
    what = cell(re.sub(r"\{\w+\}", "…", known.what))
    follows = "; follows from another failure" if known.symptom else ""
    sign = known.signs[0].needle
    return f"`{known.name}`", f"{what}{follows}", f"`` {sign} ``" if "`" in sign else code(sign)
