"""Compute the JSON table, exit code and fixes of an examination; write bug reports."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from medley import read_medley_version, storage, transcript
from medley.doctor.checks import ALL_HOSTS_NAME, Check, Fix, Rule
from medley.explain.root_cause import Explanation
from medley.explain.scanned_log import LogScan
from medley.host import redact
from medley.host.kind import load_answers

Results = Sequence[tuple[Rule, Check]]
_TAIL_LINES = 120
"""The number of lines from a log's end in a bug report."""
_MAX_ERROR_LINES = 8
"""The number of lines with unknown errors that a bug report lists of each log."""
_MAX_LINE_CHARS = 1000


def format_fix(check: Check, *, several_hosts: bool) -> str:
    """Return the command to type, with the host in front if there are several."""
    text = check.problem.fix if check.problem else ""
    needs_no_host = not several_hosts or check.host == ALL_HOSTS_NAME or text.startswith("on ")
    return text if needs_no_host else f"on {check.host}: {text}"


def compute_exit_code(results: Results) -> int:
    """Return 1 if a check is `wrong`, else 0."""
    return int(any(check.state == "wrong" for _, check in results))


def build_table(results: Results) -> dict[str, Any]:
    """Return what `medley doctor --json` prints: `checks`, a row for each result, and `counts` by state."""
    several_hosts = len({check.host for _, check in results} - {ALL_HOSTS_NAME}) > 1
    rows = [
        {
            "host": check.host,
            "rule": rule.name,
            "looked_at": rule.topic,
            "state": check.state,
            "found": check.summary,
            "problem": check.problem
            and {**check.problem.table, "fix": format_fix(check, several_hosts=several_hosts)},
            "mend": check.fix and check.fix.command_text,
        }
        for rule, check in results
    ]
    return {"checks": rows, "counts": dict(Counter(check.state for _, check in results))}


def list_fixes(results: Iterable[tuple[Rule, Check]]) -> tuple[Fix, ...]:
    """Return the changes that `--fix` may make, without duplicates."""
    return tuple(dict.fromkeys(check.fix for _, check in results if check.fix))


def write_bug_report(explained: Explanation, file: Path | None = None) -> Path:
    """Write a bug report to this file, or to a new one in the state folder; return its path."""
    file = file or storage.find_state_folder() / "reports" / time.strftime("explain-%Y%m%d-%H%M%S.txt")
    versions = {"medley": read_medley_version(), "python": sys.version.split()[0]}
    text = format_bug_report(
        explained, versions, transcript.format_transcript(load_answers()), redact.redactor_of_host().text
    )
    storage.write_text(file, text, secret=True)
    return file


def format_bug_report(
    explained: Explanation, versions: Mapping[str, str], transcript: str, conceal: Callable[[str], str]
) -> str:
    """Return the report as text, ready to attach; `conceal` replaces names, addresses and secrets."""
    plan_lines = [line for scan in explained.scans for line in scan.own_lines]
    beginning = [
        "# A report of `medley explain`: names, addresses and secrets are replaced",
        "## Versions",
        *(f"{name} {version}" for name, version in versions.items()),
        "## What was found",
        *_format_problems(explained),
        *(["## The plan and the command", *plan_lines] if plan_lines else ()),
    ]
    parts = [
        conceal("\n".join(beginning)),
        *(line for scan in explained.scans for line in _format_log_end(scan, conceal)),
        "## This host, as medley facts --transcript asks it",
        conceal(transcript),
    ]
    return "\n".join(parts) + "\n"


def _format_problems(explained: Explanation) -> Iterator[str]:
    for finding in explained.problems:
        match = finding.match
        yield f"{finding.problem()}\n  line:  {match.log}:{match.number}: {match.line.text}"
    for scan in explained.scans:
        for error in scan.errors[:_MAX_ERROR_LINES]:
            yield f"an error, {scan.name}:{error.number}: {error.message}"
    if not explained.problems:
        yield "nothing"


def _format_log_end(scan: LogScan, conceal: Callable[[str], str]) -> Iterator[str]:
    """Yield the last lines, cut once they have no secret: half of one is not recognized."""
    yield conceal(f"## The end of {scan.name}, of {scan.lines} lines")
    tail_lines = conceal("\n".join(scan.tail)).split("\n")
    yield from (line[:_MAX_LINE_CHARS] for line in tail_lines[-_TAIL_LINES:])
