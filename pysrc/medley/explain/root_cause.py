"""Choose the root cause: the first failure of those found in logs."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from medley.errors import Problem
from medley.explain.error_lines import NEAR_LINES
from medley.explain.events import DEFECT, REQUEST, UNKNOWN
from medley.explain.fitted_fix import fit_fix
from medley.explain.lines import parse_line, reports_fault
from medley.explain.log_ends import (
    find_error_like_line,
    find_failed_request,
    find_last_words,
    find_unfinished_step,
    reads_like_error,
)
from medley.explain.patterns import CONFIDENCE_RANK, Confidence, KnownFailures, Phase, Wording
from medley.explain.refused_request import find_refused_request
from medley.explain.scanned_log import FailureMatch, LogScan, build_unknown_match, shorten_message
from medley.values import Value

_MAX_CLOCK_SPAN_S = 900
"""Times of one log that differ by more may be of two time zones."""
# Python, pydantic and PyTorch print these for any code, so they do not tell about a setting.
_LIBRARY_MESSAGE = re.compile(
    r"unsupported operand type|Input should be|tensors?\b.{0,40}\b(?:must match|same device)|mat1 and mat2|"
    r"^shape '|must be (?:real number|str|bytes|callable|a (?:tensor|Tensor))|expected scalar type|"
    r"^expected .{0,30}\b(?:argument|value|m1 and m2|Tensor)|index out of range|values to unpack|"
    r"not (?:subscriptable|iterable|callable)"
)
# Programs that start an engine, whose sentences are not about its settings
_OTHER_PROGRAM = re.compile(
    r"^(?:docker|podman|nerdctl|kubectl|crun|runc|ssh|scp|rsync|curl|systemctl)\b|Error response from daemon"
)
_EXCEPTION_CLASS = re.compile(r"^[\w.]*(?:Error|Exception)(?:\(\w+\))?: ")
_SAME_FAILURE_LINES = 8
"""Two matches of a failure within this many lines count as one."""


class FailureReport(Value):
    match: FailureMatch
    follows: bool = False
    """Whether another failure came before, and may be its cause."""
    also: tuple[str, ...] = ()
    settings: str = ""
    """The settings that its log shows."""
    manager: str | None = None
    """The package manager of its host, where it is not apt."""
    tried: tuple[str, ...] = ()
    """Sentences of the log's owner about what was tried."""

    @property
    def confidence(self) -> Confidence:
        failure = self.match.failure
        if failure.symptom:
            return "low"
        return "medium" if failure.several_causes and failure.confidence == "high" else failure.confidence

    @property
    def is_proven(self) -> bool:
        """Whether its line proves what failed, though perhaps not why."""
        return self.match.failure.confidence == "high" and not self.match.failure.symptom

    def problem(self) -> Problem:
        fit = partial(fit_fix, settings=self.settings, manager=self.manager, tried=self.tried)
        what, cause, fix = self.match.failure.describe(self.match.groups, self.match.engine, fit)
        return Problem(what, cause=cause or shorten_message(self.match.line.text), fix=fix)

    @property
    def table(self) -> dict[str, Any]:
        line = self.match.line
        optional_fields = {
            "host": line.host,
            "rank": line.rank,
            "follows": self.follows,
            "also": list(self.also),
        }
        return {
            **self.problem().table,
            "line": shorten_message(line.text),
            "confidence": self.confidence,
            "name": self.match.failure.name,
            "file": self.match.log,
            "line_number": self.match.number,
            **{name: value for name, value in optional_fields.items() if value},
        }


class Explanation(Value):
    """The result; `unknown`: logs with an unknown failure."""

    problems: tuple[FailureReport, ...]
    unknown: tuple[LogScan, ...]
    scans: tuple[LogScan, ...]
    warnings: tuple[str, ...] = ()
    """Skipped known failures, with reasons."""

    @property
    def doubtful_line(self) -> str | None:
        """A line that reads like an error, in logs without a failure."""
        lines = (parse_line(raw) for scan in self.scans for raw in scan.tail)
        return next((shorten_message(line.text) for line in lines if reads_like_error(line)), None)

    @property
    def first(self) -> FailureReport | None:
        return self.problems[0] if self.problems else None


