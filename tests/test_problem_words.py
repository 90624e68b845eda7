"""The words of Problems: `problem_words.txt` is the one place where tests hold them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import medley

SOURCES = Path(medley.__file__).parent
WORDS = Path(__file__).with_name("problem_words.txt")


def sentences(file: Path) -> Iterator[str]:
    """Yield every string of a file in one line; what stands in braces is {}."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)  # type: ignore[misc]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def table() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in WORDS.read_text(encoding="utf-8").splitlines():
        if line.endswith(".py"):
            found[line] = []
        elif line:
            found[next(reversed(found))].append(line.strip())
    return found


@pytest.mark.parametrize(("file", "expected"), table().items(), ids=table())
def test_a_file_has_these_words(file: str, expected: list[str]) -> None:
    """After a change of words: change the line of `problem_words.txt`, too."""
    there = set(sentences(SOURCES / file))
    assert [each for each in expected if each not in there] == []
