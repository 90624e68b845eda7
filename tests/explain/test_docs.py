"""The table of docs/reference/known-failures.md is what the code knows, and the example of docs/how-to/add-a-known-failure.md is right."""

import re
import textwrap
from pathlib import Path

import pytest

from medley.explain import diagnosis
from medley.explain.patterns import Failure
from tests.explain.test_explain import FAILURES

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "known-failures.md"
PAGE = DOCS.parents[1].joinpath("how-to", "add-a-known-failure.md").read_text()


def row(known: Failure) -> str:
    what = re.sub(r"\{\w+\}", "…", known.what)
    sign = known.signs[0].needle.replace("|", "\\|")
    follows = "; follows from something else" if known.symptom else ""
    return f"| {known.name} | {what}{follows} | `` {sign} `` |"


def test_the_table_is_what_is_known() -> None:
    rows = [line for line in DOCS.read_text().splitlines() if line.startswith("| ")][1:]
    assert rows == [row(each) for each in FAILURES.values()]


def test_each_verb_in_a_fix_is_one() -> None:
    """And each switch of a verb of ours."""
    from medley.cli import VERBS

    verbs = {*VERBS, "doctor"}
    for known in FAILURES.values():
        for verb in re.findall(r"\bmedley ([a-z-]+)", known.fix):
            assert verb in verbs, (known.name, verb)


def test_no_fix_sets_a_variable_that_vllm_ignores() -> None:
    from medley.engine.unread_variables import GONE

    gone = {name for names in GONE.values() for name in names}
    for known in FAILURES.values():
        assert not gone & set(re.findall(r"\w+", known.fix)), known.name


def test_the_example_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [line for line in PAGE.splitlines() if line.startswith("    ")]
    file = tmp_path / "failures" / "mine.toml"
    file.parent.mkdir()
    file.write_text(textwrap.dedent("\n".join(lines)))
    monkeypatch.setenv("MEDLEY_CONFIG", str(tmp_path))
    assert diagnosis.check()[file] is None


def test_each_key_is_told() -> None:
    told = set(
        re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in PAGE.splitlines() if line[:3] == "| `"))
    )
    assert told == set(Failure.model_fields) - {"name"}
