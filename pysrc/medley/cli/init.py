"""`medley init`."""

import shutil
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from shlex import join

from medley import storage, user
from medley.cli import Verb, flag, switch, terminal
from medley.cli.progress import start_progress
from medley.cluster.discovery import sources, ssh_keys, table, visit
from medley.cluster.discovery.candidates import HostCandidate, parse_host, parse_selection, select_default
from medley.cluster.discovery.visit import HostSurvey
from medley.cluster.ssh import HostKeyUnknown, KeyRefused, NameUnresolved
from medley.errors import Problem
from medley.unusable_file import UnusableFile


class InitVerb(Verb):
    USAGE = "    {progname} [OPTIONS] [HOST...]\n"
    head: str | None = switch("--head HOST", "host that the others join")
    output: str | None = switch("--output FILE", "file to write [default: ./cluster.toml]")
    keys: bool = flag("--keys", "set up ssh keys where ssh is refused")
    only_reached: bool = flag("--only-reached", "leave out hosts that do not answer")
    yes: bool = flag("--yes", "do not ask; reject unknown host keys")
    force: bool = flag("--force", "replace the file, and keep the old one as FILE.1")
    dry_run: bool = flag("--dry-run", "print the file; change nothing")

    def main(self, *hosts: str) -> int:
        self.can_ask = terminal.can_ask() and not self.yes
        path = user.expand_home(self.output or "cluster.toml")
        if not self.dry_run:
            _require_free(path, force=self.force)
        try:
            surveys, has_failed = self._survey_and_set_up(self._choose_hosts(hosts))
            head = self._choose_head(surveys)
        except (KeyboardInterrupt, EOFError):
            print(f"\nmedley: {path} was not written", file=sys.stderr)
            raise KeyboardInterrupt from None
        text = table.format_cluster(surveys, head, *visit.describe_network(surveys))
        table.parse_cluster(text)
        if self.dry_run:
            print(f"\n{text}", end="")
        else:
            _write(path, text)
            print(f"{path} is written, with {head} as its head. Now: medley up")
        return 1 if has_failed else 0

    def _choose_hosts(self, hosts: Sequence[str]) -> dict[str, HostCandidate]:
        """Return the hosts by the names that they will have."""
        candidates = tuple(map(parse_host, hosts)) or self._ask_for_hosts()
        by_name = {candidate.name: candidate for candidate in candidates}
        if len(by_name) < len(candidates):
            duplicate = next(
                candidate.name for candidate in candidates if candidate is not by_name[candidate.name]
            )
            raise Problem(
                f"{duplicate} is named twice", cause="a cluster has each host once", fix="name it once"
            )
        if self.head and self.head not in by_name:
            raise visit.no_head_problem(self.head, by_name)
        return by_name

    def _ask_for_hosts(self) -> tuple[HostCandidate, ...]:
        """Let the user choose among the hosts that this one knows."""
        search = sources.find_candidates()
        for refused in search.problems:
            print(f"medley: {refused}", file=sys.stderr)
        if not self.can_ask:
            example_names = [host.name for host in search.candidates] or ["spark-1", "spark-2"]
            yes_words = () if self.yes or self.dry_run else ("--yes",)
            raise Problem(
                "medley init needs the names of the hosts",
                cause="no one can choose: the input is not a terminal, or --yes is given",
                fix=f"name the hosts: {join((*self.typed_words, *example_names, *yes_words))}",
            )
        default_hosts = select_default(search.candidates)
        print(f"searched {', '.join(search.places)}:")
        for number, candidate in enumerate(search.candidates, 1):
            print(f"  {number:2}  {candidate.name:20}  {candidate.description}")
        default = " ".join(str(search.candidates.index(each) + 1) for each in default_hosts)
        question = "which hosts? numbers, or names of others"
        return terminal.ask(question, default, lambda answer: parse_selection(answer, search.candidates))

    def _survey_and_set_up(self, chosen: Mapping[str, HostCandidate]) -> tuple[dict[str, HostSurvey], bool]:
        """Return the survey of each host, and whether ssh could not be set up on one."""
        # Where nobody is asked, a switch was consent to all but host keys.
        dialog = ssh_keys.UserDialog(
            print,
            (lambda question: terminal.ask_yes_no(question, default=True))
            if self.can_ask
            else (lambda _: True),
            (lambda question: terminal.ask_yes_no(question, default=False)) if self.can_ask else None,
            self.dry_run,
        )
        surveys = _print_survey(chosen)
        refused_hosts = [
            name
            for name, survey in surveys.items()
            if isinstance(survey.problem, (KeyRefused, HostKeyUnknown))
        ]
        failed_hosts: list[str] = []
        if refused_hosts and (
            self.keys
            or (
                self.can_ask
                and terminal.ask_yes_no(
                    f"ssh does not get into {', '.join(refused_hosts)}: set that up now?", default=True
                )
            )
        ):
            failed_hosts = [name for name in refused_hosts if not _is_ssh_set_up(surveys[name], dialog)]
            retried_hosts = {
                name: chosen[name] for name in refused_hosts if name not in failed_hosts and not self.dry_run
            }
            if retried_hosts:
                surveys |= _print_survey(retried_hosts)
        renamed = visit.use_hostnames(surveys)
        visit.require_distinct_hosts(renamed)
        new_targets = {name: survey.target for name, survey in renamed.items() if name not in surveys}
        if self.keys and new_targets:
            ssh_keys.write_aliases(new_targets, dialog)
        return self._drop_unreached(renamed), bool(failed_hosts)

    def _drop_unreached(self, surveys: Mapping[str, HostSurvey]) -> dict[str, HostSurvey]:
        """Return the surveys without the silent hosts that the user drops."""
        silent_hosts = [name for name, survey in surveys.items() if survey.facts is None]
        if len(silent_hosts) == len(surveys):
            what, cause = f"{self.output or 'cluster.toml'} is not written", "no host was reached: "
            fix = f"fix the errors above, then: {join(self.typed_words)}"
            raise Problem(what, cause=cause + ", ".join(silent_hosts), fix=fix)
        unresolved = [name for name in silent_hosts if isinstance(surveys[name].problem, NameUnresolved)]
        if unresolved and not (self.can_ask or self.only_reached or self.dry_run):
            raise self._misspelled_problem(unresolved[0])
        question = "{} was not reached; write it all the same?"
        dropped = [
            name
            for name in silent_hosts
            if self.only_reached
            or (self.can_ask and not terminal.ask_yes_no(question.format(name), default=False))
        ]
        return {name: survey for name, survey in surveys.items() if name not in dropped}

    def _misspelled_problem(self, name: str) -> Problem:
        """Refuse to write a name without an address, with the nearest host that this one knows."""
        known = [
            candidate.name
            for candidate in sources.find_candidates().candidates
            if candidate.name not in self.typed_words
        ]
        near = get_close_matches(name, known, 1)
        words = [word for word in self.typed_words if near or word.rpartition("@")[2] != name]
        fix = join(near[0] if word.rpartition("@")[2] == name else word for word in words)
        return Problem(
            f"{self.output or 'cluster.toml'} is not written",
            cause=f"the name {name} cannot be resolved",
            fix=f"{fix}  # or give it an address in /etc/hosts",
        )

    def _choose_head(self, surveys: Mapping[str, HostSurvey]) -> str:
        default = visit.choose_head(surveys, self.head)
        if not self.can_ask or self.head or len(surveys) == 1:
            return default
        return terminal.ask(
            "which is the head, which the others join?",
            default,
            lambda answer: visit.choose_head(surveys, answer),
        )


