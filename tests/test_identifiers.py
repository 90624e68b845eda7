"""Names that say nothing, and docstrings that are no sentence, only become fewer."""

import ast

from tools import identifiers

ALLOWED = {
    "cluster": 5,
    "engine": 4,
    "environment": 3,
    "host": 6,
    "measurement": 7,
    "model": 1,
    "network": 5,
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
