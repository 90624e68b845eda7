"""Explain a log by its end: an unfinished step, a failed request, or a command's last words."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from medley.explain.context import printed_warning
from medley.explain.events import REQUEST, UNKNOWN, echoed
from medley.explain.lines import ERROR, INFO, WARNING, LogLine, line
from medley.explain.patterns import Phase
from medley.explain.phases import last_line, last_phase
from medley.explain.refused_request import find_status
from medley.explain.scanned_log import Hit, Scanned, shown, unknown_hit

_LAST = 3
"""Lines at the end of a log, without blank ones, that may be a command's own error."""
_NEAR_ANSWER = 60
"""Lines before an exception that may have the answer of its request."""
_REPORTS = re.compile(
    r"^(?:[\w./-]{1,40}: )?"
    r"(?:Error|ERROR|ERRO\[|ERR\b|FATA|FATAL|[Ff]atal|FAILED|E: |[Ff]ailed to |panic: |error: )|"
    r"\bFAILED\b.{0,20}\b(?:rc|code|status)\b|\bexit(?:ed)? (?:with )?(?:code|status)[ :=]*[1-9]"
)


def find_unfinished_step(scan: Scanned, scans: Sequence[Scanned], phases: Sequence[Phase]) -> Hit | None:
    """Return the phase in which a log ends, unless the log of another rank shows that it passed."""
    last = last_phase(scan.tail, phases) or (None if scan.was_ready else last_line(scan.tail, phases))
    if last is None or last.phase.complete or any(other.was_ready for other in scans if other is not scan):
        return None
    after = list(scan.tail)[-last.after :] if last.after else []
    errors = (at for at, each in enumerate(map(line, after)) if _is_error(each))
    at = next(errors, None)
    if at is not None:
        said = line(after[at])
        words = {"kind": "an error", "message": shown(said.text), "step": last.message}
        number = scan.lines - last.after + at + 1
        return Hit(UNKNOWN, words, said, number, scan.name, said.when, scan.engine)
    raw = scan.tail[-1 - last.after]
    number = scan.lines - last.after
    given: dict[str, str | None] = {**last.groups}
    given |= {"above": printed_warning([line(each) for each in scan.tail])}
    return Hit(last.phase, given, line(raw[-400:]), number, scan.name, None, scan.engine)


def _is_error(said: LogLine) -> bool:
    """Whether a line reports an error, or begins a traceback whose end the log does not have."""
    if said.level in (INFO, WARNING):
        return False
    return (said.level == ERROR and not echoed(said.text)) or said.text.startswith("Traceback (most recent")


def find_failed_request(scan: Scanned, phases: Sequence[Phase]) -> Hit | None:
    """Return the last exception of a server that did not end, if no request is answered after it."""
    if not scan.was_ready or scan.stopped or scan.death is not None:
        return None
    last = last_phase(scan.tail, phases)
    served = scan.lines - last.after if last and last.phase.complete else 0
    failed = [each for each in scan.slips if each.traced and not each.follows and each.number > served]
    if not failed:
        return None
    hit = unknown_hit(REQUEST, failed[-1], scan)
    # An answer is printed after its error, or before the exception that followed it.
    near = islice(scan.tail, max(failed[-1].number - (scan.lines - len(scan.tail)) - _NEAR_ANSWER, 0), None)
    return replace(hit, found={**hit.found, "status": find_status(near)})


def find_last_words(scan: Scanned) -> Hit | None:
    """Return the line at the end of a log that reports an error, as a command prints it before it ends."""
    if scan.was_ready or scan.stopped:
        return None
    last = [(at, line(raw)) for at, raw in enumerate(scan.tail) if raw.strip()][-_LAST:]
    wrong = [
        (at, said) for at, said in last if _REPORTS.search(said.text) and said.level not in (INFO, WARNING)
    ]
    if not wrong:
        return None
    at, said = wrong[0]
    words = {"kind": "an error", "message": shown(said.text)}
    return Hit(UNKNOWN, words, said, scan.lines - len(scan.tail) + at + 1, scan.name, said.when, scan.engine)
