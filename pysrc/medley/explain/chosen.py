"""Of all that logs show, the failure that came first: a cause before what follows from it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from medley.explain.known import LOW, RANK
from medley.explain.scan import Hit, Scanned, shown
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
    """`unknown`: logs that show a failure, of which nothing is known."""

    problems: tuple[Found, ...]
    unknown: tuple[Scanned, ...]
    scans: tuple[Scanned, ...]

    @property
    def first(self) -> Found | None:
        return self.problems[0] if self.problems else None


def chosen(scans: Sequence[Scanned]) -> Explained:
    hits = [hit for scan in scans for hit in scan.hits if not _mended(hit, scans)]
    worse = {name for hit in hits for name in hit.known.over}
    hits = [hit for hit in hits if hit.known.name not in worse]
    causes = [hit for hit in hits if not hit.known.symptom]
    best = min((RANK[hit.known.confidence] for hit in causes), default=None)
    pool = [hit for hit in causes if RANK[hit.known.confidence] == best] or hits
    ordered = sorted(pool, key=_order(pool, scans))
    found = tuple(_found(ordered))
    if found and found[0].hit.known.symptom:
        found = found[:1]
    unknown = () if found else tuple(scan for scan in scans if scan.error and not scan.was_ready)
    return Explained(found, unknown, tuple(scans))


def _found(ordered: Sequence[Hit]) -> Iterable[Found]:
    """Each kind of failure once, with all places of it."""
    by_name: dict[str, list[Hit]] = {}
    for hit in ordered:
        by_name.setdefault(hit.known.name, []).append(hit)
    for at, hits in enumerate(by_name.values()):
        others = dict.fromkeys(_place(hit) for hit in hits if _place(hit) != _place(hits[0]))
        yield Found(_fullest(hits), follows=at > 0, also=tuple(others))


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
