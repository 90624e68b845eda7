"""`medley doctor`."""

import platform
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from shlex import quote

from medley.cli import flag, switch, terminal
from medley.cli.cluster_options import ClusterVerb, print_problems
from medley.cli.output import fit, paint, print_message, print_result
from medley.cli.progress import start_progress
from medley.cluster.fleet import Fleet
from medley.doctor import report
from medley.doctor.checks import ALL_HOSTS_NAME, Check, Examination, Rule, State
from medley.doctor.examination import (
    apply_fix_on_host,
    examine_cluster,
    examine_this_host,
    examine_transcripts,
    fit_model,
    read_cluster,
)
from medley.doctor.registry import run_checks
from medley.errors import Problem
from medley.host.kind import read_answers_by_host
from medley.planner.report import make_printable

CheckedRules = tuple[tuple[Rule, Check], ...]
_STATE_SIGNS: Mapping[State, tuple[str, str, str]] = {
    "wrong": ("✗", "red", "errors"),
    "better": ("!", "yellow", "warnings"),
    "ok": ("✓", "green", "passed"),
    "unknown": ("–", "dim", "skipped"),
}
"""The sign, its color and its noun in the summary, in the order of a host's lines."""
_ASCII_SIGNS = str.maketrans("✗✓–·", "x+-|")
_MAX_SKIPPED_TITLES = 3


class DoctorVerb(ClusterVerb):
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
            return self._print(*self._run_checks(examine_transcripts(read_answers_by_host(files)), files))
        group = read_cluster(self.cluster, tuple(self.without))
        with Fleet(group, start_progress()) if group else nullcontext() as fleet:
            return self._examine_fleet(fleet)

    def _examine_fleet(self, fleet: Fleet | None) -> int:
        """Check hosts that answer; with --fix change them, and check again."""

        def examine() -> tuple[Examination, CheckedRules]:
            return self._run_checks(
                examine_this_host(platform.node())
                if fleet is None
                else examine_cluster(fleet, start_progress())
            )

        examination, checked_rules = examine()
        if self.fix and self._apply_fixes(checked_rules, fleet):
            print_message("checking again")
            examination, checked_rules = examine()
        return self._print(examination, checked_rules)

    def _run_checks(
        self, examination: Examination, files: tuple[str, ...] = ()
    ) -> tuple[Examination, CheckedRules]:
        if self.model:
            examination = examination.replace(
                model_fit=fit_model(self.model, examination, self.typed_words, files, start_progress()),
            )
        return examination, tuple(run_checks(examination))

    def _print(self, examination: Examination, checked_rules: CheckedRules) -> int:
        lines = list_lines(examination, checked_rules, verbose=self.verbose, brief=self.brief)
        if not (sys.stdout.encoding or "").lower().startswith("utf"):
            lines = (line.translate(_ASCII_SIGNS) for line in lines)
        print_result(report.build_table(checked_rules), lines, as_json=self.as_json)
        return report.compute_exit_code(checked_rules)

    def _apply_fixes(self, checked_rules: CheckedRules, fleet: Fleet | None) -> int:
        """Apply the fixes that the user agrees to; return their number."""
        fixed_count, progress = 0, start_progress()
        for fix in report.list_fixes(checked_rules):
            print(f"{f'on {fix.host}: ' if fleet else ''}{fix.command_text}", file=sys.stderr)
            if self.dry_run or not (self.yes or _ask_consent()):
                continue
            problem = apply_fix_on_host(fix, fleet, progress)
            print_problems([problem] if problem else [])
            fixed_count += problem is None
        return fixed_count


def _ask_consent() -> bool:
    if not terminal.can_ask():
        raise Problem(
            "doctor --fix cannot ask before a change",
            cause="standard input or output is not a terminal",
            fix="medley doctor --fix --yes",
        )
    return terminal.ask_yes_no("make this change?", default=False)


