"""List where each choice, environment variable, default and limit is decided, for a page of the site.

python -m tools.decisions            print the four tables
python -m tools.decisions WORD       print the rows with this word
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tools.architecture import PACKAGE, ROOT

PAGE = ROOT / "docs" / "explanation" / "decisions.md"
_NAME = re.compile(r"[A-Z][A-Z0-9]*(_[\w…]+)+")
_NIX = re.compile(r"(?<![\w$.{])([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)(?: = |=)")
_NIX_ONLY = {"toolkit.nix", "shell.nix", "tables.nix"}
"""Files whose variables a host without Nix gets from its environment's own wheels, or not at all."""


@dataclass(frozen=True, order=True)
class Decision:
    """One name, its value or reason, and the place that decides it."""

    name: str
    value: str
    place: str

    def row(self) -> str:
        value = self.value.replace("|", "\\|")
        return f"| `{self.name}` | {value} | `{self.place}` |"


@cache
def variables() -> list[Decision]:
    """Return each environment variable that medley sets, with its reason, by file and function."""
    made = {decision for file in _files() for decision in _list_variables(file)}
    return sorted(made | set(_list_table_variables()) | set(_list_nix_variables()))


def defaults() -> list[Decision]:
    """Return the default of each option that has one."""
    return sorted({decision for file in _files() for decision in _list_defaults(file)})


def limits() -> list[Decision]:
    """Return each number that is a constant of a module, with the first line of its description."""
    return sorted({decision for file in _files() for decision in _list_limits(file)})


def choices() -> list[Decision]:
    """Return each function `choose_…` that other modules call, with the first line of its docstring."""
    return sorted({decision for file in _files() for decision in _list_choices(file)})


def tables(word: str = "") -> str:
    """Return the four tables; with `word`, the rows that contain it, or nothing."""
    parts = []
    for title, head, rows in (
        ("Choices", "function | what it returns | decided in", choices()),
        ("Environment variables", "variable | why | set in", variables()),
        ("Defaults", "option | default | decided in", defaults()),
        ("Limits", "number | value | decided in", limits()),
    ):
        lines = [row for row in (decision.row() for decision in rows) if word.lower() in row.lower()]
        if lines:
            columns = "|".join("---" for _ in head.split("|"))
            parts.append("\n".join((f"### {title}\n", f"| {head} |", f"|{columns}|", *lines)))
    return "\n\n".join(parts)


def _files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@cache
def _parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def _place(file: Path, function: str) -> str:
    name = str(file.relative_to(PACKAGE))
    return f"{name}: {function}" if function else name


def _list_variables(file: Path) -> Iterator[Decision]:
    """Yield the variables of `Variable(NAME, value, reason)` in a file."""
    assignments = list(_list_strings(file))
    for function, node in _walk(_parse(file), ""):
        if not (isinstance(node, ast.Call) and _called(node) == "Variable" and node.args):
            continue
        # A function may assign a name several times: the last one before the call counts.
        strings = {
            name: text
            for place, line, name, text in assignments
            if place == "" or (place == function and line <= node.lineno)
        }
        name, reason = (_read_text(word, strings) for word in (node.args[0], node.args[-1]))
        if _NAME.fullmatch(name):
            yield Decision(name, reason, _place(file, function))


def _list_strings(file: Path) -> Iterator[tuple[str, int, str, str]]:
    """Yield each assignment of a text to a name: the function around it, its line, the name and the text."""
    for function, node in _walk(_parse(file), ""):
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(
            node.value, ast.Constant | ast.JoinedStr
        ):
            for target in _list_targets(node):
                if isinstance(target, ast.Name):
                    yield function, node.lineno, target.id, _read_text(node.value, {})


