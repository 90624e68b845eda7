"""A command line with something else in it stays one that can be typed."""

import re
from pathlib import Path

import pytest

from medley.command import Variable, drop_switches, override_variables, quote_path, replace_word, set_switch

PLAN = ("medley", "plan", "lama", "--hosts", "spark:2")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(PLAN, ("medley", "plan", "qwen", "--hosts", "spark:2"), id="by itself"),
        pytest.param(
            ("medley", "doctor", "--model=lama"), ("medley", "doctor", "--model=qwen"), id="a value"
        ),
        pytest.param(("medley", "x", "a=lama"), ("medley", "x", "a=lama"), id="no switch"),
    ],
)
def test_another_word(line: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert replace_word(line, "lama", "qwen") == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(PLAN, (*PLAN, "--context", "9"), id="it was not there"),
        pytest.param(("m", "--context", "5", "x"), ("m", "x", "--context", "9"), id="with another value"),
        pytest.param(("m", "--context=5", "x"), ("m", "x", "--context", "9"), id="as one word"),
        pytest.param(
            ("m", "x", "--", "--context", "5"),
            ("m", "x", "--context", "9", "--", "--context", "5"),
            id="the engine's own stay",
        ),
    ],
)
def test_a_switch(line: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert set_switch(line, "--context", "9") == expected


def test_switches_left_out() -> None:
    assert drop_switches(("m", "--tp", "2", "x", "--pp=3", "--", "--tp", "2"), ("--tp", "--pp")) == (
        *("m", "x", "--", "--tp", "2"),
    )


def test_a_table_of_the_hosts_wins_and_says_so() -> None:
    ours = (Variable("A", "1", "ours"), Variable("B", "2", "ours"))
    found = {each.name: each for each in override_variables(ours, {"B": "3", "C": "4"})}
    assert {name: each.value for name, each in found.items()} == {"A": "1", "B": "3", "C": "4"}
    assert [each.local for each in found.values()] == [False, True, True]
    assert "medley's value is 2" in found["B"].why


@pytest.mark.parametrize(
    ("path", "word"),
    [("a", "a"), ("/a b", "'/a b'"), ("-rf", "./-rf"), ("-a b", "'./-a b'"), (Path("./-x"), "./-x")],
)
def test_a_path_is_no_option(path: object, word: str) -> None:
    assert quote_path(path) == word


def test_each_path_of_a_command_is_quoted_as_one() -> None:
    program = Path(__file__).parents[1] / "pysrc" / "medley"
    quoted = re.compile(r"(?<!_)quote\(str\(")
    assert not [path for path in program.rglob("*.py") if quoted.search(path.read_text(encoding="utf-8"))]
