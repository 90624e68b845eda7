"""Find the phase of a start, or of serving, in which a log ends."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from medley.explain.lines import WARNING, cut_at_blank, parse_line
from medley.explain.patterns import Phase

_MAX_MESSAGE_CHARS = 160
# vLLM's processes, and SGLang's ranks: lines that only an engine prints.
_ENGINE_LINE = re.compile(
    r"\(\w*(?:EngineCore|APIServer|Worker)\w* (?:rank=\S+ )?pid=\d+|"
    r"^\[\d{4}-\d\d-\d\d [\d:.]+(?: (?:DP|PP|TP|EP)\d+)+\]"
)


class LastPhase(NamedTuple):
    """`groups`: of its pattern, with `message`, its line from the step on; `lines_after`: their number."""

    phase: Phase
    groups: Mapping[str, str | None]
    lines_after: int

    @property
    def message(self) -> str:
        return self.groups["message"] or ""


def find_last_phase(
    tail: Sequence[str],
    phases: Sequence[Phase],
    others: Sequence[str] = (),
    groups: Mapping[str, str | None] | None = None,
) -> LastPhase | None:
    """Return the last phase of these lines, searched from the end.

    `others`: lines of other ranks' logs. `groups`: what the whole log shows, for phases that need it.
    """
    lines = [*tail, *others]
    counting = [
        each
        for each in phases
        if (each.earlier is None or any(re.search(each.earlier, text) for text in lines))
        and (each.needs is None or (groups or {}).get(each.needs))
    ]
    for lines_after, raw in enumerate(reversed(tail)):
        if match := next(_match_phases(raw, counting), None):
            return LastPhase(*match, lines_after)
    return None


def find_last_engine_line(tail: Sequence[str], phases: Sequence[Phase]) -> LastPhase | None:
    """Return the phase of any step, with the last line of an engine, for a log whose steps no phase has."""
    phase = next((phase for phase in phases if phase.any_step), None)
    for lines_after, raw in enumerate(reversed(tail)):
        if phase and _ENGINE_LINE.search(raw):
            return LastPhase(phase, {"message": _shorten(parse_line(raw).text)}, lines_after)
    return None


def _match_phases(raw: str, phases: Sequence[Phase]) -> Iterator[tuple[Phase, Mapping[str, str | None]]]:
    for phase in phases:
        for sign in phase.signs:
            if sign.needle in raw:
                line = parse_line(raw)
                if line.nccl and line.level == WARNING:
                    continue
                text = line.text
                # The last part of a line that is redrawn.
                *_, last = (None, *sign.expression.finditer(text))
                if last:
                    yield phase, {**last.groupdict(), "message": _shorten(text[last.start() :])}


def _shorten(text: str) -> str:
    return cut_at_blank(text.strip(" ."), _MAX_MESSAGE_CHARS)
