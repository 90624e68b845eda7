"""Choose the first failure of those found in logs."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from medley.errors import Problem
from medley.explain.events import DEFECT, NEAR, REQUEST, UNKNOWN
from medley.explain.lines import reports_fault
from medley.explain.log_ends import (
    find_failed_request,
    find_last_words,
    find_unfinished_step,
)
from medley.explain.patterns import RANK, Confidence, Known, Phase, Wording
from medley.explain.refused_request import find_refused_request
from medley.explain.scanned_log import Hit, Scanned, shown, unknown_hit

_ONE_CLOCK_S = 900
"""Times of one log that differ by more may be of two time zones."""
# Python, pydantic and PyTorch print these for any code, so they do not tell about a setting.
_OF_LIBRARY = re.compile(
    r"unsupported operand type|Input should be|tensors?\b.{0,40}\b(?:must match|same device)|mat1 and mat2|"
    r"^shape '|must be (?:real number|str|bytes|callable|a (?:tensor|Tensor))|expected scalar type|"
    r"^expected .{0,30}\b(?:argument|value|m1 and m2|Tensor)|index out of range|"
    r"not (?:subscriptable|iterable|callable)"
)
_CLASS = re.compile(r"^[\w.]*(?:Error|Exception)(?:\(\w+\))?: ")
_AT_ONCE = 8
"""Two matches of a failure within this many lines count as one."""


@dataclass(frozen=True)
class FoundFailure:
    hit: Hit
    follows: bool = False
    """Whether another failure came before, and may be its cause."""
    also: tuple[str, ...] = ()

    @property
    def confidence(self) -> Confidence:
        failure = self.hit.failure
        if failure.symptom:
            return "low"
        return "medium" if failure.several_causes and failure.confidence == "high" else failure.confidence

    @property
    def is_proven(self) -> bool:
        """Whether its line proves what failed, though perhaps not why."""
        return self.hit.failure.confidence == "high" and not self.hit.failure.symptom

    def problem(self) -> Problem:
        what, cause, fix = self.hit.failure.told(self.hit.found, self.hit.engine)
        return Problem(what, cause=cause or shown(self.hit.line.text), fix=fix)

    @property
    def table(self) -> dict[str, Any]:
        line = self.hit.line
        more = {"host": line.host, "rank": line.rank, "follows": self.follows, "also": list(self.also)}
        return {
            **self.problem().table,
            "line": shown(line.text),
            "confidence": self.confidence,
            "name": self.hit.failure.name,
            "file": self.hit.log,
            "line_number": self.hit.number,
            **{name: value for name, value in more.items() if value},
        }


@dataclass(frozen=True)
class Explained:
    """The result; `unknown`: logs with an unknown failure."""

    problems: tuple[FoundFailure, ...]
    unknown: tuple[Scanned, ...]
    scans: tuple[Scanned, ...]
    warnings: tuple[str, ...] = ()
    """Skipped known failures, with reasons."""

    @property
    def first(self) -> FoundFailure | None:
        return self.problems[0] if self.problems else None


def chosen(scans: Sequence[Scanned], known: Known) -> Explained:
    """Choose among the hits of all logs; without one, a log that ends in a phase of a start or of serving."""
    phases = known.phases
    hits = [hit for scan in scans for hit in scan.hits if _counts(hit, scan) and not _mended(hit, scans)]
    worse = {name for hit in hits for name in hit.failure.over}
    said = Counter(hit.failure.name for hit in hits)
    enough = {hit.failure.name for hit in hits if said[hit.failure.name] >= hit.failure.minimum}
    hits = [hit for hit in hits if hit.failure.name in enough - worse]
    causes = _without_progress([hit for hit in hits if not hit.failure.symptom], scans)
    best = min((RANK[hit.failure.confidence] for hit in causes), default=None)
    pool = [hit for hit in causes if RANK[hit.failure.confidence] == best]
    found = list(_found(sorted(pool, key=_order(pool, scans)), scans))
    if not found:
        found = [FoundFailure(hit) for hit in _symptoms(hits, scans)[:1]]
        ended = _ended_before(found, scans, phases)
        found = [*ended, *(replace(each, follows=bool(ended)) for each in found)]
    if not found and not any(scan.stopped for scan in scans):
        found = _firsts(find_unfinished_step(scan, scans, phases) for scan in scans)
    if not found:
        found = _firsts(find_failed_request(scan, phases) for scan in scans)
    if not found:
        found = _firsts(map(find_refused_request, scans))
    if not found:
        found = _firsts(map(find_last_words, scans))
    found = [replace(each, hit=_reworded(each.hit, known.wordings)) for each in found]
    unknown = {each.hit.log for each in found[:1] if each.hit.failure in (UNKNOWN, DEFECT, REQUEST)}
    return Explained(tuple(found), tuple(scan for scan in scans if scan.name in unknown), tuple(scans))


def _firsts(hits: Iterable[Hit | None]) -> list[FoundFailure]:
    first = next(filter(None, hits), None)
    return [FoundFailure(first)] if first else []


def _without_progress(causes: Sequence[Hit], scans: Sequence[Scanned]) -> list[Hit]:
    """Drop causes whose line reports no error where another does: they name what worked last.

    An entry that names the error that must follow is proved by it.
    """
    slips = [(scan.name, slip.number) for scan in scans for slip in scan.slips]

    def is_in_message(hit: Hit) -> bool:  # of an exception, whose message may have further lines
        return any(log == hit.log and 0 < hit.number - at <= _AT_ONCE for log, at in slips)

    reports = [hit for hit in causes if hit.failure.error or reports_fault(hit.line) or is_in_message(hit)]
    has_error = bool(reports) or any(scan.reason for scan in scans)
    return reports if has_error else list(causes)


def _reworded(hit: Hit, wordings: Sequence[Wording]) -> Hit:
    """Return the hit with the first wording that its engine's own sentence has."""
    said = _CLASS.sub("", hit.found.get(hit.failure.reworded or "") or "")
    bare = replace(hit, failure=DEFECT) if hit.failure is UNKNOWN and hit.found.get("version_fault") else hit
    if _OF_LIBRARY.search(said):
        return bare
    for wording in wordings:
        for sign in wording.signs:
            match = sign.expression.search(said) if sign.needle in said else None
            if match and not (wording.harmless and wording.harmless.search(said)):
                return replace(hit, failure=wording, found={**hit.found, **match.groupdict(), "said": said})
    return bare