def _list_targets(node: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def _read_text(node: ast.expr, strings: Mapping[str, str]) -> str:
    """Return the text of an expression, with … for parts that are known at run time only."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_read_text(part, strings) or "…" for part in parts)
        case ast.Name(id=name):
            return strings.get(name, "")
        case _:
            return ""


def _list_table_variables() -> Iterator[Decision]:
    """Yield the variables in the tables of kinds of hosts and models, which need no change of the program."""
    for folder in ("hosts", "models"):
        for file in sorted((ROOT / folder).glob("*.toml")):
            for keys, value in _walk_table(tomllib.loads(file.read_text(encoding="utf-8")), ()):
                if _NAME.fullmatch(keys[-1]) and not isinstance(value, dict):
                    yield Decision(keys[-1], f"`{value}`", f"{folder}/{file.name}: {'.'.join(keys[:-1])}")


def _list_nix_variables() -> Iterator[Decision]:
    for file in sorted((ROOT / "nix").glob("*.nix")):
        for name in set(_NIX.findall(file.read_text(encoding="utf-8"))):
            reason = "only with Nix" if file.name in _NIX_ONLY else "set by Nix for medley's own use"
            yield Decision(name, reason, f"nix/{file.name}")


def _list_defaults(file: Path) -> Iterator[Decision]:
    """Yield the defaults of `switch("--name …", …, default=…)` in a file."""
    for function, node in _walk(_parse(file), ""):
        if not (isinstance(node, ast.Call) and _called(node) == "switch" and node.args):
            continue
        first = node.args[0]
        default = next((each.value for each in node.keywords if each.arg == "default"), None)
        if isinstance(first, ast.Constant) and default is not None:
            yield Decision(
                str(first.value).split(" ", 1)[0], f"`{ast.unparse(default)}`", _place(file, function)
            )


def _list_limits(file: Path) -> Iterator[Decision]:
    """Yield the constants of a file that are numbers, each with the first line of the string after it."""
    body = _parse(file).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not (isinstance(node, ast.Assign | ast.AnnAssign) and node.value and _is_number(node.value)):
            continue
        text = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            text = f". {str(after.value.value).partition(chr(10))[0]}"
        for target in _list_targets(node):
            for name, value in _pair_values(target, node.value):
                if name.isupper():
                    yield Decision(name.lstrip("_"), f"`{ast.unparse(value)}`{text}", _place(file, ""))


def _list_choices(file: Path) -> Iterator[Decision]:
    for node in ast.walk(_parse(file)):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("choose_"):
            yield Decision(node.name, (ast.get_docstring(node) or "").partition("\n")[0], _place(file, ""))


def _pair_values(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield each assigned name with its value: one, or those of `_A, _B = 1, 2`."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for part, part_value in zip(target.elts, value.elts, strict=True):
            yield from _pair_values(part, part_value)


def _is_number(node: ast.expr) -> bool:
    """Return whether an expression has numbers and units only: `64 << 20`, `4 * GIB`, `(1, 2)`."""
    parts = list(ast.walk(node))
    numbers = [each for each in parts if isinstance(each, ast.Constant)]
    units = [each for each in parts if isinstance(each, ast.Name) and each.id.isupper()]
    allowed = (ast.Constant, ast.BinOp, ast.operator, ast.UnaryOp, ast.unaryop, ast.Tuple, ast.expr_context)
    others = [each for each in parts if each not in units and not isinstance(each, allowed)]
    return bool(numbers) and not others and all(type(each.value) in {int, float} for each in numbers)


def _called(node: ast.Call) -> str:
    return getattr(node.func, "id", getattr(node.func, "attr", ""))


def _walk(node: ast.AST, function: str) -> Iterator[tuple[str, ast.AST]]:
    """Yield every node with the name of the class or function around it."""
    for child in ast.iter_child_nodes(node):
        name = function
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{function}.{child.name}".lstrip(".")
        yield name, child
        yield from _walk(child, name)


def _walk_table(table: object, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    if isinstance(table, dict):
        for key, value in table.items():
            yield (*keys, key), value
            yield from _walk_table(value, (*keys, key))
    elif isinstance(table, list):
        for value in table:
            yield from _walk_table(value, keys)


if __name__ == "__main__":
    search_word = " ".join(sys.argv[1:])
    rows_of_word = tables(search_word)
    if not rows_of_word:
        sys.exit(
            f"no choice, variable, default or limit has {search_word!r} in its row; search the first lines "
            f"of modules: python -m tools.architecture modules | grep -i {search_word!r}"
        )
    print(rows_of_word)
