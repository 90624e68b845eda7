"""Count names that say nothing and docstrings that are no sentence, by area.

`python -m tools.identifiers` prints the counts, and with an AREA each place.
The rules are in docs/contributing/style.md.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tools.architecture import PACKAGE

VAGUE = {
    *("found", "each", "asked", "said", "told", "made", "wanted", "named", "held", "taken", "kept", "given"),
    *("ours", "beside", "those", "there"),
}
"""Words that are no name of a function, a type, a parameter, a field or a variable."""
_FRAGMENTS = {"Of", "By", "That", "Those", "As", "So"}
"""First words of a docstring that make it the rest of a sentence."""


def count() -> dict[str, int]:
    """Return the number of places in each area, and in the plain modules together."""
    counts = Counter(area for file in PACKAGE.rglob("*.py") for area, _ in _list_places(file))
    return dict(sorted(counts.items()))


def places(area: str) -> list[str]:
    """Return the places of an area, as FILE:LINE: WORD."""
    return sorted(
        place for file in PACKAGE.rglob("*.py") for other, place in _list_places(file) if other == area
    )


def _list_places(file: Path) -> Iterator[tuple[str, str]]:
    name = file.relative_to(PACKAGE)
    area = name.parts[0] if len(name.parts) > 1 else "plain"
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        for word in (*list_defined_names(node), *list_first_words(node)):
            if word in VAGUE or word in _FRAGMENTS:
                yield area, f"{name}:{getattr(node, 'lineno', 1)}: {word}"


def list_defined_names(node: ast.AST) -> Iterator[str]:
    """Yield what a node names: a function, a type, a parameter, or a variable of a statement of its own."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name.strip("_")
        case ast.arg():
            yield node.arg
        case ast.Assign():
            for target in node.targets:
                yield from (each.id.strip("_") for each in ast.walk(target) if isinstance(each, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.NamedExpr(target=ast.Name(id=name)):
            yield name.strip("_")
        case ast.For() | ast.AsyncFor():
            yield from (each.id for each in ast.walk(node.target) if isinstance(each, ast.Name))
        case _:
            pass


def list_first_words(node: ast.AST) -> Iterator[str]:
    """Yield the first word of a docstring, or of a string that describes the value before it."""
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            yield text.split(maxsplit=1)[0] if text.strip() else ""
        case _:
            pass


def list_missing_names(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and each `word` of a function's docstring that its module has nowhere else."""
    tree = ast.parse(source)
    docstrings = {
        id(node.body[0].value): node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and ast.get_docstring(node) is not None
        and isinstance(node.body[0], ast.Expr)
    }
    known_words: set[str] = set()
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name", "asname", "module"):
            known_words |= set(str(getattr(node, field, "") or "").split("."))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            known_words |= set(re.findall(r"\w+", node.value))
    for node in docstrings.values():
        for word in re.findall(r"`([a-z_]+)`", ast.get_docstring(node) or ""):
            if word not in known_words:
                yield node.lineno, word


if __name__ == "__main__":
    print("\n".join(places(sys.argv[1]) if sys.argv[1:] else (f"{area} {n}" for area, n in count().items())))
