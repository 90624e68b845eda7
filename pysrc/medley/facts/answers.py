"""What a question was answered, as the parsers of facts want it."""

import json
import re
from typing import Any

from medley.problem import Problem
from medley.transcript import NO_ANSWER, Transcript


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


def objects(answers: Transcript, question: str) -> tuple[dict[str, Any], ...]:
    """The objects of a JSON list; none where the program is too old for JSON, or its answer is cut."""
    try:
        said = json.loads(answers.get(question, NO_ANSWER).text or "[]")
    except (ValueError, RecursionError):
        return ()
    return tuple(each for each in said if isinstance(each, dict)) if isinstance(said, list) else ()


def _not_whole(cause: str) -> Problem:
    return Problem(
        "the transcript is not whole",
        cause=cause,
        fix="record it again on the host: medley facts --transcript > HOST.txt",
    )
