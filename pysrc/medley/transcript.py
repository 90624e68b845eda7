"""Questions to a host as one shell script; parse its answers.

It is what a person would paste into a bug report::

    $ uname -m
      x86_64
    $ nvidia-smi -L
    ? 127

so a recorded host, a bug report and a test fixture are one and the same file.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from shlex import quote
from typing import Any

from medley import json_shape
from medley.errors import Problem

# A question that hangs (a driver that is stuck) must not hang us: 124 is what timeout(1) exits with.
_LIMIT_S = 10
LIMIT_OF_ALL_S = 5
_STATUS = re.compile(r"\? ([0-9]{1,3})\s*")

# Dozens of questions, so every process counts: all are asked under one limit, and only where that ran out
# each again under its own; one sed indents what is answered, all but the marked lines.
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
if said=$($all sh -c "$tell$quick$questions exit 0"); then printf '%s\n' "$said"
else eval "$tell$bound$questions"
fi | sed "s/^/  /; s/^  $mark//"
"""


@dataclass(frozen=True)
class Answer:
    """What a question printed, newline-ended, and its exit status (127: the host has no such program)."""

    text: str = ""
    status: int = 0


NO_ANSWER = Answer("", 127)

Transcript = Mapping[str, Answer]


def script(
    questions: Iterable[str], *, limit_s: float = _LIMIT_S, limit_of_all_s: float = LIMIT_OF_ALL_S
) -> str:
    """A POSIX shell script that asks every question and prints the transcript; one round trip."""
    asked = "".join(f"ask {quote(question)}\n" for question in questions)
    return _SCRIPT.format(all_s=limit_of_all_s, each_s=limit_s, questions=quote(asked))


def parse(text: str) -> Transcript:
    """The answers in a transcript's text, by question. Lines starting with `#` and blank ones are remarks."""
    answers: dict[str, Answer] = {}
    question: str | None = None
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("$ "):
            question = line[2:]
            answers[question] = Answer()
        elif question is not None and line.startswith("  "):
            said = answers[question]
            answers[question] = Answer(said.text + line[2:] + "\n", said.status)
        elif question is not None and (status := _STATUS.fullmatch(line)):
            answers[question] = Answer(answers[question].text, int(status[1]))
        elif line.strip() and not line.startswith("#"):
            raise Problem(
                "this is not a transcript",
                cause=f"line {number} is {line[:60]!r}: neither '$ question', '  answer' nor '? status'",
                fix="record one on the host itself: medley facts --transcript > HOST.txt",
            )
    return answers


def text(answers: Transcript) -> str:
    """The transcript's text: what `parse` reads back to the same answers."""
    parts = []
    for question, answer in answers.items():
        parts.append(f"$ {question}\n")
        parts += (f"  {line}\n" for line in answer.text.removesuffix("\n").split("\n") if answer.text)
        parts += [f"? {answer.status}\n"] if answer.status else []
    return "".join(parts)


def lines(answers: Transcript, question: str) -> tuple[str, ...]:
    """The lines that are not blank; none where it was not asked or not answered.

    A status other than 0 with text is an answer too: `ls` of two files of which one is there.
    """
    return tuple(line for line in answers.get(question, NO_ANSWER).text.splitlines() if line.strip())


def first(answers: Transcript, question: str) -> str | None:
    return next((line.strip() for line in lines(answers, question)), None)


def required(answers: Transcript, question: str) -> str:
    """The answer's text, or a Problem: no Linux host leaves this question open."""
    text = answers.get(question, NO_ANSWER).text.strip()
    if not text:
        raise _not_whole(f"it has no answer to: {question}")
    return text


def required_number(answers: Transcript, question: str) -> int:
    text = required(answers, question)
    found = number(text)
    if found is None:
        raise _not_whole(f"{text[:60]!r} is no number, the answer to: {question}")
    return found


def number(text: str | None) -> int | None:
    """A whole number in plain digits; what is longer than any fact is none."""
    return int(text) if text and re.fullmatch(r"[0-9]{1,15}", text.strip()) else None


def readings(answers: Transcript, question: str) -> tuple[tuple[str, str], ...]:
    """The pairs of `path value` that a question about files printed."""
    split = (line.partition(" ") for line in lines(answers, question))
    return tuple((path, value.strip()) for path, _, value in split if path and value.strip())


def assignments(answers: Transcript, question: str) -> dict[str, str]:
    """The NAME=VALUE lines, a value without its quotes."""
    split = (line.partition("=") for line in lines(answers, question))
    return {name: value.strip("\"'") for name, equals, value in split if equals}


def objects(answers: Transcript, question: str) -> tuple[dict[str, Any], ...]:
    """The objects of a JSON list; none where the program is too old for JSON, or its answer is cut."""
    said = json_shape.loads(answers.get(question, NO_ANSWER).text)
    return tuple(each for each in said if isinstance(each, dict)) if isinstance(said, list) else ()


def _not_whole(cause: str) -> Problem:
    return Problem(
        "the transcript is not whole",
        cause=cause,
        fix="record it again on the host: medley facts --transcript > HOST.txt",
    )
