"""What a question was answered, as the parsers of facts want it."""

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
        raise Problem(
            "the transcript is not whole",
            cause=f"it has no answer to: {question}",
            fix="record it again on the host: medley facts --transcript > HOST.txt",
        )
    return text
