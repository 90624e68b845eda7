import io
import os
import pty
import struct
import termios
from collections.abc import Iterator
from contextlib import closing
from fcntl import ioctl
from itertools import chain

import pytest

from medley.cli.output import PROGRAMS, fit, wrapped
from medley.cli.terminal import agrees, asked
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
    assert asked("how many?", "3", read) == expected
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
    assert agrees("so?", default=default) == expected


def test_the_end_of_what_is_typed_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with pytest.raises(EOFError):
        agrees("so?", default=True)


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
        "  fix:   name a file: medley explain FILE, or pipe a log: docker logs NAME 2>&1 | medley explain -",
        [
            "  fix:   name a file: medley explain FILE, or pipe a log:",
            "         docker logs NAME 2>&1 | medley explain -",
        ],
        id="a command as a whole",
    ),
    pytest.param(
        "  fix:   on all: sudo medley link setup --interface enp1s0f1 --mtu 9000 --address 10.0.0.1; go on",
        [
            "  fix:   on all:",
            "         sudo medley link setup --interface enp1s0f1 --mtu 9000 --address 10.0.0.1",
            "         go on",
        ],
        id="a longer one on a line of its own, without what ends it",
    ),
    pytest.param(
        "         medley plan qwen3-30b-a3b-thinking --hosts orin:3  # what 3 hosts like orin-2 would do",
        [
            "         medley plan qwen3-30b-a3b-thinking --hosts orin:3",
            "         # what 3 hosts like orin-2 would do",
        ],
        id="what is said of it stays a comment",
    ),
    pytest.param(
        "  fix:   end the processes that use it (nvidia-smi); on Spark, Thor and Orin: sync; echo 3 | sudo tee /proc/x",
        [
            "  fix:   end the processes that use it (nvidia-smi); on Spark, Thor and Orin:",
            "         sync; echo 3 | sudo tee /proc/x",
        ],
        id="two that belong together",
    ),
    pytest.param(
        "  orin-1 0  layers 1-36  [##-                     ]  5.6 of 50.7 GiB: weights 3.8, engine 1.5",
        [
            "  orin-1 0  layers 1-36  [##-                     ]  5.6 of 50.7 GiB: weights",
            "                         3.8, engine 1.5",
        ],
        id="a bar",
    ),
    pytest.param(
        "    env -u PYTHONPATH A=1 B=2 C=3 D=4 E=5 F=6 G=7 H=8 I=9 J=10 K=11 L=12 M=13 N=14 \\",
        ["    env -u PYTHONPATH A=1 B=2 C=3 D=4 E=5 F=6 G=7 H=8 I=9 J=10 K=11 L=12 M=13 N=14 \\"],
        id="what goes on by itself",
    ),
]


@pytest.mark.parametrize(("line", "expected"), CASES)
def test_a_line(line: str, expected: list[str]) -> None:
    assert list(wrapped(line, 80)) == expected


@pytest.mark.parametrize("columns", [40, 60, 80, 100])
def test_no_word_is_lost_and_only_what_is_whole_is_longer(columns: int) -> None:
    fixes = chain.from_iterable(failure.fix.splitlines() for failure in FAILURES.values())
    for line in (f"  fix:   {each}" for each in fixes):
        parts = list(wrapped(line, columns))
        said = " ".join(part.strip() for part in parts).split()
        assert [word.rstrip(",;:") for word in said] == [word.rstrip(",;:") for word in line.split()]
        bodies = [part.removeprefix("  fix:").split() for part in parts if len(part.rstrip(",;:")) > columns]
        assert [body for body in bodies if len(body) > 1 and body[0].rstrip(";") not in PROGRAMS] == []


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
