"""`medley doctor`."""

import platform
import sys
from contextlib import nullcontext
from dataclasses import replace

from medley.cli import flag, switch, terminal
from medley.cli.cluster_options import Clustered, print_problems
from medley.cli.output import fit, print_result, say
from medley.cli.progress import watch
from medley.cluster.fleet import Fleet
from medley.doctor import report
from medley.doctor.case import fits_model, mend, of_cluster, of_this, of_transcripts, wanted
from medley.doctor.checks import Case, Check, Rule
from medley.doctor.registry import checks
from medley.errors import Problem
from medley.host.kind import answers_by_host

Found = tuple[tuple[Rule, Check], ...]


class DoctorVerb(Clustered):
    USAGE = "    {progname} [OPTIONS] [--from FILE...]\n"
    DESCRIPTION_MORE = """
doctor checks the hosts of cluster.toml, or this host without one, or transcripts that medley facts wrote. The
exit code is 1 if a check fails; advice does not count as a failure.

Examples:
    medley doctor
    medley doctor --brief                 list only what needs attention
    medley doctor --fix                   apply safe fixes, and ask first
    medley doctor --model gpt-oss-120b    check the model too
    medley doctor --from spark-1.txt spark-2.txt
"""
    replayed: list[str] = switch("--from FILE", "transcript to check instead of hosts")
    model: str | None = switch("--model NAME", "model to check the requirements of")
    brief: bool = flag("--brief", "only checks that need attention")
    as_json: bool = flag("--json", "one JSON object: checks, and their count by state")
    fix: bool = flag("--fix", "apply safe fixes after asking, and check again", excludes=["--from"])
    yes: bool = flag("--yes", "apply without asking", requires=["--fix"])
    dry_run: bool = flag("--dry-run", "print the fixes; change nothing", requires=["--fix"])

    def main(self, *more: str) -> int:
        files = (*self.replayed, *more)
        if more and not self.replayed:
            raise Problem(
                f"{more[0]!r} is one word too many",
                cause="words are files after --from",
                fix=f"medley doctor --from {' '.join(more)}",
            )
        if files:
            return self._print(self._examined(of_transcripts(answers_by_host(files)), files))
        meant = wanted(self.cluster, tuple(self.without))
        with Fleet(meant, watch()) if meant else nullcontext() as fleet:
            return self._answer(fleet)

    def _answer(self, fleet: Fleet | None) -> int:
        """For hosts that answer, which can be mended too."""

        def examined() -> Found:
            return self._examined(of_this(platform.node()) if fleet is None else of_cluster(fleet, watch()))

        found = examined()
        if self.fix and self._mended(found, fleet):
            say("looking again")
            found = examined()
        return self._print(found)

    def _examined(self, case: Case, files: tuple[str, ...] = ()) -> Found:
        if self.model:
            case = replace(case, fits=fits_model(self.model, case, self.typed, files, watch()))
        return tuple(checks(case))

    def _print(self, found: Found) -> int:
        lines = map(fit, report.lines(found, brief=self.brief))
        print_result(report.table(found), lines, as_json=self.as_json)
        return report.status(found)

    def _mended(self, found: Found, fleet: Fleet | None) -> int:
        """How many changes were made."""
        done, seen = 0, watch()
        for each in report.mends(found):
            print(f"{f'on {each.host}: ' if fleet else ''}{each.shown}", file=sys.stderr)
            if self.dry_run or not (self.yes or _consents()):
                continue
            problem = mend(each, fleet, seen)
            print_problems([problem] if problem else [])
            done += problem is None
        return done


def _consents() -> bool:
    if not terminal.is_possible():
        raise Problem(
            "nobody is there to consent",
            cause="this is no terminal",
            fix="read the change above, then: medley doctor --fix --yes",
        )
    return terminal.agrees("do this?", default=False)
