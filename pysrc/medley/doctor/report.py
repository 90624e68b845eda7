"""JSON, exit code and changes of an examination; bug report."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from medley import own_version, storage, transcript
from medley.doctor.checks import GROUP, Check, Mend, Rule
from medley.explain.findings import Explained, Scanned
from medley.host import redact
from medley.host.kind import answers

Found = Sequence[tuple[Rule, Check]]
_TAIL = 120
"""Lines of a log's end in a bug report."""


def fix(check: Check, *, several: bool) -> str:
    """What to type, and where, if there is more than one host."""
    text = check.problem.fix if check.problem else ""
    said = not several or check.host == GROUP or text.startswith("on ")
    return text if said else f"on {check.host}: {text}"


def status(found: Found) -> int:
    """The exit code: 1 when something is wrong."""
    return int(any(check.state == "wrong" for _, check in found))


def table(found: Found) -> dict[str, Any]:
    several = len({check.host for _, check in found} - {GROUP}) > 1
    rows = [
        {
            "host": check.host,
            "rule": rule.name,
            "looked_at": rule.looks_at,
            "state": check.state,
            "found": check.found,
            "problem": check.problem and {**check.problem.table, "fix": fix(check, several=several)},
            "mend": check.mend and check.mend.shown,
        }
        for rule, check in found
    ]
    return {"checks": rows, "counts": dict(Counter(check.state for _, check in found))}


def mends(found: Iterable[tuple[Rule, Check]]) -> tuple[Mend, ...]:
    """What --fix may do, each once."""
    return tuple(dict.fromkeys(check.mend for _, check in found if check.mend))


def write(found: Explained, file: Path | None = None) -> Path:
    """A bug report: into this file, or a new one among medley's own; returns which."""
    file = file or storage.state() / "reports" / time.strftime("explain-%Y%m%d-%H%M%S.txt")
    versions = {"medley": own_version(), "python": sys.version.split()[0]}
    text = report(found, versions, transcript.text(answers()), redact.redactor_of_host().text)
    storage.write(file, text, secret=True)
    return file


def report(
    found: Explained, versions: Mapping[str, str], transcript: str, conceal: Callable[[str], str]
) -> str:
    """As text, ready to attach; `conceal` takes names, addresses and secrets out of it."""
    told = [line for scan in found.scans for line in scan.told]
    parts = [
        "# A report of `medley explain`: names, addresses and secrets are replaced",
        "## Versions",
        *(f"{name} {version}" for name, version in versions.items()),
        "## What was found",
        *_found(found),
        *(["## The plan and the command", *told] if told else ()),
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


def _end(scan: Scanned) -> Iterator[str]:
    yield f"## The end of {scan.name}, of {scan.lines} lines"
    yield from (line[:1000] for line in list(scan.tail)[-_TAIL:])