def list_lines(
    examination: Examination, checked_rules: CheckedRules, *, verbose: bool = False, brief: bool = False
) -> Iterator[str]:
    """Yield by host errors, then warnings, each with cause and fix; then the counts of the others."""
    only_host = None if examination.has_several_hosts else next(iter(examination.hosts), None)
    by_host: dict[str, list[tuple[Rule, Check]]] = {
        name: [] for name in (*examination.hosts, *examination.silent_hosts)
    }
    for rule, check in checked_rules:
        by_host.setdefault(only_host or check.host, []).append((rule, check))
    for name, host_rules in by_host.items():
        host_lines = list(
            _list_host_lines(host_rules, verbose=verbose or name == ALL_HOSTS_NAME, brief=brief)
        )
        if host_lines:
            yield _format_headline(name, examination)
            yield from host_lines
    counts = Counter(check.state for _, check in checked_rules)
    parts = (
        paint(_format_count(counts[state], noun), color)
        for state, (_, color, noun) in _STATE_SIGNS.items()
        if counts[state]
    )
    hint = "" if verbose else paint("   all checks: --verbose", "dim")
    if not brief or counts["wrong"] or counts["better"]:
        yield ""
    yield f"{_format_count(len(by_host) - (ALL_HOSTS_NAME in by_host), 'hosts')}: {', '.join(parts)}{hint}"


def _list_host_lines(host_rules: list[tuple[Rule, Check]], *, verbose: bool, brief: bool) -> Iterator[str]:
    by_state: dict[State, list[tuple[Rule, Check]]] = defaultdict(list)
    for rule_check in host_rules:
        by_state[rule_check[1].state].append(rule_check)
    for state in ("wrong", "better"):
        for _, check in by_state[state]:
            yield _format_line(state, check.summary)
            yield from _list_problem_lines(check)
    if brief:
        return
    passed = by_state["ok"]
    for rule, check in passed if verbose else ():
        yield _format_line("ok", f"{rule.topic}: {check.summary}")
    if passed and not verbose:
        yield _format_line("ok", f"{_format_count(len(passed), 'checks')} passed")
    skipped: dict[str, list[str]] = defaultdict(list)
    for rule, check in by_state["unknown"]:
        skipped[check.summary].append(rule.topic)
    for why, titles in skipped.items():
        has_many_titles = len(titles) > _MAX_SKIPPED_TITLES and not verbose
        skipped_text = (
            f"{len(titles)} checks skipped" if has_many_titles else f"{', '.join(titles)} not checked"
        )
        yield _format_line("unknown", f"{skipped_text}: {why}")


def _list_problem_lines(check: Check) -> Iterator[str]:
    """Yield cause and fix, without the host of the fix, because the lines are below the host's name."""
    if check.problem is None:
        return
    yield from (fit(f"      {line}", hanging_indent=6) for line in check.problem.cause.splitlines())
    for number, line in enumerate(check.problem.fix.splitlines()):
        yield f"      {' ' * 3 if number else paint('fix', 'dim')}  {line}"


def _format_line(state: State, text: str) -> str:
    sign, color, _ = _STATE_SIGNS[state]
    return fit(f"  {sign} {text}", hanging_indent=4).replace(sign, paint(sign, color), 1)


def _format_headline(name: str, examination: Examination) -> str:
    """Return the host's kind, system, driver and CUDA, as far as they are known."""
    host, shown = examination.hosts.get(name), "cluster" if name == ALL_HOSTS_NAME else make_printable(name)
    if host is None:
        return paint(shown, "bold")
    driver = host.facts.driver
    parts = (
        host.kind.table.title if host.kind else None,
        host.facts.software.os_name,
        driver.version and f"driver {driver.version}",
        driver.cuda and f"CUDA {driver.cuda}",
    )
    return f"{paint(shown, 'bold')}  {paint(make_printable(' · '.join(filter(None, parts))), 'dim')}".rstrip()


def _format_count(count: int, noun: str) -> str:
    return f"{count} {noun.removesuffix('s') if count == 1 else noun}"
