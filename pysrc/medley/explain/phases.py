"""Find the phase of a start, or of serving, in which a log ends."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from medley.explain.lines import WARNING, line
from medley.explain.patterns import Phase

_LONGEST = 160
# vLLM's processes, and SGLang's ranks: lines that only an engine prints.
_ENGINE = re.compile(
    r"\(\w*(?:EngineCore|APIServer|Worker)\w* (?:rank=\S+ )?pid=\d+|"
    r"^\[\d{4}-\d\d-\d\d [\d:.]+(?: (?:DP|PP|TP|EP)\d+)+\]"
)


class LastPhase(NamedTuple):
    """`groups`: of its pattern, with `message`, its line from the step on; `after`: lines after it."""

    phase: Phase
    groups: Mapping[str, str | None]
    after: int

    @property
    def message(self) -> str:
        return self.groups["message"] or ""


def last_phase(tail: Sequence[str], phases: Sequence[Phase]) -> LastPhase | None:
    """Return the last phase of these lines, searched from the end."""
    for after, raw in enumerate(reversed(tail)):
        if found := next(_matches(raw, phases), None):
            return LastPhase(*found, after)
    return None


def last_line(tail: Sequence[str], phases: Sequence[Phase]) -> LastPhase | None:
    """Return the phase of any step, with the last line of an engine, for a log whose steps no phase has."""
    phase = next((each for each in phases if each.any_step), None)
    for after, raw in enumerate(reversed(tail)):
        if phase and _ENGINE.search(raw):
            return LastPhase(phase, {"message": _shortened(line(raw).text)}, after)
    return None


def _matches(raw: str, phases: Sequence[Phase]) -> Iterator[tuple[Phase, Mapping[str, str | None]]]:
    for phase in phases:
        for sign in phase.signs:
            if sign.needle in raw:
                said = line(raw)
                if said.nccl and said.level == WARNING:
                    continue
                text = said.text
                # The last part of a line that is redrawn.
                *_, last = (None, *sign.expression.finditer(text))
                if last:
                    yield phase, {**last.groupdict(), "message": _shortened(text[last.start() :])}


def _shortened(text: str) -> str:
    return text.strip(" .")[:_LONGEST]
