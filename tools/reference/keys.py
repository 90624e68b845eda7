"""The keys of each kind of TOML file, from the models that validate it: type, default and meaning.

A meaning is the docstring below the field, or the comment at the end of its line; where the code has none,
the words that stand on the page are kept.
"""

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo

from medley.cluster.cluster_file import Cluster
from medley.explain.patterns import Failure
from medley.host_schema import HostTable, Recipe
from medley.schema import Model
from medley.values import FileTable, get_default
from tools.reference.table import cell, table

Shape = type[FileTable]
FILES: Mapping[str, Shape] = {
    "cluster-toml": Cluster,
    "model-toml": Model,
    "host-toml": HostTable,
    "lock-toml": Recipe,
    "failure-toml": Failure,
}
"""Each block of keys, and what validates the file."""


def keys(shape: Shape, before: str) -> str:
    """The keys of a file, then those of each table in it."""
    return "\n".join(_tables(shape, "", dict(words(before))))


BLOCKS: Mapping[str, Callable[[str], str]] = {name: partial(keys, shape) for name, shape in FILES.items()}


def words(block: str) -> Iterator[tuple[tuple[str, str], str]]:
    """The meaning of each key on a page, by the heading and the key."""
    heading = ""
    for line in block.splitlines():
        if line.startswith("### "):
            heading = line.strip("#` []")
        elif line.startswith("| `"):
            cells = re.split(r"(?<!\\)\|", line)
            yield (heading, cells[1].strip(" `")), cells[4].strip()


def _tables(shape: Shape, heading: str, kept: Mapping[tuple[str, str], str]) -> Iterator[str]:
    rows, below = [], []
    texts = {name: cell(text[:1].upper() + text[1:]) for name, text in meanings(shape).items()}
    for field in msgspec.structs.fields(shape):
        name = field.name
        if found := _below(field.type):
            below.append((name, *found))
        else:
            meaning = texts.get(name) or kept.get((heading, name), "")
            rows.append((f"`{name}`", _type(field), _default(field), meaning))
    if rows:
        yield table(("key", "type", "default", "meaning"), rows)
    for name, form, inner in below:
        path = ".".join(filter(None, (heading, name, "NAME" if form == "names" else "")))
        about = texts.get(name) or cell((inner.__doc__ or "").split("\n\n")[0])
        yield from ("", f"### `{'[' * (1 + (form == 'list'))}{path}{']' * (1 + (form == 'list'))}`", "")
        yield from (about, "") if about else ()
        yield from _tables(inner, path, kept)


def _below(annotation: Any) -> tuple[str, Shape] | None:
    """How a key holds tables of its own, and their model; None where it holds none."""
    if isinstance(annotation, type) and issubclass(annotation, FileTable):
        return "table", annotation
    for inner in get_args(annotation):
        if found := _below(inner):
            origin = get_origin(annotation)
            return ("list" if origin is tuple else "names" if origin is Mapping else found[0]), found[1]
    return None


@cache
def meanings(shape: Shape) -> Mapping[str, str]:
    """What each key means: the docstring below its field, or the comment at the end of its line."""
    bases = [base for base in reversed(shape.__mro__) if issubclass(base, FileTable)]
    return {name: text for base in bases for name, text in _own_meanings(base)}


def _own_meanings(shape: Shape) -> Iterator[tuple[str, str]]:
    source = textwrap.dedent(inspect.getsource(shape))
    (body,) = ast.parse(source).body
    assert isinstance(body, ast.ClassDef)
    lines = source.splitlines()
    for node, after in zip(body.body, [*body.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            comment = re.search(r"  # (?!noqa|type:)(.+)", lines[(node.end_lineno or 1) - 1])
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                yield node.target.id, str(after.value.value)
            elif comment:
                yield node.target.id, comment[1]


def _default(field: FieldInfo) -> str:
    if field.required:
        return "required"
    value = get_default(field)
    plain = isinstance(value, bool | int | float | str)
    return f"`{json.dumps(value)}`" if plain else ""


def _type(field: FieldInfo) -> str:
    return cell(_described(field.type))


def _described(kind: Any, limits: tuple[msgspec.Meta, ...] = ()) -> str:
    """A type in words."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _described(inner[0], (*inner[1:], *limits))
    if origin is Literal:
        return " or ".join(f"`{json.dumps(each)}`" for each in inner)
    if origin is tuple:
        return f"list of {_described(inner[0])}"
    if origin is Mapping:
        names = get_args(inner[0]) if get_origin(inner[0]) is Literal else ()
        of = _described(inner[1])
        return f"{of} for each of {', '.join(f'`{each}`' for each in names)}" if names else f"table of {of}"
    if inner:  # a union
        return " or ".join(dict.fromkeys(_described(each, limits) for each in inner if each is not NoneType))
    words = {str: "text", int: "integer", float: "number", bool: "true or false"}
    return words.get(kind, "value") + _limits(limits)


def _limits(limits: tuple[msgspec.Meta, ...]) -> str:
    low = next((each.ge for each in limits if each.ge is not None), None)
    high = next((each.le for each in limits if each.le is not None), None)
    above = next((each.gt for each in limits if each.gt is not None), None)
    if low is not None and high is not None:
        return f" from {low:,} to {high:,}"
    if above is not None:
        return f" above {above:,}"
    return f", at least {low:,}" if low is not None else ""
