"""Find the phase of a start, or of serving, in which a log ends."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from medley.explain.lines import line
from medley.explain.patterns import Phase

_LONGEST = 160


class LastPhase(NamedTuple):
    """`after`: lines of the log after it; `message`: its line, from the step on."""

    phase: Phase
    message: str
    after: int


def last_phase(tail: Sequence[str], phases: Sequence[Phase]) -> LastPhase | None:
    """Return the last phase of these lines, searched from the end."""
    for after, raw in enumerate(reversed(tail)):
        if message := next(_matches(raw, phases), None):
            return LastPhase(*message, after)
    return None


def _matches(raw: str, phases: Sequence[Phase]) -> Iterator[tuple[Phase, str]]:
    for phase in phases:
        for sign in phase.signs:
            if sign.needle in raw:
                text = line(raw).text
                # The last part of a line that is redrawn.
                *_, last = (None, *sign.expression.finditer(text))
                if last:
                    yield phase, text[last.start() :].strip(" .")[:_LONGEST]
