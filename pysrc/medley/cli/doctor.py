"""`medley doctor`."""

import platform
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from shlex import quote

from medley.cli import flag, switch, terminal
from medley.cli.cluster_options import Clustered, print_problems
from medley.cli.output import fit, paint, print_result, say
from medley.cli.progress import start_progress
from medley.cluster.fleet import Fleet
from medley.doctor import report
from medley.doctor.case import (
    apply_fix_on_host,
    build_case_from_transcripts,
    examine_cluster,
    examine_this_host,
    fit_model,
    read_cluster,
)
from medley.doctor.checks import GROUP, Case, Check, Rule, State
from medley.doctor.registry import run_checks
from medley.errors import Problem
from medley.host.kind import read_answers_by_host

Found = tuple[tuple[Rule, Check], ...]
_SIGNS: Mapping[State, tuple[str, str, str]] = {
    "wrong": ("✗", "red", "errors"),
    "better": ("!", "yellow", "warnings"),
    "ok": ("✓", "green", "passed"),
    "unknown": ("–", "dim", "skipped"),
}
"""In the order in which a host's are printed: the sign, its color, and what the summary calls them."""
_ASCII = str.maketrans("✗✓–·", "x+-|")
_FEW = 3


class DoctorVerb(Clustered):
    USAGE = "    {progname} [OPTIONS] [--from FILE...]\n"
    replayed: list[str] = switch("--from FILE", "read transcripts; ask no host")
    model: str | None = switch("--model NAME", "check that this model fits, too")
    verbose: bool = flag("-v, --verbose", "list every check", excludes=["--brief"])
    brief: bool = flag("--brief", "print only errors and warnings")
    as_json: bool = flag("--json", "print one JSON object: checks, and how many are of each state")
    fix: bool = flag("--fix", "make the safe changes after asking, and check again", excludes=["--from"])
    yes: bool = flag("--yes", "with --fix: do not ask", requires=["--fix"])
    dry_run: bool = flag("--dry-run", "with --fix: show the changes; change nothing", requires=["--fix"])

    def main(self, *more: str) -> int:
        files = (*self.replayed, *more)
        if more and not self.replayed:
            is_file = Path(more[0]).exists()
            raise Problem(
                f"{more[0]!r} is one word too many",
                cause="doctor examines all hosts of cluster.toml; files are words after --from",
                fix=f"medley doctor --from {' '.join(more)}"
                if is_file
                else f"medley doctor; or only there: ssh {quote(more[0])} medley doctor",
            )
        if files:
            return self._print(
                *self._examined(build_case_from_transcripts(read_answers_by_host(files)), files)
            )
        group = read_cluster(self.cluster, tuple(self.without))
        with Fleet(group, start_progress()) if group else nullcontext() as fleet:
            return self._answer(fleet)

    def _answer(self, fleet: Fleet | None) -> int:
        """For hosts that answer, which can be changed too."""

        def examined() -> tuple[Case, Found]:
            return self._examined(
                examine_this_host(platform.node())
                if fleet is None
                else examine_cluster(fleet, start_progress())
            )

        case, found = examined()
        if self.fix and self._mended(found, fleet):
            say("checking again")
            case, found = examined()
        return self._print(case, found)

    def _examined(self, case: Case, files: tuple[str, ...] = ()) -> tuple[Case, Found]:
        if self.model:
            case = replace(
                case, model_fit=fit_model(self.model, case, self.typed_words, files, start_progress())
            )
        return case, tuple(run_checks(case))

    def _print(self, case: Case, found: Found) -> int:
        drawn = lines(case, found, verbose=self.verbose, brief=self.brief)
        if not (sys.stdout.encoding or "").lower().startswith("utf"):
            drawn = (line.translate(_ASCII) for line in drawn)
        print_result(report.build_table(found), drawn, as_json=self.as_json)
        return report.compute_exit_code(found)

    def _mended(self, found: Found, fleet: Fleet | None) -> int:
        """How many changes were made."""
        done, seen = 0, start_progress()
        for each in report.list_fixes(found):
            print(f"{f'on {each.host}: ' if fleet else ''}{each.command_text}", file=sys.stderr)
            if self.dry_run or not (self.yes or _consents()):
                continue
            problem = apply_fix_on_host(each, fleet, seen)
            print_problems([problem] if problem else [])
            done += problem is None
        return done


