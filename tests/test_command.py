import os
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medley import machine
from medley.command import Command

WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)
NAMES = st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True)


@given(argv=st.lists(WORDS, min_size=1, max_size=5), env=st.dictionaries(NAMES, WORDS, max_size=3))
def test_what_is_printed_splits_into_what_is_run(argv: list[str], env: dict[str, str]) -> None:
    words = shlex.split(str(Command(("run", *argv), env)))
    assert words[len(env) :] == ["run", *argv]
    assert dict(word.split("=", 1) for word in words[: len(env)]) == env


@pytest.mark.parametrize(
    ("command", "text"),
    [
        pytest.param(Command(("ls", "a b")), "ls 'a b'", id="quoted"),
        pytest.param(Command(("x",), {"B": "2", "A": "1 1"}), "A='1 1' B=2 x", id="variables, sorted"),
        pytest.param(Command(("x",), {"A": "1"}, ("P",)), "env -u P A=1 x", id="one taken away"),
    ],
)
def test_text(command: Command, text: str) -> None:
    assert str(command) == text


def test_the_shell_gives_a_pasted_command_the_same_environment() -> None:
    command = Command(("sh", "-c", 'echo "$A|${B-unset}"'), {"A": "it's"}, ("B",))
    said = machine.run(command)
    pasted = machine.run(Command(("sh", "-c", str(command)), {"B": "here"}))
    assert said.lines == pasted.lines == ("it's|unset",)


def test_environment_takes_away_then_adds() -> None:
    command = Command(("x",), {"A": "new"}, ("A", "B"))
    assert command.environment({"A": "old", "B": "b", "C": "c"}) == {"A": "new", "C": "c"}
    assert "HOME" in Command(("x",)).environment(os.environ)
