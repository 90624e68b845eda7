"""Draw the areas of `medley` from its code, and list its modules.

python -m tools.architecture            write the picture into docs/contributing/architecture.md
python -m tools.architecture modules    print the list, which `python -m tools.site` puts on that page
"""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pysrc" / "medley"
PAGE = ROOT / "docs" / "contributing" / "architecture.md"
PICTURE = "```text\n"
AREAS = (
    *("cli", "doctor", "measurement", "serving", "cluster", "engine"),
    *("planner", "environment", "model", "network", "host", "explain"),
)


def picture() -> str:
    """Each area from the top down, and the areas that it imports; the plain modules."""
    return "\n".join((*_areas(), f"plain        {' '.join(plain())}"))


def modules() -> str:
    """A table of all modules, the areas from the top down, each with the first line of its docstring."""
    files = [
        *sorted(PACKAGE.glob("*.py")),
        *(file for area in AREAS for file in sorted((PACKAGE / area).rglob("*.py"))),
    ]
    rows = ((file, _read(file)[0]) for file in files)
    names = (
        (str(file.relative_to(PACKAGE)).removesuffix("__init__.py").removesuffix(".py"), line)
        for file, line in rows
    )
    return "\n".join(
        (
            "| module | what it does |",
            "|---|---|",
            *(f"| `{name or 'medley'}` | {line} |" for name, line in names),
        )
    )


def page() -> str:
    """The page with the picture of the code as it is."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(PICTURE)
    after = rest.partition("```\n")[2]
    return f"{before}{PICTURE}{picture()}\n```\n{after}"


def plain() -> list[str]:
    """The modules beside the areas, which every area may import."""
    return sorted(file.stem for file in PACKAGE.glob("*.py") if not file.stem.startswith("__"))


def _areas() -> Iterator[str]:
    for area in AREAS:
        files = sorted((PACKAGE / area).rglob("*.py"))
        used = {each for file in files for each in _read(file)[1]}
        below = [each for each in AREAS if each in used and each != area]
        yield f"{area:<12} -> {' '.join(below) or '-'}"


@cache
def _read(file: Path) -> tuple[str, frozenset[str]]:
    """The first line of a file's docstring, and what it imports."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return (ast.get_docstring(tree) or "").partition("\n")[0], frozenset(_imported(tree))


def _imported(tree: ast.Module) -> Iterator[str]:
    """The areas and plain modules that a file imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            top, *rest = node.module.split(".")
            if top == "medley":
                yield from rest[:1] or (alias.name for alias in node.names)


if __name__ == "__main__":
    if sys.argv[1:] == ["modules"]:
        print(modules())
    else:
        PAGE.write_text(page(), encoding="utf-8")
