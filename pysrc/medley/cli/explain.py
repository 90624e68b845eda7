"""`medley explain`."""

import sys
from collections.abc import Iterator

from medley import user
from medley.cli import Verb, flag, switch
from medley.cli.output import fit, format_problem, print_result, say
from medley.doctor.report import write_bug_report
from medley.errors import Problem
from medley.explain import diagnosis
from medley.explain.diagnosis import STANDARD_INPUT, explain_logs
from medley.explain.findings import Explanation, FailureReport


class ExplainVerb(Verb):
    USAGE = "    {progname} [OPTIONS] [LOG...]\n"
    DASH = STANDARD_INPUT

    as_json: bool = flag("--json", "one JSON object: a list of problems, or an empty one")
    report: str | None = switch("--report FILE", "file for a report about this host and the log, redacted")

    def main(self, *logs: str) -> int:
        found = explain_logs(diagnosis.open_named_logs(logs) if logs else diagnosis.open_newest_logs())
        for warning in found.warnings:
            say(warning)
        self._say_what_is_empty(found)
        written, unwritten = None, None
        if not self.as_json:  # first, because a report asks this host much, and its disk may be full
            print_result({}, _lines(found), as_json=False)
        if self.report or found.unknown:
            try:
                written = write_bug_report(found, user.expand(self.report) if self.report else None)
            except Problem as problem:
                unwritten = problem
        report = {"report": str(written)} if written else {}
        table = {"problems": [each.table for each in found.problems], **report}
        said = [f"a report to attach, without secrets: {written}"] if written else []
        print_result(table, said, as_json=self.as_json)
        if unwritten and self.report:
            raise unwritten
        if unwritten:
            say(f"no report was written: {unwritten.what}: {unwritten.cause}")
        return 1 if found.problems else 0

    def _say_what_is_empty(self, found: Explanation) -> None:
        """Of a program's answer it takes nothing away: in an empty log no problem is known."""
        empty = [scan.name for scan in found.scans if scan.empty]
        if empty and len(empty) == len(found.scans) and not self.as_json:
            raise Problem(
                f"{' and '.join(empty)} {'is' if len(empty) == 1 else 'are'} empty",
                cause="what a program writes to its standard error is often left out: it needs 2>&1",
                fix="medley explain              # what medley itself kept last on this host\n"
                "docker logs NAME 2>&1 | medley explain -\n"
                "journalctl -u UNIT | medley explain -",
            )
        for name in empty:
            say(f"{name} is empty")


def _lines(found: Explanation) -> Iterator[str]:
    for problem in found.problems:
        yield from _text(problem)
    if not found.problems:
        lines = sum(scan.lines for scan in found.scans)
        yield fit(f"no failure is in {', '.join(scan.name for scan in found.scans)} ({lines} lines)")


def _text(found: FailureReport) -> Iterator[str]:
    table = found.table
    lead = "then, and perhaps because of it: " if found.follows else ""
    yield from format_problem(found.problem(), lead, sys.stdout)
    yield fit(f"  line:  {table['file']}:{table['line_number']}: {table['line']}")
    yield from (fit(f"  also:  {place}") for place in found.also)
    if found.confidence != "high":
        yield f"  sure:  {found.confidence}"
