"""`medley explain`."""

import sys
from collections.abc import Iterator

from medley import user
from medley.cli import Verb, flag, switch
from medley.cli.output import fit, format_problem, print_message, print_result
from medley.doctor.report import write_bug_report
from medley.errors import Problem
from medley.explain import diagnosis
from medley.explain.diagnosis import STANDARD_INPUT, explain_logs
from medley.explain.root_cause import Explanation, FailureReport


class ExplainVerb(Verb):
    USAGE = "    {progname} [OPTIONS] [LOG...]\n"
    DASH = STANDARD_INPUT

    as_json: bool = flag("--json", "one JSON object: a list of problems, or an empty one")
    report: str | None = switch("--report FILE", "file for a report about this host and the log, redacted")

    def main(self, *logs: str) -> int:
        explanation = explain_logs(diagnosis.open_named_logs(logs) if logs else diagnosis.open_newest_logs())
        for warning in explanation.warnings:
            print_message(warning)
        self._report_empty_logs(explanation)
        report_path, report_problem = None, None
        if not self.as_json:  # before the report, which takes long, and fails on a full disk
            print_result({}, _list_lines(explanation), as_json=False)
        if self.report or explanation.unknown:
            try:
                report_path = write_bug_report(
                    explanation, user.expand_home(self.report) if self.report else None
                )
            except Problem as problem:
                report_problem = problem
        report_table = {"report": str(report_path)} if report_path else {}
        table = {"problems": [failure.table for failure in explanation.problems], **report_table}
        lines = [f"a report to attach, without secrets: {report_path}"] if report_path else []
        print_result(table, lines, as_json=self.as_json)
        if report_problem and self.report:
            raise report_problem
        if report_problem:
            print_message(f"no report was written: {report_problem.what}: {report_problem.cause}")
        return 1 if explanation.problems else 0

    def _report_empty_logs(self, explanation: Explanation) -> None:
        """Name the empty logs; raise a Problem if all are empty, except for --json."""
        empty_names = [scan.name for scan in explanation.scans if scan.empty]
        if empty_names and len(empty_names) == len(explanation.scans) and not self.as_json:
            raise Problem(
                f"{' and '.join(empty_names)} {'is' if len(empty_names) == 1 else 'are'} empty",
                cause="what a program writes to its standard error is often left out: it needs 2>&1",
                fix="medley explain              # what medley itself kept last on this host\n"
                "docker logs NAME 2>&1 | medley explain -\n"
                "journalctl -u UNIT | medley explain -",
            )
        for name in empty_names:
            print_message(f"{name} is empty")


def _list_lines(explanation: Explanation) -> Iterator[str]:
    for problem in explanation.problems:
        yield from _list_problem_lines(problem)
    if not explanation.problems:
        lines = sum(scan.lines for scan in explanation.scans)
        names = ", ".join(scan.name for scan in explanation.scans)
        doubtful_line = explanation.doubtful_line
        yield fit(f"no {'known ' if doubtful_line else ''}failure is in {names} ({lines} lines)")
        if doubtful_line:
            yield fit(f"  a line reads like an error: {doubtful_line}")


def _list_problem_lines(failure: FailureReport) -> Iterator[str]:
    table = failure.table
    lead = "then, and perhaps because of it: " if failure.follows else ""
    yield from format_problem(failure.problem(), lead, sys.stdout)
    yield fit(f"  line:  {table['file']}:{table['line_number']}: {table['line']}")
    if host := table.get("host"):
        yield fit(f"  host:  {host}")
    yield from (fit(f"  also:  {place}") for place in failure.also)
    if failure.confidence != "high":
        yield f"  sure:  {failure.confidence}"
