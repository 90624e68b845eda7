"""An examination as it is told: a line a check for people, one table for programs."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from medley.doctor.shapes import GROUP, STATES, Check, Mend, Rule

Found = Sequence[tuple[Rule, Check]]
_MARKS = {"ok": "ok", "better": "better", "wrong": "WRONG", "unknown": "?"}


def lines(found: Found, *, brief: bool = False) -> Iterator[str]:
    """By host; below what is not well its cause and what to type."""
    hosts = list(dict.fromkeys(check.host for _, check in found))
    several = len([host for host in hosts if host != GROUP]) > 1
    wide = max((len(host) for host in hosts), default=0)
    for host in hosts:
        for rule, check in found:
            if check.host == host and check.state != "unknown" and not (brief and check.state == "ok"):
                yield f"{host:<{wide}}  {_MARKS[check.state]:<6}  {rule.looks_at}: {check.found}"
                yield from _below(check, wide, named=several)
        for why, titles in _unknown(host, found).items() if not brief else ():
            yield f"{host:<{wide}}  {'?':<6}  {'; '.join(titles)}: not known: {why}"
    yield summary(found)


def _below(check: Check, wide: int, *, named: bool) -> Iterator[str]:
    if check.problem is None:
        return
    for label, text in (("cause", check.problem.cause), ("fix", fix(check, named=named))):
        first, *more = text.splitlines() or [""]
        yield f"{'':<{wide}}          {label + ':':<6} {first}"
        yield from (f"{'':<{wide}}                 {line}" for line in more)


def fix(check: Check, *, named: bool) -> str:
    """What to type, and where, if there is more than one host."""
    text = check.problem.fix if check.problem else ""
    return (
        f"on {check.host}: {text}" if named and check.host != GROUP and not text.startswith("on ") else text
    )


def _unknown(host: str, found: Found) -> dict[str, list[str]]:
    """What could not be looked at, by the reason."""
    grouped: dict[str, list[str]] = defaultdict(list)
    for rule, check in found:
        if check.host == host and check.state == "unknown":
            grouped[check.found].append(rule.looks_at)
    return grouped


def summary(found: Found) -> str:
    counts = Counter(check.state for _, check in found)
    parts = [f"{counts[state]} {said}" for state, said in STATES.items() if counts[state]]
    return f"{len(found)} checks: {', '.join(parts)}"


def status(found: Found) -> int:
    """The exit code: 1 when something is wrong."""
    return int(any(check.state == "wrong" for _, check in found))


def table(found: Found) -> dict[str, Any]:
    several = len({check.host for _, check in found} - {GROUP}) > 1
    return {
        "checks": [_row(rule, check, several=several) for rule, check in found],
        "counts": dict(Counter(check.state for _, check in found)),
    }


def _row(rule: Rule, check: Check, *, several: bool) -> dict[str, Any]:
    problem = check.problem and {**check.problem.table, "fix": fix(check, named=several)}
    return {
        "host": check.host,
        "rule": rule.name,
        "looked_at": rule.looks_at,
        "state": check.state,
        "found": check.found,
        "problem": problem,
        "mend": check.mend.shown if check.mend else None,
    }


def mends(found: Iterable[tuple[Rule, Check]]) -> tuple[Mend, ...]:
    """What --fix may do, each once."""
    return tuple(dict.fromkeys(check.mend for _, check in found if check.mend))
