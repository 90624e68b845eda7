"""What runs in an engine's Python runs in that of JetPack 6 and its image too: 3.10, older than our own."""

import ast
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "pysrc" / "medley" / "environment" / "payload"
MODULES = sorted(FOLDER.rglob("*.py"))
# Of the standard library, by where it is imported from: what came with 3.11 and later.
NEWER = {
    "": {"tomllib", "wsgiref.types", "compression", "annotationlib", "string.templatelib"},
    "asyncio": {"timeout", "timeout_at", "TaskGroup", "Runner", "Barrier"},
    "builtins": {"ExceptionGroup", "BaseExceptionGroup", "PythonFinalizationError"},
    "contextlib": {"chdir"},
    "datetime": {"UTC"},
    "enum": {"StrEnum", "ReprEnum", "EnumCheck", "verify", "member", "nonmember"},
    "hashlib": {"file_digest"},
    "itertools": {"batched"},
    "math": {"cbrt", "exp2", "sumprod", "fma"},
    "typing": {
        *("Self", "Never", "assert_never", "assert_type", "reveal_type", "override", "Required"),
        *("NotRequired", "LiteralString", "Unpack", "TypeVarTuple", "dataclass_transform", "TypeAliasType"),
    },
}


def newer(tree: ast.AST) -> list[str]:
    """Names in it that Python 3.10 does not have."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                found += [each.name for each in node.names if each.name in NEWER[""]]
            case ast.ImportFrom(module=str(module)):
                found += [module] if module in NEWER[""] else []
                found += [
                    f"{module}.{each.name}" for each in node.names if each.name in NEWER.get(module, ())
                ]
            case ast.Attribute(value=ast.Name(id=module), attr=name) if name in NEWER.get(module, ()):
                found.append(f"{module}.{name}")
            case ast.Name(id=name) if name in NEWER["builtins"]:
                found.append(name)
    return found


def test_there_are_modules() -> None:
    assert {"engine_server", "probe", "allreduce_rank", "ray_state"} <= {path.stem for path in MODULES}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_it_is_python_3_10(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 10))
    assert newer(tree) == []


@pytest.mark.parametrize(
    "text",
    [
        "import tomllib",
        "from datetime import UTC",
        "import asyncio\nasyncio.timeout(1)",
        "from typing import Any, Self",
        "raise ExceptionGroup('', [])",
    ],
)
def test_what_is_newer_is_seen(text: str) -> None:
    assert newer(ast.parse(text)) != []


def test_newer_words_are_seen() -> None:
    with pytest.raises(SyntaxError):
        ast.parse("try: pass\nexcept* ValueError: pass\n", feature_version=(3, 10))