def _symptoms(hits: Sequence[Hit], scans: Sequence[Scanned]) -> list[Hit]:
    own: list[Hit] = []
    for scan in scans:
        # The error is harmless if another rank's log shows that the model became ready.
        ready = any(other.was_ready for other in scans if other is not scan)
        if not ready and (slip := scan.reason):
            own.append(unknown_hit(UNKNOWN, slip, scan))
    firsts: list[Hit] = []
    for scan in scans:
        of_log = [hit for hit in [*hits, *own] if hit.log == scan.name]
        of_log = [hit for hit in of_log if not (hit.failure.ends or hit.failure.hint)]
        # An unknown exception without a message is less informative than other hits.
        worded = [
            hit
            for hit in of_log
            if hit.failure is not UNKNOWN or (hit.found["message"] or "").partition(":")[2].strip()
        ]
        own_hits = worded or of_log
        firsts.extend(sorted(own_hits, key=_order(own_hits, [scan]))[:1])
    last = [hit for hit in hits if hit.failure.ends]
    hints = [hit for hit in hits if hit.failure.hint] if own or last else []
    pool = firsts or hints or last
    order = _order(pool, scans)
    return sorted(pool, key=lambda hit: (hit.failure is not UNKNOWN, order(hit)))


def _ended_before(
    found: Sequence[FoundFailure], scans: Sequence[Scanned], phases: Sequence[Phase]
) -> list[FoundFailure]:
    """Return the silent end of another rank, which explains a connection that was lost to it."""
    if not found or not found[0].hit.failure.symptom:
        return []
    silent = [scan for scan in scans if not (scan.hits or scan.slips or scan.stopped)]
    ends = (FoundFailure(hit) for scan in silent if (hit := find_unfinished_step(scan, scans, phases)))
    return list(ends)[:1]


