"""Find the tests with the mark `slow` in the text of the test modules; pytest takes 40 s to collect them."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

HELPERS = ("tests", "tools", "benchmarks")
"""The packages whose modules tests import."""
_MARK = "mark.slow"


@dataclass(frozen=True)
class _Slow:
    """The names of a module that bring the mark to a test."""

    values: frozenset[str] = frozenset()
    """Constants and functions that a decorator may use."""
    fixtures: frozenset[str] = frozenset()

    def __or__(self, other: "_Slow") -> "_Slow":
        return _Slow(self.values | other.values, self.fixtures | other.fixtures)

    def marks(self, nodes: Iterable[ast.AST]) -> bool:
        """Return whether one of the nodes contains the mark itself or a value that brings it."""
        return any(
            (isinstance(node, ast.Attribute) and ast.unparse(node) == f"pytest.{_MARK}")
            or (isinstance(node, ast.Name) and node.id in self.values)
            for each in nodes
            for node in ast.walk(each)
        )

    def uses(self, function: ast.FunctionDef) -> bool:
        """Return whether a test or a fixture has a slow fixture as an argument."""
        return any(each.arg in self.fixtures for each in (*function.args.args, *function.args.kwonlyargs))


@dataclass(frozen=True)
class Modules:
    """The test modules under a root, and what they import."""

    root: Path

    def slow_tests(self) -> list[str]:
        """Return the node IDs of the slow test functions, sorted, without parameters."""
        files = (path for path in self._texts if path.name.startswith("test_"))
        return sorted(test for path in files for test in self._slow_tests(path))

    def helpers(self, test: str) -> list[str]:
        """Return the module of a test and the modules of HELPERS that it imports, relative to the root."""
        module = test.partition("::")[0]
        nodes = ast.walk(self._tree(self.root / module))
        imports = (node for node in nodes if isinstance(node, ast.ImportFrom))
        found = (path for node in imports for path in self._imported(node))
        return sorted({module, *(path.relative_to(self.root).as_posix() for path in found)})

    @cached_property
    def _texts(self) -> dict[Path, str]:
        return {path: path.read_text(encoding="utf-8") for path in (self.root / "tests").rglob("*.py")}

    @cached_property
    def _trees(self) -> dict[Path, ast.Module]:
        return {}

    @cached_property
    def _known(self) -> dict[Path, _Slow]:
        return {}

    @cached_property
    def _marked_helpers(self) -> set[str]:
        """The names of modules without tests from which a module may get the mark."""
        helpers = {path: text for path, text in self._texts.items() if not path.name.startswith("test_")}
        found = {path.stem for path, text in helpers.items() if _MARK in text}
        while (
            new := {path.stem for path, text in helpers.items() if any(each in text for each in found)}
            - found
        ):
            found |= new
        return found

    def _tree(self, path: Path) -> ast.Module:
        if path not in self._trees:
            self._trees[path] = ast.parse(self._texts[path])
        return self._trees[path]

    def _imported(self, node: ast.ImportFrom) -> Iterator[Path]:
        name = node.module or ""
        if node.level or name.partition(".")[0] not in HELPERS:
            return
        folder = self.root.joinpath(*name.split("."))
        own = (folder.with_suffix(".py"), folder / "__init__.py")
        for path in (*own, *(folder / f"{each.name}.py" for each in node.names)):
            if path.is_file():
                yield path

    def _slow_tests(self, path: Path) -> Iterator[str]:
        slow = self._slow(path)
        everything = "pytestmark" in slow.values
        for folder in path.parents:
            if (folder / "conftest.py") in self._texts:
                slow |= _Slow(fixtures=self._slow(folder / "conftest.py").fixtures)
        if slow != _Slow() or _MARK in self._texts[path]:
            module = path.relative_to(self.root).as_posix()
            yield from _tests(self._tree(path).body, slow, module, everything=everything)

    def _slow(self, path: Path) -> _Slow:
        """The names of a module that bring the mark, with those that it imports."""
        text = self._texts.get(path, "")
        if path not in self._known:
            self._known[path] = _Slow()  # ends a circle of imports
            if _MARK in text or any(each in text for each in self._marked_helpers):
                body = self._tree(path).body
                self._known[path] = _with_own(self._with_imports(body), body)
        return self._known[path]

    def _with_imports(self, body: Iterable[ast.stmt]) -> _Slow:
        found = _Slow()
        for node in body:
            if isinstance(node, ast.ImportFrom):
                names = {each.name: each.asname or each.name for each in node.names}
                for path in self._imported(node):
                    slow = self._slow(path)
                    found |= _Slow(_renamed(slow.values, names), _renamed(slow.fixtures, names))
        return found


def _renamed(found: frozenset[str], names: dict[str, str]) -> frozenset[str]:
    return frozenset(names[each] for each in found if each in names)


def _with_own(slow: _Slow, body: list[ast.stmt]) -> _Slow:
    """Add what a module defines itself, again until nothing is added: a function may use a later name."""
    found = slow
    for node in body:
        match node:
            case ast.FunctionDef() if any("fixture" in ast.unparse(each) for each in node.decorator_list):
                if found.marks(node.decorator_list) or found.uses(node):
                    found |= _Slow(fixtures=frozenset({node.name}))
            case ast.FunctionDef() if not node.name.startswith("test") and found.marks([node]):
                found |= _Slow(values=frozenset({node.name}))
            case ast.Assign() | ast.AnnAssign() if node.value and found.marks([node.value]):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found |= _Slow(values=frozenset(each.id for each in targets if isinstance(each, ast.Name)))
            case _:
                pass
    return found if found == slow else _with_own(found, body)


def _tests(body: Iterable[ast.stmt], slow: _Slow, prefix: str, *, everything: bool) -> Iterator[str]:
    """Yield the node IDs of the slow tests of a module or a class."""
    for node in body:
        match node:
            case ast.ClassDef() if node.name.startswith("Test"):
                marked = everything or slow.marks(node.decorator_list)
                yield from _tests(node.body, slow, f"{prefix}::{node.name}", everything=marked)
            case ast.FunctionDef() if node.name.startswith("test"):
                if everything or slow.marks(node.decorator_list) or slow.uses(node):
                    yield f"{prefix}::{node.name}"
            case _:
                pass
