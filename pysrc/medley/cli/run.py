"""`medley run`: a Python script that makes the engine itself, by the plan that `serve` would make."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plumbum import cli

from medley.cli.hosting import Hosting
from medley.problem import Problem, in_words

if TYPE_CHECKING:  # imported when the verb runs, to keep `medley --help` fast
    from medley.cli.ran import Ran
    from medley.launch import Launch
    from medley.membership import Membership
    from medley.placement import Wanted
    from medley.plan import Launcher
    from medley.recipe import Order
    from medley.script import Script
    from medley.site import Site
    from medley.tables import Engine

_MOST_BYTES = 1 << 20
"""Of a script: it goes to other hosts in one message."""


class Run(Hosting):
    DESCRIPTION = "Run a Python script in the engine's environment, over the hosts that serve would take."
    DESCRIPTION_MORE = """
The plan is that of medley serve MODEL, as the arguments of vllm.LLM or sglang.Engine. The script reads them:

/    if __name__ == "__main__":   # the engine's processes read it again
/        llm = LLM(**json.load(open(os.environ["MEDLEY_PLAN"]))["arguments"])

What stands after SCRIPT.py is the script's. Its exit code and its stdout are medley's; all else is on stderr.
With --launcher mp it runs on every host, once for each rank, under torchrun; with --dp N once for each
replica.

Examples:
    /medley run demo answers.py
    /medley run demo answers.py --limit 5          its own words
    /medley run --dry-run demo answers.py          the arguments, and why
    /medley run --hosts 2 --launcher mp demo answers.py
    /medley run --dp 4 qwen3-8b answers.py prompts.jsonl

