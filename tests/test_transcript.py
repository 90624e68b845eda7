"""A transcript is read back as it was written, and a real shell writes one."""

import subprocess
from pathlib import Path
from shutil import which

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medley.transcript import Answer, build_script, format_transcript, parse_transcript
from tests.problems import raises_problem

# What a shell's line may hold; a question is one line, and an answer never ends in blank lines.
_LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"))
_QUESTION = _LINE
_ANSWER = st.builds(
    lambda lines, status: Answer("".join(f"{line}\n" for line in lines), status),
    st.lists(_LINE, max_size=4),
    st.integers(0, 255),
)


@given(st.dictionaries(_QUESTION, _ANSWER, max_size=4))
def test_parse_reads_what_text_writes(answers: dict[str, Answer]) -> None:
    assert parse_transcript(format_transcript(answers)) == answers


@pytest.mark.parametrize(
    ("said", "answers"),
    [
        pytest.param("", {}, id="nothing"),
        pytest.param("# a remark\n\n$ id -u\n  0\n", {"id -u": Answer("0\n")}, id="remarks"),
        pytest.param(
            "$ a\n? 127\n$ b\n  x\n? 1\n", {"a": Answer("", 127), "b": Answer("x\n", 1)}, id="statuses"
        ),
        pytest.param("$ cat f\n  # R36\n  \n  $ x\n", {"cat f": Answer("# R36\n\n$ x\n")}, id="odd answers"),
    ],
)
def test_parse(said: str, answers: dict[str, Answer]) -> None:
    assert parse_transcript(said) == answers


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("hello\n", "line 1 is 'hello'"),
        ("  an answer first\n", "line 1 is '  an answer first'"),
        ("$ a\nhello\n", "line 2 is 'hello'"),
        ("$ a\n? many\n", "line 2 is '? many'"),
    ],
)
def test_what_is_no_transcript_is_a_problem(said: str, cause: str) -> None:
    with raises_problem(cause=cause, fix="medley facts --transcript > HOST.txt"):
        parse_transcript(said)


QUESTIONS = {
    "echo one; echo two": Answer("one\ntwo\n"),
    "printf 'no newline'": Answer("no newline\n"),
    'echo "it\'s $((1 + 1))"': Answer("it's 2\n"),
    "echo '  indented'; echo; echo '$ odd'": Answer("  indented\n\n$ odd\n"),
    r"printf 'a\0b' | tr '\0' ' '": Answer("a b\n"),
    "echo partial; exit 3": Answer("partial\n", 3),
    "echo seen; echo unseen >&2": Answer("seen\n"),
    "no-such-program-anywhere": Answer("", 127),
    "true": Answer(),
    "cat": Answer(),
}


def answered(text: str, **env: str) -> str:
    return subprocess.run(
        ["/bin/sh", "-c", text],
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
        env=env or None,
    ).stdout


def test_a_real_shell() -> None:
    assert parse_transcript(answered(build_script(QUESTIONS))) == QUESTIONS


def test_a_question_that_hangs_hangs_no_other() -> None:
    asked = ("echo one", "echo partial; sleep 30", "echo two")
    said = parse_transcript(answered(build_script(asked, limit_s=3, limit_of_all_s=2)))
    assert list(said.values()) == [Answer("one\n"), Answer("partial\n", 124), Answer("two\n")]


def test_a_host_without_timeout(tmp_path: Path) -> None:
    for name in ("sh", "sed"):
        (tmp_path / name).symlink_to(which(name) or "")
    # 127 by dash, 1 by bash
    absent = subprocess.run(["sh", "-c", "command -v nothing-like-it"], check=False).returncode
    asked = {"command -v timeout": Answer("", absent), "echo one": Answer("one\n")}
    assert parse_transcript(answered(build_script(asked), PATH=str(tmp_path))) == asked
