"""Names that say nothing, and docstrings that are no sentence, only become fewer."""

import ast

from tools import identifiers
from tools.architecture import PACKAGE

ALLOWED = {
    "cluster": 3,
    "measurement": 7,
    "plain": 1,
}
"""The most places of each area; after a renaming write the lower number."""


def test_vague_names_only_become_fewer() -> None:
    counts = identifiers.count()
    assert {area: number for area, number in counts.items() if number > ALLOWED.get(area, 0)} == {}
    assert {area: most for area, most in ALLOWED.items() if most > counts.get(area, 0)} == {}


def test_what_counts() -> None:
    source = """
def found(told):
    "Of a host."
    asked = [each for each in told]
    for there in asked: pass
"""
    words = [
        word
        for node in ast.walk(ast.parse(source))
        for word in (*identifiers.list_defined_names(node), *identifiers.list_first_words(node))
    ]
    assert sorted(words) == ["Of", "asked", "found", "there", "told"]


WORDS_OF_USERS = {
    *(
        "default",
        "history",
        "ls",
        "main",
        "nobody",
        "none",
        "serve",
        "show",
        "source",
        "spark",
        "up",
        "watch",
    ),
    "with",
}
"""Words in docstrings that are typed by users or read from files, and are no name of their module."""


def test_docstrings_name_parameters_that_exist() -> None:
    """After a renaming 28 docstrings explained parameters that were gone."""
    missing = [
        f"{file.relative_to(PACKAGE)}:{line}: `{word}`"
        for file in sorted(PACKAGE.rglob("*.py"))
        for line, word in identifiers.list_missing_names(file.read_text(encoding="utf-8"))
        if word not in WORDS_OF_USERS
    ]
    assert missing == []


def test_a_parameter_that_is_gone_is_listed() -> None:
    source = 'def f(kind_name):\n    """Return it; `named` is --kind, `kind_name` its value."""\n'
    assert list(identifiers.list_missing_names(source)) == [(1, "named")]
