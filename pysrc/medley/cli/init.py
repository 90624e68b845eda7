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
from medley.cluster import discovery
from medley.cluster.discovery import HostCandidate, sources, ssh_keys, table, visit
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
        self.asks = terminal.can_ask() and not self.yes
        path = user.expand(self.output or "cluster.toml")
        if not self.dry_run:
            _require_free(path, force=self.force)
        try:
            found, failed = self._surveyed(self._chosen(hosts))
            head = self._head(found)
        except (KeyboardInterrupt, EOFError):
            print(f"\nmedley: {path} was not written", file=sys.stderr)
            raise KeyboardInterrupt from None
        text = table.format_cluster(found, head, *visit.describe_network(found))
        table.parse_cluster(text)
        if self.dry_run:
            print(f"\n{text}", end="")
        else:
            _write(path, text)
            print(f"{path} is written, with {head} as its head. Now: medley up")
        return 1 if failed else 0

    def _chosen(self, hosts: Sequence[str]) -> dict[str, HostCandidate]:
        """By the names that they will have."""
        given = tuple(map(discovery.parse_host, hosts)) or self._offered()
        chosen = {each.name: each for each in given}
        if len(chosen) < len(given):
            double = next(each.name for each in given if each is not chosen[each.name])
            raise Problem(
                f"{double} is named twice", cause="a cluster has each host once", fix="name it once"
            )
        if self.head and self.head not in chosen:
            raise visit.no_head_problem(self.head, chosen)
        return chosen

    def _offered(self) -> tuple[HostCandidate, ...]:
        """What this host knows of others, of which the user takes some."""
        found = sources.find_candidates()
        for refused in found.refused:
            print(f"medley: {refused}", file=sys.stderr)
        if not self.asks:
            named = [each.name for each in found.candidates] or ["spark-1", "spark-2"]
            more = () if self.yes or self.dry_run else ("--yes",)
            raise Problem(
                "medley init needs the names of the hosts",
                cause="no one can choose: the input is not a terminal, or --yes is given",
                fix=f"name the hosts: {join((*self.typed_words, *named, *more))}",
            )
        usual = discovery.select_default(found.candidates)
        print(f"searched {', '.join(found.places)}:")
        for number, each in enumerate(found.candidates, 1):
            print(f"  {number:2}  {each.name:20}  {each.origin_text}")
        default = " ".join(str(found.candidates.index(each) + 1) for each in usual)
        question = "which hosts? numbers, or names of others"
        return terminal.ask(question, default, lambda said: discovery.parse_choice(said, found.candidates))

    def _surveyed(self, chosen: Mapping[str, HostCandidate]) -> tuple[dict[str, HostSurvey], bool]:
        """What each is; and whether one could not be given a key."""
        # Where nobody is asked, a switch was consent to all but host keys.
        manner = ssh_keys.UserDialog(
            print,
            (lambda question: terminal.ask_yes_no(question, default=True)) if self.asks else (lambda _: True),
            (lambda question: terminal.ask_yes_no(question, default=False)) if self.asks else None,
            self.dry_run,
        )
        found = _survey(chosen)
        barred = [
            name for name, each in found.items() if isinstance(each.problem, (KeyRefused, HostKeyUnknown))
        ]
        failed: list[str] = []
        if barred and (
            self.keys
            or (
                self.asks
                and terminal.ask_yes_no(
                    f"ssh does not get into {', '.join(barred)}: set that up now?", default=True
                )
            )
        ):
            failed = [name for name in barred if not _introduced(found[name], manner)]
            again = {name: chosen[name] for name in barred if name not in failed and not self.dry_run}
            if again:
                found |= _survey(again)
        renamed = visit.use_hostnames(found)
        visit.require_distinct(renamed)
        new = {name: each.target for name, each in renamed.items() if name not in found}
        if self.keys and new:
            ssh_keys.write_aliases(new, manner)
        return self._less_unreached(renamed), bool(failed)

    def _less_unreached(self, found: Mapping[str, HostSurvey]) -> dict[str, HostSurvey]:
        """All, less those that did not answer and are not wanted."""
        away = [name for name, each in found.items() if each.facts is None]
        if len(away) == len(found):
            what, cause = f"{self.output or 'cluster.toml'} is not written", "no host was reached: "
            fix = f"fix the errors above, then: {join(self.typed_words)}"
            raise Problem(what, cause=cause + ", ".join(away), fix=fix)
        unresolved = [name for name in away if isinstance(found[name].problem, NameUnresolved)]
        if unresolved and not (self.asks or self.only_reached or self.dry_run):
            raise self._misspelled(unresolved[0])
        question = "{} was not reached; write it all the same?"
        dropped = [
            name
            for name in away
            if self.only_reached
            or (self.asks and not terminal.ask_yes_no(question.format(name), default=False))
        ]
        return {name: each for name, each in found.items() if name not in dropped}

    def _misspelled(self, name: str) -> Problem:
        """Refuse to write a name without an address, with the nearest host that this one knows."""
        known = [
            each.name for each in sources.find_candidates().candidates if each.name not in self.typed_words
        ]
        near = get_close_matches(name, known, 1)
        words = [word for word in self.typed_words if near or word.rpartition("@")[2] != name]
        fix = join(near[0] if word.rpartition("@")[2] == name else word for word in words)
        return Problem(
            f"{self.output or 'cluster.toml'} is not written",
            cause=f"the name {name} cannot be resolved",
            fix=f"{fix}  # or give it an address in /etc/hosts",
        )

    def _head(self, found: Mapping[str, HostSurvey]) -> str:
        default = visit.choose_head(found, self.head)
        if not self.asks or self.head or len(found) == 1:
            return default
        return terminal.ask(
            "which is the head, which the others join?", default, lambda said: visit.choose_head(found, said)
        )


def _survey(chosen: Mapping[str, HostCandidate]) -> dict[str, HostSurvey]:
    """Look at each, and show a line of it."""
    found = visit.survey_hosts(chosen, start_progress())
    width = max(map(len, found))
    for name, each in found.items():
        print(f"{name:{width}}  {each.sentence}")
        if each.problem:
            print(f"{'':{width}}  fix: {each.problem.fix}")
    return found


def _introduced(host: HostSurvey, manner: ssh_keys.UserDialog) -> bool:
    try:
        ssh_keys.set_up_ssh(host.name, host.target, manner)
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
    """The old one is kept beside it."""
    try:
        with storage.explain_errors(path, "written"):
            if path.exists():
                shutil.copy2(path, f"{path}.1")
            storage.write(path, text)
    except UnusableFile as problem:
        problem.fix = "write it where you may: medley init --output ~/.config/medley/cluster.toml"
        raise
