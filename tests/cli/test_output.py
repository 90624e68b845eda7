import io
import os
import pty
import re
import struct
import termios
from collections.abc import Iterator
from contextlib import closing
from fcntl import ioctl
from itertools import chain

import pytest

from medley.cli.output import fit, format_problem, format_table, wrap_line
from medley.cli.terminal import ask, ask_yes_no
from medley.errors import Problem
from tests.explain.test_explain import FAILURES


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
    assert ask("how many?", "3", read) == expected
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
    assert ask_yes_no("so?", default=default) == expected


def test_the_end_of_what_is_typed_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with pytest.raises(EOFError):
        ask_yes_no("so?", default=True)


CASES = [
    pytest.param(
        "why: tensor parallel 4 on orin-1, orin-2, orin-3, orin-4: the only layout that fits, as was asked",
        [
            "why: tensor parallel 4 on orin-1, orin-2, orin-3, orin-4: the only layout that",
            "     fits, as was asked",
        ],
        id="below the label",
    ),
    pytest.param(
        "spark-1       WRONG   the model that is asked about: there is no model 'gpt-os' and no folder",
        [
            "spark-1       WRONG   the model that is asked about: there is no model 'gpt-os'",
            "                      and no folder",
        ],
        id="below the last column",
    ),
    pytest.param(
        "    env -u PYTHONPATH A=1 B=2 C=3 D=4 E=5 F=6 G=7 H=8 I=9 J=10 K=11 L=12 M=13 N=14 \\",
        ["    env -u PYTHONPATH A=1 B=2 C=3 D=4 E=5 F=6 G=7 H=8 I=9 J=10 K=11 L=12 M=13 N=14 \\"],
        id="what goes on by itself",
    ),
]


@pytest.mark.parametrize(("line", "expected"), CASES)
def test_a_line(line: str, expected: list[str]) -> None:
    assert wrap_line(line, 80).split("\n") == expected


@pytest.mark.parametrize("columns", [40, 60, 80, 100])
def test_a_fix_stays_whole(columns: int) -> None:
    fixes = chain.from_iterable(failure.fix.splitlines() for failure in FAILURES.values())
    for line in (f"  fix:   {each}" for each in fixes):
        assert wrap_line(line, columns) == line


@pytest.fixture
def terminal() -> Iterator[io.TextIOWrapper]:
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    with closing(io.TextIOWrapper(io.FileIO(theirs, "w"))) as stream:
        yield stream
    os.close(ours)


def test_only_for_a_terminal(terminal: io.TextIOWrapper) -> None:
    text = "medley: one two three four five six seven eight\n  cause: nine"
    assert fit(text, io.StringIO()) == text
    assert fit(text, terminal) == ("medley: one two three four five six\n        seven eight\n  cause: nine")


COLOR = re.compile(r"\x1b\[[0-9;]*m")
LONG = Problem(
    "a port is closed", cause="a rule of the firewall drops these", fix="sudo ufw allow 24000:24999/tcp"
)


def test_a_problem_has_colors_on_a_terminal_alone(
    terminal: io.TextIOWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    what, cause, fix = format_problem(LONG, "medley: ", terminal)
    assert what == "\x1b[1;31mmedley: a port is closed\x1b[0m"
    assert COLOR.sub("", cause) == "  cause: a rule of the firewall drops\n         these"
    assert COLOR.sub("", fix) == f"  fix:   {LONG.fix}"
    assert fix.startswith("\x1b[32m")
    assert list(format_problem(LONG, "medley: ", io.StringIO())) == str(LONG).replace(
        "a port", "medley: a port"
    ).split("\n")


def test_no_color_takes_the_colors_away(terminal: io.TextIOWrapper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in "".join(format_problem(LONG, "", terminal))
    assert ";3" not in "".join(format_problem(LONG, "", terminal))


def test_a_table_is_aligned_and_whole_in_a_pipe() -> None:
    rows = [("a", "12", "10.0.0.1"), ("日本", "1,234", "x" * 200), ("c", "-", "")]
    assert format_table(("HOST", "SLOTS", "WHAT"), rows) == [
        "HOST  SLOTS  WHAT",
        "a        12  10.0.0.1",
        f"日本  1,234  {'x' * 200}",
        "c         -",
    ]


def test_a_table_fits_a_terminal(terminal: io.TextIOWrapper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "40")
    headers, *lines = format_table(("HOST", "WHAT"), [("a", "one two three four five six seven eight nine")])
    assert headers.startswith("\x1b[1m")
    assert lines == ["a     one two three four five six seven", "      eight nine"]


def test_a_table_breaks_no_word_and_loses_no_letter(
    terminal: io.TextIOWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names are there to be copied; of 40 columns the optional ones go first."""
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("NO_COLOR", "1")
    name, words = "qwen3-30b-a3b-thinking", "does not fit: 312.9 GiB short"
    lines = format_table(("MODEL", "PARAMETERS", "LAYOUT"), [(name, "30B", words)], optional=("PARAMETERS",))
    shown = [COLOR.sub("", line) for line in lines]
    assert shown[0].split() == ["MODEL", "LAYOUT"]
    assert max(map(len, shown)) <= 40
    assert " ".join(line[len(name) :].strip() for line in shown[1:]) == words
    whole = format_table(("MODEL", "PATH"), [(name, "/a/path/that/is/long/enough")])
    assert [COLOR.sub("", line) for line in whole][1] == f"{name}  /a/path/that/is/long/enough"
