"""`medley run`: a user's Python script."""

import json
from typing import Any

from medley.cli import Verb, flag, group
from medley.cli.launch_options import TRUST_SWITCHES, HostOptions, PlanningOptions
from medley.cli.output import create_output, print_command
from medley.model.trust import Trust
from medley.serving.launch_log import write_files
from medley.serving.launches import prepare_launch
from medley.serving.prepare import prepare_job
from medley.serving.script import read_script, read_script_plan
from medley.serving.script_run import ScriptRun
from medley.serving.server import run_job
from medley.serving.site import find_site


class RunVerb(Verb):
    USAGE = "    {progname} [OPTIONS] MODEL SCRIPT.py [WORDS]\n"
    HINT = "options of the script come after its name: medley run MODEL SCRIPT.py --limit 5"

    planning: PlanningOptions = group(PlanningOptions)
    trust: Trust = group(Trust, **TRUST_SWITCHES)
    hosting: HostOptions = group(HostOptions)
    dry_run: bool = flag("--dry-run", "print the command with its reasons; start nothing")
    as_json: bool = flag("--json", "one JSON object: the command", requires=["--dry-run"])

    def _parse_args(self, argv: list[str]) -> Any:  # noqa: ANN401 - plumbum's own matter, passed on
        """Leave the words after the script to it, as python does."""
        script_index = next(
            (index for index, word in enumerate(argv) if word.endswith(".py") or word == "--"), len(argv)
        )
        return super()._parse_args(
            [
                *argv[:script_index],
                *(() if "--" in argv[script_index : script_index + 1] else ("--",)),
                *argv[script_index:],
            ]
        )

    def main(self, model: str, script: str = "", *words: str) -> int:
        user_script, output = read_script(script, model, words), create_output()
        request = self.hosting.build_request(model, self.planning, self.trust, self.typed_words)
        job = prepare_job(request.replace(dry_run=self.dry_run, script=user_script), output)
        if not self.dry_run:
            return run_job(job, ScriptRun(user_script.path), output)
        launch = prepare_launch(job, find_site(job, output), output).launch
        write_files(launch)  # so that what is printed can be run
        if not self.as_json:
            print_command(launch.command, launch.list_reasons(), as_json=False)
            return 0
        command = launch.command
        reasons = [{"what": what, "why": reason} for what, reason in launch.list_reasons()]
        parts = {"argv": command.argv, "env": command.env, "unset": command.unset}
        print(
            json.dumps({"command": str(command), **parts, "plan": read_script_plan(launch), "why": reasons})
        )
        return 0