def _consents() -> bool:
    if not terminal.can_ask():
        raise Problem(
            "doctor --fix cannot ask before a change",
            cause="standard input or output is not a terminal",
            fix="medley doctor --fix --yes",
        )
    return terminal.ask_yes_no("make this change?", default=False)


def lines(case: Case, found: Found, *, verbose: bool = False, brief: bool = False) -> Iterator[str]:
    """By host: errors, then warnings, each with cause and fix; then how many passed and were skipped."""
    alone = None if case.has_several_hosts else next(iter(case.hosts), None)
    by_host: dict[str, list[tuple[Rule, Check]]] = {name: [] for name in (*case.hosts, *case.silent_hosts)}
    for rule, check in found:
        by_host.setdefault(alone or check.host, []).append((rule, check))
    for name, own in by_host.items():
        drawn = list(_of_host(own, verbose=verbose or name == GROUP, brief=brief))
        if drawn:
            yield _headline(name, case)
            yield from drawn
    counts = Counter(check.state for _, check in found)
    parts = (
        paint(_counted(counts[state], noun), color)
        for state, (_, color, noun) in _SIGNS.items()
        if counts[state]
    )
    more = "" if verbose else paint("   all checks: --verbose", "dim")
    if not brief or counts["wrong"] or counts["better"]:
        yield ""
    yield f"{_counted(len(by_host) - (GROUP in by_host), 'hosts')}: {', '.join(parts)}{more}"


def _of_host(own: list[tuple[Rule, Check]], *, verbose: bool, brief: bool) -> Iterator[str]:
    by_state: dict[State, list[tuple[Rule, Check]]] = defaultdict(list)
    for each in own:
        by_state[each[1].state].append(each)
    for state in ("wrong", "better"):
        for _, check in by_state[state]:
            yield _line(state, check.summary)
            yield from _below(check)
    if brief:
        return
    passed = by_state["ok"]
    for rule, check in passed if verbose else ():
        yield _line("ok", f"{rule.topic}: {check.summary}")
    if passed and not verbose:
        yield _line("ok", f"{_counted(len(passed), 'checks')} passed")
    skipped: dict[str, list[str]] = defaultdict(list)
    for rule, check in by_state["unknown"]:
        skipped[check.summary].append(rule.topic)
    for why, titles in skipped.items():
        many = len(titles) > _FEW and not verbose
        what = f"{len(titles)} checks skipped" if many else f"{', '.join(titles)} not checked"
        yield _line("unknown", f"{what}: {why}")


def _below(check: Check) -> Iterator[str]:
    """Cause and fix; under a host's name the fix says no more where it is to be typed."""
    if check.problem is None:
        return
    yield from (fit(f"      {line}", hang=6) for line in check.problem.cause.splitlines())
    for number, line in enumerate(check.problem.fix.splitlines()):
        yield f"      {' ' * 3 if number else paint('fix', 'dim')}  {line}"


def _line(state: State, text: str) -> str:
    sign, color, _ = _SIGNS[state]
    return fit(f"  {sign} {text}", hang=4).replace(sign, paint(sign, color), 1)


def _headline(name: str, case: Case) -> str:
    """The host's kind, system, driver and CUDA, as far as they are known."""
    host, shown = case.hosts.get(name), "cluster" if name == GROUP else name
    if host is None:
        return paint(shown, "bold")
    driver = host.facts.driver
    parts = (
        host.kind.host.title if host.kind else None,
        host.facts.software.os_name,
        driver.version and f"driver {driver.version}",
        driver.cuda and f"CUDA {driver.cuda}",
    )
    return f"{paint(shown, 'bold')}  {paint(' · '.join(filter(None, parts)), 'dim')}".rstrip()


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun.removesuffix('s') if count == 1 else noun}"
