"""What `--dry-run` prints: a command on stdout, and why it is as it is on stderr."""

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from medley.command import Command
from medley.problem import Problem

if TYPE_CHECKING:
    from medley.recipe import Step
    from medley.wiring import Wiring


def show(command: Command, why: Iterable[tuple[str, str]], *, as_json: bool) -> None:
    if as_json:
        reasons = [{"what": what, "why": reason} for what, reason in why]
        parts = {"argv": command.argv, "env": command.env, "unset": command.unset, "secrets": command.secrets}
        print(json.dumps({"command": str(command), **parts, "why": reasons}))
        return
    for what, reason in why:
        print(f"medley: {what}: {reason}", file=sys.stderr)
    print(command)


def show_steps(steps: "Iterable[Step]", *, as_json: bool) -> None:
    """What to type on each host, and what that starts there."""
    if as_json:
        print(json.dumps([table(step) for step in steps]))
        return
    for step in steps:
        for reason in step.why:
            print(f"medley: plan: {reason}", file=sys.stderr)
        for what, reason in step.starts.why():
            print(f"medley: {step.host}: {what}: {reason}", file=sys.stderr)
        print(f"on {step.host}: {step.typed}", file=sys.stderr)
        if step.image:
            print(f"medley: {step.host}: in a container of {step.image}", file=sys.stderr)
        print(step.starts.command)


def table(step: "Step") -> dict[str, Any]:
    command = step.starts.command
    told = (*(("plan", each) for each in step.why), *step.starts.why())
    reasons = [{"what": what, "why": reason} for what, reason in told]
    parts = {"argv": command.argv, "env": command.env, "unset": command.unset, "secrets": command.secrets}
    return {
        "host": step.host,
        "type": step.typed,
        "image": step.image,
        "command": str(command),
        **parts,
        "why": reasons,
    }


def only_dry_run(verb: str, switch: str) -> Problem:
    return Problem(
        f"{switch} names hosts that are not this one, and nothing of it can be started here",
        cause="it goes with --dry-run alone",
        fix=f"medley {verb} --dry-run {switch}",
    )


def only_imagined(hosts: int) -> Problem:
    return Problem(
        "a model without Ray cannot be shown before its hosts have joined",
        cause="each tells what it is when it joins, and the plan is made of that",
        fix=f"name their kinds: --dry-run --launcher mp --hosts spark:{hosts}",
    )


def tell(wiring: "Wiring") -> None:
    """Which wire was taken, on stderr."""
    for line in wiring.said():
        print(f"medley: {line}", file=sys.stderr)
