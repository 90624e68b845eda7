"""`medley check`: are all tables right?"""

import json
import sys
from typing import TYPE_CHECKING

from plumbum import cli

from medley.cli.verb import Verb

if TYPE_CHECKING:
    from pathlib import Path

    from medley.problem import Problem


class Check(Verb):
    DESCRIPTION = "Validate every TOML of kinds of hosts, models and engine environments, and cluster.toml."
    DESCRIPTION_MORE = """
Your own tables are in ~/.config/medley/{hosts,models,locks}; they win over those that come with medley.
cluster.toml is the one that medley up would take here.

Examples:
    /medley check
    /medley check --json

"""

    as_json = cli.Flag("--json", help="print one JSON object: each file, and what is wrong with it")

    def main(self) -> int:
        from medley import config

        wrong = config.check() | _cluster()
        bad = {path: problem for path, problem in wrong.items() if problem}
        if self.as_json:
            said = {
                str(path): problem and {"what": problem.what, "cause": problem.cause, "fix": problem.fix}
                for path, problem in wrong.items()
            }
            print(json.dumps(said))
        else:
            for problem in bad.values():
                print(f"medley: {problem}", file=sys.stderr)
            print(f"{len(wrong)} tables, {len(bad)} wrong")
        return 1 if bad else 0


def _cluster() -> "dict[Path, Problem | None]":
    from medley import cluster
    from medley.problem import Problem

    path = cluster.file()
    if path is None:
        return {}
    try:
        cluster.read()
    except Problem as problem:
        return {path: problem}
    return {path: None}
