"""Ask a host by one shell script, and parse the answers.

A transcript looks like a shell session::

    $ uname -m
      x86_64
    $ nvidia-smi -L
    ? 127

so a recorded host, a bug report and a test fixture are the same file.
"""

import re
from collections.abc import Iterable, Mapping
from shlex import quote
from typing import Any

from medley import json_shape
from medley.errors import Problem
from medley.values import Value

# A question that hangs (a stuck driver) must not hang medley; timeout(1) exits with 124.
_QUESTION_LIMIT_S = 10
SESSION_LIMIT_S = 5
_STATUS_PATTERN = re.compile(r"\? ([0-9]{1,3})\s*")

# To save processes, all questions run under one limit; only if it runs out, each runs again under its own.
# One sed indents all lines but the marked ones.
_SCRIPT = r"""
LC_ALL=C; export LC_ALL
mark=$(printf '\001'); export mark
all=; each=
if command -v timeout >/dev/null 2>&1; then all='timeout -k 2 {all_s}'; each='timeout -k 2 {each_s}'; fi
tell='tell() {{
  printf "%s$ %s\n" "$mark" "$1"
  [ -z "$2" ] || printf "%s\n" "$2"
  [ "$3" -eq 0 ] || printf "%s? %s\n" "$mark" "$3"
}}
'
quick='ask() {{ out=$(eval "$1" 2>/dev/null </dev/null); tell "$1" "$out" $?; }}
'
bound='ask() {{ out=$($each sh -c "$1" 2>/dev/null </dev/null); tell "$1" "$out" $?; }}
'
questions={questions}
if session=$($all sh -c "$tell$quick$questions exit 0"); then printf '%s\n' "$session"
else eval "$tell$bound$questions"
fi | sed "s/^/  /; s/^  $mark//"
"""


class Answer(Value):
    """The output of a question, newline-ended, and its exit status (127: program not found)."""

    text: str = ""
    status: int = 0


NO_ANSWER = Answer("", 127)

Transcript = Mapping[str, Answer]


def build_script(
    questions: Iterable[str], *, limit_s: float = _QUESTION_LIMIT_S, limit_of_all_s: float = SESSION_LIMIT_S
) -> str:
    """Return a POSIX shell script that asks every question and prints the transcript."""
    calls = "".join(f"ask {quote(question)}\n" for question in questions)
    return _SCRIPT.format(all_s=limit_of_all_s, each_s=limit_s, questions=quote(calls))


def parse_transcript(text: str) -> Transcript:
    """Parse a transcript into answers by question; blank lines and those with `#` are comments."""
    answers: dict[str, Answer] = {}
    question: str | None = None
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("$ "):
            question = line[2:]
            answers[question] = Answer()
        elif question is not None and line.startswith("  "):
            answer = answers[question]
            answers[question] = Answer(answer.text + line[2:] + "\n", answer.status)
        elif question is not None and (status := _STATUS_PATTERN.fullmatch(line)):
            answers[question] = Answer(answers[question].text, int(status[1]))
        elif line.strip() and not line.startswith("#"):
            raise Problem(
                "this is not a transcript",
                cause=f"line {number} is {line[:60]!r}: neither '$ question', '  answer' nor '? status'",
                fix="record one on the host: medley facts --transcript > HOST.txt",
            )
    return answers


def format_transcript(answers: Transcript) -> str:
    """Return the transcript's text, the inverse of `parse_transcript`."""
    parts = []
    for question, answer in answers.items():
        parts.append(f"$ {question}\n")
        parts += (f"  {line}\n" for line in answer.text.removesuffix("\n").split("\n") if answer.text)
        parts += [f"? {answer.status}\n"] if answer.status else []
    return "".join(parts)


def read_lines(answers: Transcript, question: str) -> tuple[str, ...]:
    """Return the lines that are not blank, also of a failed command, such as `ls` of a missing file."""
    return tuple(line for line in answers.get(question, NO_ANSWER).text.splitlines() if line.strip())


def read_first_line(answers: Transcript, question: str) -> str | None:
    return next((line.strip() for line in read_lines(answers, question)), None)


def require_text(answers: Transcript, question: str) -> str:
    """Return an answer that every Linux host gives."""
    text = answers.get(question, NO_ANSWER).text.strip()
    if not text:
        raise _build_incomplete_problem(f"it does not have the answer to: {question}")
    return text


def require_number(answers: Transcript, question: str) -> int:
    text = require_text(answers, question)
    value = parse_number(text)
    if value is None:
        raise _build_incomplete_problem(f"{text[:60]!r} is not a number, the answer to: {question}")
    return value


def parse_number(text: str | None) -> int | None:
    """Parse a whole number of up to 15 digits."""
    return int(text) if text and re.fullmatch(r"[0-9]{1,15}", text.strip()) else None


def read_file_values(answers: Transcript, question: str) -> tuple[tuple[str, str], ...]:
    """Return the pairs of `path value` in the answer to a question about files."""
    split = (line.partition(" ") for line in read_lines(answers, question))
    return tuple((path, value.strip()) for path, _, value in split if path and value.strip())


def read_assignments(answers: Transcript, question: str) -> dict[str, str]:
    """Return the NAME=VALUE lines, values without quotes."""
    split = (line.partition("=") for line in read_lines(answers, question))
    return {name: value.strip("\"'") for name, equals, value in split if equals}


def read_json_objects(answers: Transcript, question: str) -> tuple[dict[str, Any], ...]:
    """Return the objects of a JSON list; none for invalid JSON, as of an old program."""
    value = json_shape.parse_json(answers.get(question, NO_ANSWER).text)
    return tuple(item for item in value if isinstance(item, dict)) if isinstance(value, list) else ()


def _build_incomplete_problem(cause: str) -> Problem:
    return Problem(
        "the transcript is incomplete",
        cause=cause,
        fix="record it again on the host: medley facts --transcript > HOST.txt",
    )
