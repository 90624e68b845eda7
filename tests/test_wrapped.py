"""Text at a terminal's width: broken between words, never within a command."""

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

from medley.cli.wrapped import PROGRAMS, fit, wrapped
from medley.explain import KNOWN

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
        "  fix:   name one: medley explain FILE, or pipe it in: docker logs NAME 2>&1 | medley explain -",
        [
            "  fix:   name one: medley explain FILE, or pipe it in:",
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
        "  fix:   end what holds it (nvidia-smi); on Spark, Thor and Orin: sync; echo 3 | sudo tee /proc/x",
        [
            "  fix:   end what holds it (nvidia-smi); on Spark, Thor and Orin:",
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
    fixes = chain.from_iterable(known.fix.splitlines() for known in KNOWN if isinstance(known.fix, str))
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
