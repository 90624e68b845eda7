"""The fixes of known failures name verbs that exist, and the page about adding one has a valid example."""

import re
import textwrap
from pathlib import Path

import pytest

from medley.explain import diagnosis, patterns
from tools.documents import DOCS

KNOWN = patterns.load(user=False)
FIXES = {each.name: each.fix for each in (*KNOWN.failures, *KNOWN.phases)}
FIXES |= {each.name: each.instead or "" for each in KNOWN.components}
PAGE = (DOCS / "how-to" / "add-a-known-failure.md").read_text(encoding="utf-8")


def test_each_verb_in_a_fix_is_one() -> None:
    """And each switch of a verb of ours."""
    from medley.cli import VERBS

    verbs = {*VERBS, "doctor"}
    for name, fix in FIXES.items():
        for verb in re.findall(r"\bmedley ([a-z-]+)", fix):
            assert verb in verbs, (name, verb)


def test_no_fix_sets_a_variable_that_vllm_ignores() -> None:
    from medley.engine.unread_variables import REMOVED_VARIABLES

    gone = {name for names in REMOVED_VARIABLES["vllm"].values() for name in names}
    for name, fix in FIXES.items():
        assert not gone & set(re.findall(r"\w+", fix)), name


def test_the_example_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [line for line in PAGE.splitlines() if line.startswith("    ")]
    file = tmp_path / "failures" / "mine.toml"
    file.parent.mkdir()
    file.write_text(textwrap.dedent("\n".join(lines)))
    monkeypatch.setenv("MEDLEY_CONFIG", str(tmp_path))
    assert diagnosis.check()[file] is None


def test_python_in_a_fix_imports_nothing_from_the_current_folder() -> None:
    """The folder may be a stranger's; pydoc is to show a file there that hides a module."""
    in_image = re.compile(r"IMAGE python3|&& python3 -m vllm")
    unsafe = re.compile(r"(?<!PYTHONSAFEPATH=1 )python3? -(?:c|m(?! pydoc))\b.{20}")
    for name, fix in FIXES.items():
        assert unsafe.findall(in_image.sub("", fix)) == [], name