def choose_failures(scans: Sequence[LogScan], known: KnownFailures) -> Explanation:
    """Choose among the matches of all logs; without one, a log that ends in a phase of a start or serving."""
    phases = known.phases
    for scan in scans:
        scan.complete_matches()
        # An error whose known failure does not count is an unknown one.
        scan.matches = [match for match in scan.matches if _can_count(match, scan)]
    matches = [match for scan in scans for match in scan.matches if not _has_recovered(match, scans)]
    replaced_names = {name for match in matches for name in match.failure.over}
    counts = Counter(match.failure.name for match in matches)
    frequent_names = {
        match.failure.name for match in matches if counts[match.failure.name] >= match.failure.minimum
    }
    matches = [match for match in matches if match.failure.name in frequent_names - replaced_names]
    causes = _drop_progress([match for match in matches if not match.failure.symptom], scans)
    best = min((CONFIDENCE_RANK[match.failure.confidence] for match in causes), default=None)
    pool = [match for match in causes if CONFIDENCE_RANK[match.failure.confidence] == best]
    reports = list(_report_failures(sorted(pool, key=_build_sort_key(pool, scans)), scans))
    if not reports:
        reports = [FailureReport(match) for match in _find_symptoms(matches, scans)[:1]]
        silent_ends = _find_silent_end(reports, scans, phases)
        reports = [*silent_ends, *(report.replace(follows=bool(silent_ends)) for report in reports)]
    if not reports and not any(scan.stopped for scan in scans):
        reports = _report_first(find_unfinished_step(scan, scans, phases) for scan in scans)
    if not reports:
        reports = _report_first(find_failed_request(scan, phases) for scan in scans)
    if not reports:
        reports = _report_first(map(find_refused_request, scans))
    if not reports:
        reports = _report_first(find_failed_request(scan, phases, also_served=True) for scan in scans)
    if not reports:
        reports = _report_first(map(find_last_words, scans))
    if not reports:
        reports = _report_first(map(find_error_like_line, scans))
    by_log = {scan.name: scan for scan in scans}
    reports = [
        report.replace(
            match=_apply_wording(report.match, known.wordings),
            settings=by_log[report.match.log].all_settings,
            manager=by_log[report.match.log].figures.get("manager"),
            tried=tuple(by_log[report.match.log].tried),
        )
        for report in reports
    ]
    unknown = {
        report.match.log for report in reports[:1] if report.match.failure in (UNKNOWN, DEFECT, REQUEST)
    }
    return Explanation(tuple(reports), tuple(scan for scan in scans if scan.name in unknown), tuple(scans))


def _report_first(matches: Iterable[FailureMatch | None]) -> list[FailureReport]:
    first_match = next(filter(None, matches), None)
    return [FailureReport(first_match)] if first_match else []


def _drop_progress(causes: Sequence[FailureMatch], scans: Sequence[LogScan]) -> list[FailureMatch]:
    """Drop causes whose line reports no error where another does: they name what worked last.

    An entry that names the error that must follow is proved by it.
    """
    error_places = [(scan.name, error.number) for scan in scans for error in scan.errors]

    def is_in_message(match: FailureMatch) -> bool:  # of an exception, whose message may have further lines
        return any(
            log_name == match.log and 0 < match.number - number <= _SAME_FAILURE_LINES
            for log_name, number in error_places
        )

    reporting = [
        match for match in causes if match.failure.error or reports_fault(match.line) or is_in_message(match)
    ]
    has_error = bool(reporting) or any(scan.reason for scan in scans)
    return reporting if has_error else list(causes)


def _apply_wording(match: FailureMatch, wordings: Sequence[Wording]) -> FailureMatch:
    """Return the match with the first wording that its engine's own sentence has."""
    sentence = _EXCEPTION_CLASS.sub("", match.groups.get(match.failure.reworded or "") or "")
    fallback = (
        match.replace(failure=DEFECT)
        if match.failure is UNKNOWN and match.groups.get("version_fault")
        else match
    )
    if _LIBRARY_MESSAGE.search(sentence) or _OTHER_PROGRAM.search(sentence):
        return fallback
    usable = (wording for wording in wordings if not wording.needs or match.groups.get(wording.needs))
    for wording in usable:
        for sign in wording.signs:
            sign_match = sign.expression.search(sentence) if sign.needle in sentence else None
            if sign_match and not (wording.harmless and wording.harmless.search(sentence)):
                return match.replace(
                    failure=wording,
                    groups={**match.groups, **sign_match.groupdict(), "said": sentence},
                )
    return fallback


def _find_symptoms(matches: Sequence[FailureMatch], scans: Sequence[LogScan]) -> list[FailureMatch]:
    unknown_matches: list[FailureMatch] = []
    for scan in scans:
        # The error is harmless if another rank's log shows that the model became ready.
        ready = any(other.was_ready for other in scans if other is not scan)
        if not ready and (error := scan.reason):
            unknown_matches.append(build_unknown_match(UNKNOWN, error, scan))
    first_matches: list[FailureMatch] = []
    for scan in scans:
        log_matches = [match for match in [*matches, *unknown_matches] if match.log == scan.name]
        log_matches = [match for match in log_matches if not (match.failure.ends or match.failure.hint)]
        # An unknown exception without a message is less informative than other matches.
        worded_matches = [
            match
            for match in log_matches
            if match.failure is not UNKNOWN or (match.groups["message"] or "").partition(":")[2].strip()
        ]
        candidates = worded_matches or log_matches
        first_matches.extend(sorted(candidates, key=_build_sort_key(candidates, [scan]))[:1])
    ends = [match for match in matches if match.failure.ends]
    hints = [match for match in matches if match.failure.hint] if unknown_matches or ends else []
    pool = first_matches or hints or ends
    order = _build_sort_key(pool, scans)
    return sorted(pool, key=lambda match: (match.failure is not UNKNOWN, order(match)))


