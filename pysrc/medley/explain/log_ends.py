"""Explain a log by its end: an unfinished step, a failed request, or a command's last words."""

import re
from collections.abc import Sequence
from itertools import islice

from medley.explain.context import find_warning
from medley.explain.events import REQUEST, UNKNOWN, is_echo
from medley.explain.hangs import find_hang
from medley.explain.hosts import Hosts, find_p2p_off, read_hosts
from medley.explain.lines import ERROR, INFO, WARNING, LogLine, parse_line
from medley.explain.loaders import find_loader
from medley.explain.memory_fit import count_ranks
from medley.explain.patterns import Phase
from medley.explain.phases import find_last_engine_line, find_last_phase
from medley.explain.refused_request import find_status
from medley.explain.scanned_log import FailureMatch, LogScan, build_unknown_match, shorten_message
from medley.explain.stops import find_stop

_LAST_LINES = 3
"""Lines at the end of a log, without blank ones, that may be a command's own error."""
# Words of an error in any place of a line; not in a name, such as error_handler or /no-error/.
_ERROR_WORDS = re.compile(
    r"(?i)(?<![\w./-])(?:errors?|failed|failure|denied|unauthorized|refused|fatal|cannot|can't|could not)"
    r"(?![\w/-])(?!\s*[=:]\s*(?:0|none|null|false|\[\]|\{\}|'')(?!\w))"
)
_GOES_ON = re.compile(r"(?i)falling back|using .{1,40} instead|(?:re)?try(?:ing)?\b|continuing|recovered")
_NO_ERROR = re.compile(
    r"(?i)\b(?:no|0|without|ignor\w+) (?:\w+ )?(?:errors?|failures?|failed)\b|\b(?:if|when) "
)
_ANSWER_LINES = 60
"""Lines before an exception that may have the answer of its request."""
_MAX_END_CHARS = 400
_ERROR_REPORT = re.compile(
    r"^(?:[\w./-]{1,40}: )?"
    r"(?:Error|ERROR|ERRO\[|ERR\b|FATA|FATAL|[Ff]atal|FAILED|E: |[Ff]ailed to |panic: |error: )|"
    # What the system names an error, at the end of a line, as shells and tools print it
    r": (?:Permission denied|No such file or directory|Connection (?:refused|timed out|reset by peer)|"
    r"No route to host|Input/output error|Operation not permitted|Device or resource busy|Is a directory|"
    r"Not a directory|Exec format error|Argument list too long|Network is unreachable)\.?$|"
    r"\bFAILED\b.{0,20}\b(?:rc|code|status)\b|\bexit(?:ed)? (?:with )?(?:code|status)[ :=]*[1-9]"
)


def find_unfinished_step(
    scan: LogScan, scans: Sequence[LogScan], phases: Sequence[Phase]
) -> FailureMatch | None:
    """Return the phase in which a log ends, unless the log of another rank shows that it passed."""
    others = [text for other in scans if other is not scan for text in other.tail]
    hosts = read_hosts(scan.figures, scan.arguments)
    facts = {
        **hosts._asdict(),
        "p2p_off": hosts.one_host and find_p2p_off(scan.all_settings),
        "stopped": find_stop(list(scan.tail)),
        "hang": find_hang(list(scan.tail)),
        "rank_hang": find_hang(list(scan.tail)) if _has_ranks(scan, hosts) else None,
        "loader": find_loader(scan.figures, scan.all_settings),
    }
    last_match = find_last_phase(scan.tail, phases, others, facts)
    if last_match is None and not scan.was_ready:
        last_match = find_last_engine_line(scan.tail, phases)
    if (
        last_match is None
        or last_match.phase.complete
        or any(other.was_ready for other in scans if other is not scan)
    ):
        return None
    after = list(scan.tail)[-last_match.lines_after :] if last_match.lines_after else []
    error_indexes = (index for index, line in enumerate(map(parse_line, after)) if _is_error(line))
    index = next(error_indexes, None)
    if index is not None:
        line = parse_line(after[index])
        words = {"kind": "an error", "message": shorten_message(line.text), "step": last_match.message}
        number = scan.lines - last_match.lines_after + index + 1
        return FailureMatch(UNKNOWN, words, line, number, scan.name, line.when, scan.engine)
    raw = scan.tail[-1 - last_match.lines_after]
    number = scan.lines - last_match.lines_after
    groups: dict[str, str | None] = {**facts, **last_match.groups}
    # A redrawn line has its last drawing at its end.
    end = raw if len(raw) <= _MAX_END_CHARS else raw[-_MAX_END_CHARS:].partition(" ")[2]
    groups |= {"above": find_warning([parse_line(text) for text in scan.tail])}
    return FailureMatch(last_match.phase, groups, parse_line(end), number, scan.name, None, scan.engine)


