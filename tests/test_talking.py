import io

import pytest

from medley.cli import talking
from medley.problem import Problem


def read(answer: str) -> int:
    if not answer.isdecimal():
        raise Problem(f"{answer!r} is no number", cause="it has letters", fix="4")
    return int(answer)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [("7\n", 7), ("\n", 3), ("x\n 8 \n", 8)],
    ids=["an answer", "the default", "a second try"],
)
def test_it_is_asked_until_it_makes_sense(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str, expected: int
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    assert talking.asked("how many?", "3", read) == expected
    said = capsys.readouterr().out
    assert said.startswith("how many? [3] ")
    assert ("'x' is no number: it has letters" in said) == (expected == 8)


@pytest.mark.parametrize(
    ("typed", "default", "expected"),
    [("\n", True, True), ("\n", False, False), ("Y\n", False, True), ("maybe\nno\n", True, False)],
    ids=["yes by default", "no by default", "yes", "no at last"],
)
def test_yes_or_no(monkeypatch: pytest.MonkeyPatch, typed: str, *, default: bool, expected: bool) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    assert talking.agrees("so?", default=default) == expected


def test_the_end_of_what_is_typed_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with pytest.raises(EOFError):
        talking.agrees("so?", default=True)
