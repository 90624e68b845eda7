"""The switches by which a server outlives the terminal, starts anew, or is served from the cluster's head."""

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plumbum import cli

from medley.cli.verb import Verb
from medley.problem import Problem

if TYPE_CHECKING:
    from medley.remote import Remote

_LOOK_EVERY_S = 0.2
_READY_LINES = 4
"""What `serve` prints when it is ready: where it is, and what to type."""


class AtHead(Verb):
    cluster = cli.SwitchAttr(
        "--cluster", str, argname="FILE", help="the cluster's table; default: ./cluster.toml, or your own"
    )

    def head_elsewhere(self) -> "Remote | None":
        """The head of cluster.toml's cluster, where that is another host and this one heads none."""
        from medley import cluster, membership
        from medley.everyone import connection, is_here

        asked: Any = self.cluster
        part = membership.noted()
        if not asked and (not cluster.file() or (part and part.role == "head")):
            return None
        found = cluster.read(asked)
        return None if is_here(found, found.head) else connection(found, found.head)

    def typed_at(self, head: "Remote") -> int:
        """The verb as it was typed, but there; what it says is said here, and Ctrl-C ends it there."""
        words = without(sys.argv[1:], {"--cluster": 1})
        with head:
            head.greeted()
            print(f"medley: on {head.name}, the head: medley {' '.join(words)}", file=sys.stderr)
            said = head.ask("type", {"words": words}, float("inf"), _pass_on)
        return int(said["status"])


class Staying(AtHead):
    detach = cli.Flag("--detach", help="leave it to run, and return once it is ready; medley stop ends it")
    restart = cli.Flag("--restart", help="when it is lost, start it anew once the hosts it needs are back")

    def detached(self, port: int) -> int:
        """The verb without --detach as a unit; returns once it is ready, or its end as a Problem."""
        from medley import own, serving, units
        from medley.cli.progress import watch
        from medley.command import Command
        from medley.unit import Restart, Unit

        serving.require_none(port)
        name = f"{serving.UNIT}{port}"
        words = without(sys.argv[1:], {"--detach": 0, "--cluster": 1})
        here = ("env", f"--chdir={Path.cwd()}")  # a folder may be named from here
        command = Command((*here, *own.command(), *words), own.variables())
        # It starts its engine anew by itself; what is left is that medley itself is killed.
        unit = Unit(name, " ".join(words), command, Restart(limit=3) if self.restart else None)
        with units.alone(name):
            units.start(unit)
        try:
            with watch().stage(f"{name}: until it is ready"):
                _await_ready(name, port)
        except BaseException:
            units.stop(name)
            raise
        print(f"{name} serves; medley logs shows what it says, medley stop ends it")
        return 0


def without(words: list[str], switches: Mapping[str, int]) -> list[str]:
    """What was typed less these switches, each with so many words after it; an engine's own stay."""
    end = words.index("--") if "--" in words else len(words)
    kept: list[str] = []
    skip = 0
    for word in words[:end]:
        if skip:
            skip -= 1
        elif word in switches:
            skip = switches[word]
        elif word.partition("=")[0] not in switches:
            kept.append(word)
    return [*kept, *words[end:]]


def _pass_on(line: str) -> None:
    """The first letter tells which stream it came by."""
    print(line[1:], file=sys.stdout if line[0] == "1" else sys.stderr, flush=True)


def _await_ready(name: str, port: int) -> None:
    from medley import serving, units

    shown = 0
    while True:
        lines = units.said(name)
        for line in lines[shown:]:
            if line.startswith("medley: "):
                print(line, file=sys.stderr)
        shown = len(lines)
        if serving.is_ready(port) and (at := _ready_at(lines)) is not None:
            print("\n".join(lines[at : at + _READY_LINES]))
            return
        state = units.state(name)
        if state is None or not state.kept or state.restarts:
            raise _ended(name, units.said(name))
        time.sleep(_LOOK_EVERY_S)


def _ready_at(lines: list[str]) -> int | None:
    return next((at for at, line in enumerate(lines) if line.startswith("ready after")), None)


def _ended(name: str, lines: list[str]) -> Problem:
    """What it printed of its own Problem, where it did."""
    from medley import units

    told = [at for at, line in enumerate(lines) if line.startswith("  cause:")]
    what = lines[told[-1] - 1].removeprefix("medley: ") if told and told[-1] else f"{name} ended"
    cause = lines[told[-1]].removeprefix("  cause:").strip() if told else "\n".join(lines[-6:])
    fixes = (
        [line.removeprefix("  fix:").strip() for line in lines[told[-1] :] if line.startswith("  fix:")]
        if told
        else []
    )
    whole = f"read all that it said: less {units.log(name)}"
    return Problem(what, cause=cause, fix="\n".join((*fixes[:1], whole)))