def _has_ranks(scan: LogScan, hosts: Hosts) -> bool:
    return bool(hosts.one_host or hosts.several_hosts) or count_ranks(scan.all_settings, scan.figures) > 1


def _is_error(line: LogLine) -> bool:
    """Whether a line reports an error, or begins a traceback whose end the log does not have."""
    if line.level in (INFO, WARNING):
        return False
    return (line.level == ERROR and not is_echo(line.text)) or line.text.startswith("Traceback (most recent")


def find_failed_request(
    scan: LogScan, phases: Sequence[Phase], *, also_served: bool = False
) -> FailureMatch | None:
    """Return the last exception of a server that did not end, if no request is answered after it.

    With `also_served` one that the engine logged as an error counts too where requests are answered after it,
    because the answer to a stream is printed at its start.
    """
    if not scan.was_ready or scan.stopped or scan.end_number is not None:
        return None
    last_match = None if also_served else find_last_phase(scan.tail, phases)
    served = scan.lines - last_match.lines_after if last_match and last_match.phase.complete else 0
    failures = [
        error
        for error in scan.errors
        if error.ends_traceback
        and not error.is_consequence
        and error.number > served
        and (error.line.level == ERROR or not also_served)
    ]
    if not failures:
        return None
    match = build_unknown_match(REQUEST, failures[-1], scan)
    # An answer is printed after its error, or before the exception that followed it.
    nearby_lines = islice(
        scan.tail, max(failures[-1].number - (scan.lines - len(scan.tail)) - _ANSWER_LINES, 0), None
    )
    return match.replace(groups={**match.groups, "status": find_status(nearby_lines)})


def find_last_words(scan: LogScan) -> FailureMatch | None:
    """Return the line at the end of a log that reports an error, as a command prints it before it ends."""
    if scan.was_ready or scan.stopped:
        return None
    last_lines = [(index, parse_line(raw)) for index, raw in enumerate(scan.tail) if raw.strip()][
        -_LAST_LINES:
    ]
    error_lines = [
        (index, line)
        for index, line in last_lines
        if _ERROR_REPORT.search(line.text) and line.level not in (INFO, WARNING)
    ]
    if not error_lines:
        return None
    index, line = error_lines[0]
    words = {"kind": "an error", "message": shorten_message(line.text)}
    return FailureMatch(
        UNKNOWN, words, line, scan.lines - len(scan.tail) + index + 1, scan.name, line.when, scan.engine
    )


def find_error_like_line(scan: LogScan) -> FailureMatch | None:
    """Return the first line near the end that reads like an error, where nothing else explains the log.

    A command's output may go on after its error, with the next commands of its user.
    """
    if scan.was_ready or scan.stopped:
        return None
    lines = list(enumerate(map(parse_line, scan.tail)))
    error_lines = [
        (index, line)
        for index, line in lines
        if reads_like_error(line)
        and not any(_GOES_ON.match(later.text) for _, later in lines[index + 1 : index + 1 + _LAST_LINES])
    ]
    if not error_lines:
        return None
    index, line = error_lines[0]
    words = {"kind": "a line that reads like an error", "message": shorten_message(line.text)}
    number = scan.lines - len(scan.tail) + index + 1
    return FailureMatch(UNKNOWN, words, line, number, scan.name, line.when, scan.engine)


def reads_like_error(line: LogLine) -> bool:
    if line.level in (INFO, WARNING) or is_echo(line.text) or _NO_ERROR.search(line.text):
        return False
    return bool(line.level == ERROR or _ERROR_WORDS.search(line.text) or _ERROR_REPORT.search(line.text))
