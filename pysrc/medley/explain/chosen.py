"""Of all that logs show, the failure that came first: a cause before what follows from it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from medley.explain.known import LOW, RANK
from medley.explain.line import line
from medley.explain.log import Hit, Scanned, shown
from medley.explain.silent import SILENT, last_words
from medley.explain.uncaught import NEAR, UNKNOWN, Slip
from medley.problem import Problem

_AT_ONCE = 8


@dataclass(frozen=True)
class Found:
    """A failure with what shows it."""

    hit: Hit
    follows: bool = False
    """Another came before it, and it may be that one's work."""
    also: tuple[str, ...] = ()
    """Other logs, hosts and ranks that show the same."""

    @property
    def confidence(self) -> str:
        return LOW if self.hit.known.symptom else self.hit.known.confidence

    def problem(self, status: int = 1) -> Problem:
        what, cause, fix = self.hit.known.told(self.hit.found)
        return Problem(what, cause=cause or shown(self.hit.line.text), fix=fix, status=status)

    @property
    def table(self) -> dict[str, Any]:
        """For programs."""
        where = {"host": self.hit.line.host, "rank": self.hit.line.rank}
        return {
            **self.problem().table,
            "line": shown(self.hit.line.text),
            "confidence": self.confidence,
            "name": self.hit.known.name,
            "file": self.hit.log,
            "line_number": self.hit.number,
            **{name: value for name, value in where.items() if value},
            **({"follows": True} if self.follows else {}),
            **({"also": list(self.also)} if self.also else {}),
        }


@dataclass(frozen=True)
class Explained:
    """`unknown`: logs that show a failure, of which no more is known than its own words."""

    problems: tuple[Found, ...]
    unknown: tuple[Scanned, ...]
    scans: tuple[Scanned, ...]

    @property
    def first(self) -> Found | None:
        return self.problems[0] if self.problems else None


def chosen(scans: Sequence[Scanned]) -> Explained:
    hits = [hit for scan in scans for hit in scan.hits if not _mended(hit, scans)]
    worse = {name for hit in hits for name in hit.known.over}
    said = Counter(hit.known.name for hit in hits)
    hits = [hit for hit in hits if hit.known.name not in worse and said[hit.known.name] >= hit.known.often]
    causes = [hit for hit in hits if not hit.known.symptom]
    best = min((RANK[hit.known.confidence] for hit in causes), default=None)
    pool = [hit for hit in causes if RANK[hit.known.confidence] == best]
    found = tuple(_found(sorted(pool, key=_order(pool, scans)), scans))
    if not found:
        found = tuple(Found(hit) for hit in _symptoms(hits, scans)[:1])
    if not found and not hits and not any(scan.was_ready or scan.stopped or scan.slips for scan in scans):
        found = tuple(Found(hit) for scan in scans if (hit := _silent(scan)))[:1]
    unknown = tuple(
        scan
        for scan in scans
        for each in found[:1]
        if each.hit.known is UNKNOWN and scan.name == each.hit.log
    )
    return Explained(found, unknown, tuple(scans))


def _symptoms(hits: Sequence[Hit], scans: Sequence[Scanned]) -> list[Hit]:
    """Where no cause is known: an error in its own words, or what follows from a cause; the best first."""
    own = [_unknown(scan, slip) for scan in scans if not _elsewhere(scan, scans) and (slip := scan.reason)]
    firsts: list[Hit] = []
    for scan in scans:
        of_log = [
            hit for hit in [*hits, *own] if hit.log == scan.name and not (hit.known.last or hit.known.hint)
        ]
        worded = [hit for hit in of_log if not _wordless(hit)]
        firsts.extend(sorted(worded or of_log, key=lambda hit: hit.number)[:1])
    last = [hit for hit in hits if hit.known.last]
    hints = [hit for hit in hits if hit.known.hint] if own or last else []
    pool = firsts or hints or last
    order = _order(pool, scans)
    return sorted(pool, key=lambda hit: (hit.known is not UNKNOWN, order(hit)))


def _wordless(hit: Hit) -> bool:
    """An unknown exception that says nothing beside its kind: what else is known of the log says more."""
    return hit.known is UNKNOWN and not (hit.found.get("said") or "").partition(":")[2].strip()


def _elsewhere(scan: Scanned, scans: Sequence[Scanned]) -> bool:
    """Whether the model became ready, as another rank's log says."""
    return any(other.was_ready for other in scans if other is not scan)


def _silent(scan: Scanned) -> Hit | None:
    ending = last_words(scan.tail)
    if ending is None:
        return None
    before_end, said = ending
    raw = scan.tail[len(scan.tail) - 1 - before_end]
    return Hit(SILENT, {"said": said}, line(raw[-400:]), scan.lines - before_end, scan.name, None)


def _unknown(scan: Scanned, slip: Slip) -> Hit:
    found = {"kind": slip.kind, "said": shown(slip.said), "log": scan.name}
    return Hit(UNKNOWN, found, slip.line, slip.number, scan.name, slip.when)


def _found(ordered: Sequence[Hit], scans: Sequence[Scanned]) -> Iterable[Found]:
    """Of each log the one that ended it, and what stays; each kind of failure once, with all places of it."""
    death = {scan.name: scan.death for scan in scans}
    near = [hit for hit in ordered if _is_near(hit, death[hit.log])]
    logs: set[str] = set()
    by_name: dict[str, list[Hit]] = {}
    for hit in [*near, *(hit for hit in ordered if hit not in near)]:
        if hit.known.name in by_name or hit.log not in logs or hit.known.stays:
            by_name.setdefault(hit.known.name, []).append(hit)
            logs.add(hit.log)
    for at, hits in enumerate(by_name.values()):
        others = dict.fromkeys(_place(hit) for hit in hits if _place(hit) != _place(hits[0]))
        yield Found(_fullest(hits), follows=at > 0, also=tuple(others))


def _is_near(hit: Hit, death: int | None) -> bool:
    return death is None or hit.known.stays or abs(hit.number - death) <= NEAR


def _fullest(hits: Sequence[Hit]) -> Hit:
    """The first, or of the same place one that follows at once and says more."""
    near = (hit for hit in hits if hit.log == hits[0].log and hit.number - hits[0].number <= _AT_ONCE)
    return max(near, key=lambda hit: sum(map(bool, hit.found.values())))


def _place(hit: Hit) -> str:
    words = (hit.log, hit.line.host and f"host {hit.line.host}", hit.line.rank and f"rank {hit.line.rank}")
    return ", ".join(word for word in words if word)


def _order(pool: Sequence[Hit], scans: Sequence[Scanned]) -> Any:  # noqa: ANN401 - a key for sorted
    """By time where all have one, else as they stand: the clocks of hosts are taken to agree."""
    at = {scan.name: number for number, scan in enumerate(scans)}
    if len(scans) > 1 and all(hit.when for hit in pool):
        return lambda hit: (hit.when, at[hit.log], hit.number)
    return lambda hit: (at[hit.log], hit.number)


def _mended(hit: Hit, scans: Sequence[Scanned]) -> bool:
    """Whether another log shows that the model was ready after it."""
    if hit.known.stays or hit.when is None:
        return False
    return any(scan.ready and scan.ready > hit.when for scan in scans if scan.name != hit.log)
