"""`medley run`: a user's Python script."""

import json
from dataclasses import replace
from typing import Any

from medley.cli import Verb, flag, group
from medley.cli.launch_options import TRUST, Hosting, Planning
from medley.cli.output import output, show
from medley.model.trust import Trust
from medley.serving.prepare import launched, prepare, topology
from medley.serving.script import described, read_script
from medley.serving.server import ScriptRun, keep_files, run


class RunVerb(Verb):
    USAGE = "    {progname} [OPTIONS] MODEL SCRIPT.py [WORDS]\n"
    HINT = "options of the script come after its name: medley run MODEL SCRIPT.py --limit 5"

    planning: Planning = group(Planning)
    trust: Trust = group(Trust, **TRUST)
    hosting: Hosting = group(Hosting)
    dry_run: bool = flag("--dry-run", "print the command with its reasons; start nothing")
    as_json: bool = flag("--json", "one JSON object: the command", requires=["--dry-run"])

    def _parse_args(self, argv: list[str]) -> Any:  # noqa: ANN401 - plumbum's own matter, passed on
        """As with python itself, what stands after the script is not ours."""
        at = next((nth for nth, word in enumerate(argv) if word.endswith(".py") or word == "--"), len(argv))
        return super()._parse_args([*argv[:at], *(() if "--" in argv[at : at + 1] else ("--",)), *argv[at:]])

    def main(self, model: str, script: str = "", *words: str) -> int:
        found, told = read_script(script, model, words), output()
        options = self.hosting.options(model, self.planning, self.trust, self.typed)
        job = prepare(replace(options, dry_run=self.dry_run, script=found), told)
        if not self.dry_run:
            return run(job, ScriptRun(found.path), told)
        launch = launched(job, topology(job, told), told).launch
        keep_files(launch)  # so that what is printed can be run
        if not self.as_json:
            show(launch.command, launch.list_reasons(), as_json=False)
            return 0
        command = launch.command
        reasons = [{"what": what, "why": reason} for what, reason in launch.list_reasons()]
        parts = {"argv": command.argv, "env": command.env, "unset": command.unset}
        print(json.dumps({"command": str(command), **parts, "plan": described(launch), "why": reasons}))
        return 0
