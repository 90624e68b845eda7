"""The one error people see, and what other errors say in words."""

import ast
import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

import medley
from medley.errors import Problem, describe_error

SOURCES = Path(medley.__file__).parent
_OF_THE_SYSTEM = {"OSError", "FileNotFoundError", "PermissionError", "gaierror", "HTTPError"}


def test_it_says_what_why_and_what_to_type() -> None:
    problem = Problem("port 8000 is in use", cause="process 7 listens there", fix="--port 8001")
    assert str(problem) == ("port 8000 is in use\n  cause: process 7 listens there\n  fix:   --port 8001")
    assert problem.status == 1


def test_more_lines_keep_the_column() -> None:
    text = str(Problem("x", cause="one\ntwo", fix="a\nb"))
    assert text.splitlines() == ["x", "  cause: one", "         two", "  fix:   a", "         b"]


def test_it_survives_a_context_manager() -> None:
    with pytest.raises(Problem) as caught:
        raise Problem("x", cause="y", fix="z", status=7)
    assert caught.value.status == 7


@pytest.mark.parametrize(
    ("error", "said"),
    [
        pytest.param(
            FileNotFoundError(errno.ENOENT, "No such file or directory", "x"),
            "No such file or directory",
            id="the system's own",
        ),
        pytest.param(
            RuntimeError("[Errno 111] Connection refused"), "Connection refused", id="one passed on"
        ),
        pytest.param(TimeoutError("timed out"), "timed out", id="without a number"),
        pytest.param(OSError(), "OSError", id="without a word"),
        pytest.param(
            UnicodeDecodeError("utf-8", b"ab\xff", 2, 3, "invalid start byte"),
            "it is not text: byte 2 is 0xff, which UTF-8 does not have",
            id="no text",
        ),
    ],
)
def test_in_words(error: Exception, said: str) -> None:
    assert describe_error(error) == said


def test_nobody_shows_a_number_of_the_kernels() -> None:
    """Where an error of the system's is caught, it is not made text as it is."""
    found = [
        f"{file.relative_to(SOURCES)}:{line}"
        for file in sorted(SOURCES.rglob("*.py"))
        if "payload" not in file.parts and file.name != "driver_libraries.py"
        for line in _made_text(ast.parse(file.read_text(encoding="utf-8")))
    ]
    assert found == []


def _made_text(tree: ast.AST) -> Iterator[int]:
    for handler in ast.walk(tree):
        if not isinstance(handler, ast.ExceptHandler) or handler.name is None or handler.type is None:
            continue
        caught = {
            getattr(each, "attr", getattr(each, "id", "")) for each in ast.walk(handler.type)
        } & _OF_THE_SYSTEM
        if caught:
            yield from (handler.lineno for node in ast.walk(handler) if _is_text_of(node, handler.name))


def _is_text_of(node: ast.AST, name: str) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="str"), args=[ast.Name(id=given)]):
            return given == name
        case ast.FormattedValue(value=ast.Name(id=given)):
            return given == name
        case _:
            return False
