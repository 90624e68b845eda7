"""`medley facts`, `check`, `help`, `completion`."""

import json
import os
from pathlib import Path
from typing import Any

from medley import config, read_medley_version, transcript, user
from medley.cli import Medley, Verb, command_tree, flag, shell_scripts, switch
from medley.cli.output import format_table, print_message, print_result
from medley.errors import Problem
from medley.host.facts import Facts
from medley.host.kind import Kind, list_facts, load_answers, match_kind
from medley.host.redact import Redactor, redactor_of_host
from medley.host.summary import describe_facts


class FactsVerb(Verb):
    as_json: bool = flag("--json", "one JSON object; for several files a list")
    as_transcript: bool = flag("--transcript", "print the transcript, redacted", excludes=["--json"])
    replayed: list[str] = switch("--from FILE", "transcript to read instead of this host")
    USAGE = "    {progname} [OPTIONS] [--from FILE...]\n"

    def main(self, *more: str) -> None:
        files = (*self.replayed, *more)
        if self.as_transcript:
            from medley.doctor.examination import read_answers

            if len(files) > 1:
                raise Problem(
                    "a transcript is of one host",
                    cause=f"--from names {len(files)} files",
                    fix=f"medley facts --transcript --from {files[0]}",
                )
            answers = load_answers(files[0]) if files else read_answers(None)
            print(
                transcript.format_transcript(
                    (Redactor() if files else redactor_of_host()).transcript(answers)
                ),
                end="",
            )
        elif self.as_json:
            hosts = [_build_table(host_facts) for _, host_facts in list_facts(files)]
            print(json.dumps(hosts if len(files) > 1 else hosts[0]))
        else:
            for name, host_facts in list_facts(files):
                if len(files) > 1:
                    print(f"{name}:")
                print("\n".join(format_table(("", ""), describe_facts(host_facts, _find_kind(host_facts)))))


def _find_kind(host_facts: Facts) -> Kind | Problem:
    """Return the kind; return the Problem if none matches, because the user needs the facts now."""
    try:
        return match_kind(host_facts, config.load_hosts())
    except Problem as problem:
        return problem


def _build_table(host_facts: Facts) -> dict[str, Any]:
    kind = _find_kind(host_facts)
    table = {"system": host_facts.system, **host_facts.to_table()}
    if isinstance(kind, Problem):
        return {"kind": None, "problem": kind.table, **table}
    about = {"name": kind.name, "title": kind.table.title, "why": kind.why, "warning": kind.warning}
    return {"kind": about, "problem": None, **table}


class CheckVerb(Verb):
    as_json: bool = flag("--json", "one JSON object: the folders, and each file with its problem")
    accept: str | None = switch("--accept FILE", "cluster.toml whose programs medley may run")

    def main(self) -> int:
        from medley.cluster import cluster_file
        from medley.explain import diagnosis

        if self.accept:
            return self._record_consent(user.expand_home(self.accept))
        problems_by_path = {**config.check_tables(), **diagnosis.check()}
        if path := cluster_file.find_cluster_file():
            problems_by_path[path] = None
            try:
                cluster_file.read_cluster(str(path))
            except Problem as problem:
                problems_by_path[path] = problem
        wrong_paths = {path: problem for path, problem in problems_by_path.items() if problem}
        if not self.as_json:
            for path_problem in wrong_paths.values():
                print_message(path_problem)
        folders = config.list_config_folders()
        result = {
            "folders": [str(folder) for folder in folders],
            "tables": {
                str(path): path_problem and path_problem.table
                for path, path_problem in problems_by_path.items()
            },
        }
        lines = (
            "folders of tables, in the order of their search:",
            *(f"  {folder}{'' if os.path.isdir(folder) else '  (missing)'}" for folder in folders),  # noqa: PTH112 - Path.is_dir raises PermissionError
            f"{len(problems_by_path)} tables, {len(wrong_paths)} wrong",
        )
        print_result(result, lines, as_json=self.as_json)
        return 1 if wrong_paths else 0

    def _record_consent(self, path: Path) -> int:
        from medley.cluster import cluster_file, program_consent

        table = cluster_file.build_programs_table(cluster_file.read_cluster(str(path)))
        program_consent.record_consent(path, table)
        programs = list(program_consent.list_programs(table))
        lines = (f"accepted: {path}", *(f"  {program}" for program in programs))
        print_result({"accepted": str(path), "programs": programs}, lines, as_json=self.as_json)
        return 0


class HelpVerb(Verb):
    USAGE = "    {progname} [VERB...]\n"

    def main(self, *words: str) -> None:
        shown: Verb = Medley("medley")
        for word in words:
            subverbs = shown.load_verbs()
            if word not in subverbs:
                raise shown.unknown_verb_usage(word, lead_words="medley help")
            shown = subverbs[word](f"{shown.PROGNAME} {word}")
        shown.help()


class CompletionVerb(Verb):
    USAGE = "    {progname} WHAT\n"

    def main(self, what: str) -> None:
        if what not in command_tree.COMPLETION_TARGETS:
            raise Problem(
                f"there is no completion for {what}",
                cause=f"there are {', '.join(command_tree.COMPLETION_TARGETS)}",
                fix="medley completion --help",
            )
        tree = command_tree.read_tree(Medley, (), command_tree.list_word_values())
        script = shell_scripts.SCRIPTS.get(what)
        print(
            script(tree) if script else command_tree.format_manual_page(tree, read_medley_version()), end=""
        )