def _find_silent_end(
    reports: Sequence[FailureReport], scans: Sequence[LogScan], phases: Sequence[Phase]
) -> list[FailureReport]:
    """Return the silent end of another rank, which explains a connection that was lost to it."""
    if not reports or not reports[0].match.failure.symptom:
        return []
    silent = [scan for scan in scans if not (scan.matches or scan.errors or scan.stopped)]
    ends = (FailureReport(match) for scan in silent if (match := find_unfinished_step(scan, scans, phases)))
    return list(ends)[:1]


def _can_count(match: FailureMatch, scan: LogScan) -> bool:
    """Whether the error that must follow a warning is in its log, and no earlier start explains it."""
    if _follows_restart(match, scan):
        return False
    if (expected_error := match.failure.error) is None:
        return True
    # The line itself is that error where it ends a traceback, so it is no mere warning.
    errors = [
        (error.number, error.message)
        for error in scan.errors
        if error.number > match.number or (error.number == match.number and error.ends_traceback)
    ]
    errors += [(other.number, other.line.text) for other in scan.matches if other.number > match.number]
    return any(expected_error.search(text) for _, text in errors)


def _follows_restart(match: FailureMatch, scan: LogScan) -> bool:
    """Whether the match is an effect of an earlier start in its log, which failed for another reason."""
    effects = {other.number for other in scan.matches if other.failure.after_restart}
    causes = [error.number for error in scan.errors if error.ends_traceback and not error.is_consequence]
    causes += [
        other.number for other in scan.matches if not (other.failure.symptom or other.failure.after_restart)
    ]
    first = min((number for number in causes if number not in effects), default=match.number)
    between = [*scan.starts, *(other.number for other in scan.matches if other.failure.ends)]
    return match.failure.after_restart and any(first < number < match.number for number in between)


def _report_failures(ordered: Sequence[FailureMatch], scans: Sequence[LogScan]) -> Iterable[FailureReport]:
    """Yield each kind of failure once, with all its places: those that ended a log, and lasting ones."""
    end_numbers = {scan.name: scan.end_number for scan in scans}
    near = [
        match
        for match in ordered
        if (end_number := end_numbers[match.log]) is None
        or match.failure.also_when_ready
        or abs(match.number - end_number) <= NEAR_LINES
    ]
    logs: set[str] = set()
    by_name: dict[str, list[FailureMatch]] = {}
    for match in [*near, *(match for match in ordered if match not in near)]:
        if match.failure.name in by_name or match.log not in logs or match.failure.also_when_ready:
            by_name.setdefault(match.failure.name, []).append(match)
            logs.add(match.log)
    for index, matches in enumerate(by_name.values()):
        places = {_describe_place(matches[0]), matches[0].log}
        others = dict.fromkeys(
            _describe_place(match) for match in matches if _describe_place(match) not in places
        )
        # The first match, or a more informative one right after it.
        same = (
            match
            for match in matches
            if match.log == matches[0].log and match.number - matches[0].number <= _SAME_FAILURE_LINES
        )
        fullest = max(same, key=lambda match: sum(map(bool, match.groups.values())))
        yield FailureReport(fullest, follows=index > 0, also=tuple(others))


def _describe_place(match: FailureMatch) -> str:
    words = (
        match.log,
        match.line.host and f"host {match.line.host}",
        match.line.rank and f"rank {match.line.rank}",
    )
    return ", ".join(word for word in words if word)


def _build_sort_key(matches: Sequence[FailureMatch], scans: Sequence[LogScan]) -> Any:  # noqa: ANN401 - a key for sorted
    """Order by time if all have one, assuming that the hosts' clocks agree, else by position.

    One log may hold the pasted logs of several processes, so its times count too, in seconds.
    """
    positions = {scan.name: number for number, scan in enumerate(scans)}
    if len(scans) == 1 and _is_one_clock([match.when for match in matches]):
        return lambda match: (match.when[:2], int(match.when[2]), match.number)
    if len(scans) > 1 and all(match.when for match in matches):
        return lambda match: (match.when, positions[match.log], match.number)
    return lambda match: (positions[match.log], match.number)


def _is_one_clock(times: Sequence[tuple[int, int, float] | None]) -> bool:
    """Whether all have a time, and are so near that they are of one time zone."""
    known = [when for when in times if when]
    if len(known) < len(times) or len({when[:2] for when in known}) != 1:
        return False
    seconds = [when[2] for when in known]
    return max(seconds) - min(seconds) < _MAX_CLOCK_SPAN_S


def _has_recovered(match: FailureMatch, scans: Sequence[LogScan]) -> bool:
    if match.failure.also_when_ready or match.when is None:
        return False
    return any(scan.ready and scan.ready > match.when for scan in scans if scan.name != match.log)
