import pytest

from medley.problem import Problem


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
