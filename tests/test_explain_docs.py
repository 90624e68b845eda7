"""The table of docs/explain.md is what the code knows."""

import re
from pathlib import Path

from medley.explain import KNOWN
from medley.explain.known import Known

DOCS = Path(__file__).parents[1] / "docs" / "explain.md"


def row(known: Known) -> str:
    what = re.sub(r"\{\w+\}", "…", known.what)
    sign = known.shapes[0].needle.replace("|", "\\|")
    follows = "; follows from something else" if known.symptom else ""
    return f"| {known.name} | {what}{follows} | `` {sign} `` |"


def test_the_table_is_what_is_known() -> None:
    rows = [line for line in DOCS.read_text().splitlines() if line.startswith("| ")][1:]
    assert rows == [row(each) for each in KNOWN]


def test_each_verb_in_a_fix_is_one() -> None:
    """And each switch of a verb of ours."""
    from medley.cli import VERBS

    verbs = {*VERBS, "doctor"}
    for known in KNOWN:
        for verb in re.findall(r"\bmedley ([a-z-]+)", known.fix):
            assert verb in verbs, (known.name, verb)