"""
    USAGE = "    {progname} [SWITCHES] MODEL SCRIPT.py [WORDS]\n"
    HINT = "the script's own words come after its name: medley run MODEL SCRIPT.py --limit 5"

    dry_run = cli.Flag("--dry-run", help="print the command and its arguments, and why; start nothing")
    as_json = cli.Flag("--json", requires=["--dry-run"], help="print them as one JSON object")

    def _parse_args(self, argv: list[str]) -> Any:  # noqa: ANN401 - plumbum's own matter, passed on
        """As with python itself, what stands after the script is not ours."""
        at = next((nth for nth, word in enumerate(argv) if word.endswith(".py") or word == "--"), len(argv))
        return super()._parse_args([*argv[:at], *(() if "--" in argv[at : at + 1] else ("--",)), *argv[at:]])

    def main(self, model: str, script: str = "", *words: str) -> int:
        from medley import config, engine, store, weights
        from medley.cli.served import stopped
        from medley.recipe import Order

        path = _read(script, model)
        found = weights.weights(model, config.models(), store.cache(), self.typed)
        by, why = self.started_by()
        joined, chosen = self.joined(by)
        if joined and joined.image:
            raise _out_of_an_image()
        if not self.dry_run:
            weights.ready(found)
        beside = self.besides(found, (), engine=chosen, starts=not self.dry_run)
        listens = engine.Serving(found.target, found.name)
        order = Order(found, listens, self._wanted(chosen, by), (), beside, self.typed)
        ran = self._script(path, words, order)
        with stopped():
            if by == "mp":
                return self._together(order, ran, why)
            return self._alone(order, ran, self.site(joined), joined, why)

    def _alone(
        self, order: "Order", script: "Script", site: "Site", joined: "Membership | None", why: str
    ) -> int:
        """On this host, or with the ranks of its engine on those of the cluster."""
        from medley import spreading
        from medley.cli.planned import launched, planned
        from medley.layout.words import hosts

        layout, plan = planned(order, site, bare=self.unplanned, launched=why)
        spread = joined if plan.launcher == "ray" else None
        there = site.only(hosts(layout))
        launch = launched(
            order, plan, there, spread, self.environment, dry_run=self.dry_run, make=script.launch
        )
        if self.dry_run:
            self._show(launch)
            return 0
        ran, taken = _ran(order, script, launch), spreading.taken(layout, site) if joined else None
        return ran.spread(spread, taken) if spread and taken else ran.here(joined, taken)

    def _together(self, order: "Order", script: "Script", why: str) -> int:
        """On every host that joins it, each with a process of its own."""
        from medley.cli.planned import planned
        from medley.cli.together import Together

        if self.dry_run:
            raise Problem(
                "what runs without Ray cannot be shown before its hosts have joined",
                cause="each tells what it is when it joins, and the plan is made of that",
                fix="run it: each host prints its command; --hosts 1 --dry-run shows that of this host alone",
            )
        met = Together(
            order,
            self.count() or 2,
            self.wait,
            self.join_port,
            self.kind,
            self.environment,
            partial(planned, bare=self.unplanned, launched=why),
            script.launch,
            script.path.name,
        )
        return met.start(lambda launch, meeting: _ran(order, script, launch).together(meeting))

    def _wanted(self, engine: "Engine", by: "Launcher") -> "Wanted":
        """Over Ray one engine has all ranks: its class starts no replicas."""
        if engine == "sglang" and by != "solo":
            raise _only_here(by)
        if by == "ray" and (self.replicas or 1) > 1:
            raise Problem(
                f"--dp {self.replicas} cannot be had over Ray",
                cause="each replica of a script is a process of its own, and Ray starts none of them",
                fix=f"end the cluster (medley ray-stop), then: --dp {self.replicas} --launcher mp --hosts N",
            )
        wanted = self.wanted_there(engine, by)
        return replace(wanted, sizes=replace(wanted.sizes, replicas=1)) if by == "ray" else wanted

    def _script(self, found: "Script", words: tuple[str, ...], order: "Order") -> "Script":
        from medley import port
        from medley.cli.placing import shape_of

        if (self.replicas or 1) == 1 and self.goal != "throughput":
            return replace(found, words=words)
        experts = not self.unplanned and shape_of(order.weights).experts > 0
        return replace(found, words=words, experts=experts, port=port.free())

    def _show(self, launch: "Launch") -> None:
        import json
        import sys

        from medley.cli.ran import keep_files
        from medley.cli.reasons import show
        from medley.script import described

        keep_files(launch)  # so that what is printed can be run
        if not self.as_json:
            show(launch.command, launch.why(), as_json=False)
            return
        command = launch.command
        reasons = [{"what": what, "why": reason} for what, reason in launch.why()]
        parts = {"argv": command.argv, "env": command.env, "unset": command.unset}
        json.dump({"command": str(command), **parts, "plan": described(launch), "why": reasons}, sys.stdout)
        print()


def _ran(order: "Order", script: "Script", launch: "Launch") -> "Ran":
    from medley.cli.ran import Ran
    from medley.engines import ENGINES

    return Ran(ENGINES[order.wanted.engine], launch, script.path, order.serving.target)


def _read(name: str, model: str) -> "Script":
    from medley.script import Script

    path = Path(name).absolute()
    try:
        text = path.read_text(encoding="utf-8") if name else ""
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(
            f"{name} cannot be read",
            cause=in_words(error),
            fix="name a Python script: medley run MODEL SCRIPT.py",
        ) from error
    if not name.endswith(".py") or len(text) > _MOST_BYTES:
        raise Problem(
            f"{name} is no Python script" if name else "there is no script to run",
            cause="its name does not end in .py"
            if name and len(text) <= _MOST_BYTES
            else f"it is larger than {_MOST_BYTES} bytes"
            if name
            else f"{model} is the model, and a script comes after it",
            fix=f"medley run {model} SCRIPT.py; docs/python.md has one",
        )
    return Script(path, text)


def _out_of_an_image() -> Problem:
    return Problem(
        "a script does not run out of an image",
        cause="this cluster's Ray is an image's, and a script's files are this host's",
        fix="on all hosts medley ray-stop; then medley ray-head without --image, or --launcher mp",
    )


def _only_here(by: str) -> Problem:
    return Problem(
        "a script with SGLang runs on one host",
        cause="sglang.Engine lets Ray choose the hosts, and waits for ever where it has none"
        if by == "ray"
        else "on another host sglang.Engine serves the first one, and never returns to the script",
        fix="--hosts 1; or --engine vllm; or serve it over the hosts, and have the script ask that server",
    )
