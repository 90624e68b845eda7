"""A report is what somebody else needs to find an unknown failure: the host, the plan, the log's end."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from medley.explain.chosen import Explained
from medley.explain.log import Scanned

_TAIL = 120


def report(
    found: Explained, versions: Mapping[str, str], transcript: str, conceal: Callable[[str], str]
) -> str:
    """As text, ready to attach; `conceal` takes names, addresses and secrets out of it."""
    parts = [
        "# A report of `medley explain`: names, addresses and secrets are replaced",
        "## Versions",
        *(f"{name} {version}" for name, version in versions.items()),
        "## What was found",
        *_found(found),
        *_told(found.scans),
        *(line for scan in found.scans for line in _end(scan)),
        "## This host, as medley facts --transcript asks it",
        transcript,
    ]
    return conceal("\n".join(parts)) + "\n"


def _found(found: Explained) -> Iterator[str]:
    for each in found.problems:
        yield f"{each.problem()}\n  line:  {each.hit.log}:{each.hit.number}: {each.hit.line.text}"
    for scan in found.scans:
        yield from (f"an error, {scan.name}:{each.number}: {each.said}" for each in scan.slips[:8])
    if not found.problems:
        yield "nothing"


def _told(scans: Iterable[Scanned]) -> Iterator[str]:
    """What medley said of its plan where it kept that log."""
    lines = [line for scan in scans for line in scan.told]
    if lines:
        yield "## The plan and the command"
        yield from lines


def _end(scan: Scanned) -> Iterator[str]:
    yield f"## The end of {scan.name}, of {scan.lines} lines"
    yield from (line[:1000] for line in list(scan.tail)[-_TAIL:])