def _print_survey(candidates: Mapping[str, HostCandidate]) -> dict[str, HostSurvey]:
    """Survey the hosts; print a line for each."""
    surveys = visit.survey_hosts(candidates, start_progress())
    width = max(map(len, surveys))
    for name, survey in surveys.items():
        print(f"{name:{width}}  {survey.description}")
        if survey.problem:
            print(f"{'':{width}}  fix: {survey.problem.fix}")
    return surveys


def _is_ssh_set_up(host: HostSurvey, dialog: ssh_keys.UserDialog) -> bool:
    try:
        ssh_keys.set_up_ssh(host.name, host.target, dialog)
    except Problem as problem:
        print(f"medley: {problem}", file=sys.stderr)
        return False
    return True


def _require_free(path: Path, *, force: bool) -> None:
    if path.is_dir():
        raise Problem(f"{path} is a folder", cause="the table is a file", fix=f"--output {path}/cluster.toml")
    if path.exists() and not force:
        raise Problem(
            f"{path} is there already",
            cause="medley init would replace it, and what you changed in it",
            fix=f"to replace it and keep the old one as {path.name}.1: --force; or look: --dry-run",
        )


def _write(path: Path, text: str) -> None:
    """Write the file; keep the old one as FILE.1."""
    try:
        with storage.explain_errors(path, "written"):
            if path.exists():
                shutil.copy2(path, f"{path}.1")
            storage.write_text(path, text)
    except UnusableFile as problem:
        problem.fix = "write it where you may: medley init --output ~/.config/medley/cluster.toml"
        raise
