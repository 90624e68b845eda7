"""The comparison of a Problem's fields: the printed form gives them back, and each one can fail."""

import pytest

from medley.cli.output import print_message
from medley.errors import Problem
from tests.problems import assert_problem, problem_in, problems_in, raises_problem

PORT = Problem("port 8000 is in use", cause="process 7 listens there", fix="end it, or: --port 8001")


@pytest.mark.parametrize(
    "problem",
    [
        pytest.param(PORT, id="one line each"),
        pytest.param(Problem("x", cause="one\n  two: 2\n\nthree", fix="a\nb  # c"), id="several lines"),
        pytest.param(Problem("a: b: c", cause="", fix=""), id="empty fields"),
        pytest.param(
            Problem("x", cause="its words:\nfix:   none\ncause: none", fix="y"), id="names of fields"
        ),
    ],
)
def test_the_printed_form_gives_its_fields_back(problem: Problem, capsys: pytest.CaptureFixture[str]) -> None:
    assert problem_in(str(problem)).table == problem.table
    print_message(problem)
    printed = f"$ a command\n{capsys.readouterr().err}medley: ended\n"
    assert problem_in(printed).table == problem.table
    assert problem_in(printed.splitlines()).table == problem.table


def test_a_wrapped_line_is_joined() -> None:
    text = "weights …\nmedley: one two three\n        four\n  cause: five\n  fix:   six"
    assert problem_in(text).table == {"what": "one two three four", "cause": "five", "fix": "six"}


def test_several_are_in_the_order_of_the_text() -> None:
    text = f"medley: {PORT}\nbetween\nmedley: {Problem('x', cause='y', fix='z')}\n"
    assert [each.what for each in problems_in(text)] == [PORT.what, "x"]
    for wrong in (text, "medley: ready\n"):
        with pytest.raises(AssertionError):
            problem_in(wrong)


@pytest.mark.parametrize(
    ("names", "cause", "fix", "status"),
    [
        pytest.param(("port", "8001"), (), (), 1, id="another port"),
        pytest.param((), ("process 7", "listens here"), (), 1, id="one of two facts"),
        pytest.param((), (), "--port 800", 1, id="a part of a command"),
        pytest.param((), (), "port 8001", 1, id="a command without its beginning"),
        pytest.param((), (), (), 3, id="another exit status"),
    ],
)
def test_each_field_can_fail(names: tuple[str, ...], cause: tuple[str, ...], fix: str, status: int) -> None:
    with (
        pytest.raises(AssertionError, match="port 8000"),
        raises_problem(*names, cause=cause, fix=fix, status=status),
    ):
        raise PORT


@pytest.mark.parametrize(
    ("fix", "commands"),
    [
        ("medley down; medley up", ("medley down", "medley up")),
        ("on h: sudo a b  # or: c d", ("sudo a b", "c d")),
        ("end it, or use another: --port 1", ("--port 1",)),
        ("make room (medley env clean --all), or wait", ("medley env clean --all",)),
        ("a\nb c", ("a", "b c")),
        ("name one: medley models lists them", ("medley models",)),
    ],
)
def test_a_command_is_whole(fix: str, commands: tuple[str, ...]) -> None:
    assert_problem(Problem("x", cause="y", fix=fix), "x", cause="y", fix=commands)


def test_a_problem_must_be_raised() -> None:
    with pytest.raises(pytest.fail.Exception), raises_problem():
        pass