def _counts(hit: Hit, scan: Scanned) -> bool:
    """Whether the error that must follow a warning is in its log, and no earlier start explains it."""
    if _follows_restart(hit, scan):
        return False
    if (wanted := hit.failure.error) is None:
        return True
    errors = [(each.number, each.said) for each in scan.slips]
    errors += [(each.number, each.line.text) for each in scan.hits]
    return any(number > hit.number and wanted.search(text) for number, text in errors)


def _follows_restart(hit: Hit, scan: Scanned) -> bool:
    """Whether the hit is an effect of an earlier start in its log, which failed for another reason."""
    effects = {each.number for each in scan.hits if each.failure.after_restart}
    causes = [each.number for each in scan.slips if each.traced and not each.follows]
    causes += [each.number for each in scan.hits if not (each.failure.symptom or each.failure.after_restart)]
    first = min((number for number in causes if number not in effects), default=hit.number)
    between = [*scan.starts, *(each.number for each in scan.hits if each.failure.ends)]
    return hit.failure.after_restart and any(first < number < hit.number for number in between)


def _found(ordered: Sequence[Hit], scans: Sequence[Scanned]) -> Iterable[FoundFailure]:
    """Yield each kind of failure once, with all its places: those that ended a log, and lasting ones."""
    deaths = {scan.name: scan.death for scan in scans}
    near = [
        hit
        for hit in ordered
        if (death := deaths[hit.log]) is None
        or hit.failure.also_when_ready
        or abs(hit.number - death) <= NEAR
    ]
    logs: set[str] = set()
    by_name: dict[str, list[Hit]] = {}
    for hit in [*near, *(hit for hit in ordered if hit not in near)]:
        if hit.failure.name in by_name or hit.log not in logs or hit.failure.also_when_ready:
            by_name.setdefault(hit.failure.name, []).append(hit)
            logs.add(hit.log)
    for at, hits in enumerate(by_name.values()):
        places = {_place(hits[0]), hits[0].log}
        others = dict.fromkeys(_place(hit) for hit in hits if _place(hit) not in places)
        # The first hit, or a more informative one right after it.
        same = (hit for hit in hits if hit.log == hits[0].log and hit.number - hits[0].number <= _AT_ONCE)
        fullest = max(same, key=lambda hit: sum(map(bool, hit.found.values())))
        yield FoundFailure(fullest, follows=at > 0, also=tuple(others))


def _place(hit: Hit) -> str:
    words = (hit.log, hit.line.host and f"host {hit.line.host}", hit.line.rank and f"rank {hit.line.rank}")
    return ", ".join(word for word in words if word)


def _order(pool: Sequence[Hit], scans: Sequence[Scanned]) -> Any:  # noqa: ANN401 - a key for sorted
    """Order by time if all have one, assuming that the hosts' clocks agree, else by position.

    One log may hold the pasted logs of several processes, so its times count too, in seconds.
    """
    at = {scan.name: number for number, scan in enumerate(scans)}
    if len(scans) == 1 and _is_one_clock([hit.when for hit in pool]):
        return lambda hit: (hit.when[:2], int(hit.when[2]), hit.number)
    if len(scans) > 1 and all(hit.when for hit in pool):
        return lambda hit: (hit.when, at[hit.log], hit.number)
    return lambda hit: (at[hit.log], hit.number)


def _is_one_clock(times: Sequence[tuple[int, int, float] | None]) -> bool:
    """Whether all have a time, and are so near that they are of one time zone."""
    known = [when for when in times if when]
    if len(known) < len(times) or len({when[:2] for when in known}) != 1:
        return False
    seconds = [when[2] for when in known]
    return max(seconds) - min(seconds) < _ONE_CLOCK_S


def _mended(hit: Hit, scans: Sequence[Scanned]) -> bool:
    if hit.failure.also_when_ready or hit.when is None:
        return False
    return any(scan.ready and scan.ready > hit.when for scan in scans if scan.name != hit.log)
