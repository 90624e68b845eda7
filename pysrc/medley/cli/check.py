"""`medley check`: are all tables right?"""

import json
import sys

from plumbum import cli

from medley.cli.verb import Verb


class Check(Verb):
    DESCRIPTION = "Validate every TOML of kinds of hosts, models and engine environments."
    DESCRIPTION_MORE = """
Your own tables are in ~/.config/medley/{hosts,models,locks}; they win over those that come with medley.

Examples:
    /medley check
    /medley check --json

"""

    as_json = cli.Flag("--json", help="print one JSON object: each file, and what is wrong with it")

    def main(self) -> int:
        from medley import config

        wrong = config.check()
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
