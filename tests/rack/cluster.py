"""A cluster as its users make one, typing medley's verbs on each host of a rack."""

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from medley import process
from medley.command import Command
from medley.process import Process
from tests import problems
from tests.rack.host import Host
from tests.waiting import wait_for

MEDLEY = (sys.executable, "-m", "medley")
STATE = "/tmp/home/.local/state/medley"
READY_LIMIT_S = 300
PROBLEM_LIMIT_S = 90
"""Seen: 5 to 12 s on two quiet cores, 20 where the head's tasks never come back, and 32 on two busy ones."""
Typed = Callable[..., Command]
"""How a verb is typed: from the verb and its words to the command."""


@dataclass
class Served:
    """A running `medley serve`, and what it said."""

    host: Host
    process: Process
    lines: list[str]

    @property
    def places(self) -> dict[str, str]:
        """Where each rank is, as `serve` says it: address by STAGE.TENSOR_RANK."""
        said = (line.split() for line in self.lines if line.startswith("medley: stage "))
        return {f"{words[2]}{words[5]}".replace(",", ".").rstrip(":"): words[6] for words in said}


def typed(verb: str, *words: str) -> Command:
    return Command((*MEDLEY, verb, *words))


def medley(host: Host, *words: str, stdin: str | None = None, by: Typed = typed) -> process.ProcessResult:
    """One short command of medley's on a host; `stdin` is the token it is given, in a file."""
    if stdin is not None:
        host.path("/tmp/home/brought").write_text(stdin)
        words = (*words, "--token-file", "/tmp/home/brought")
    command = by(*words)
    began = time.monotonic()
    finished = host.run(command, limit_s=300)
    assert finished.status == 0 or time.monotonic() - began < PROBLEM_LIMIT_S, "a Problem takes seconds"
    return finished


def cluster(hosts: tuple[Host, ...], by: Typed = typed, words: tuple[str, ...] = ()) -> str:
    """Ray on all of them; returns the token."""
    head, *others = hosts
    began = medley(head, "ray-head", *words, by=by)
    assert began.status == 0, began.lines
    token = token_of(head)
    for host in others:
        joined = medley(host, "ray-worker", head.name, *words, stdin=token, by=by)
        assert joined.status == 0, joined.lines
    return token


def token_of(head: Host) -> str:
    return head.path(f"{STATE}/token").read_text()


def served(
    host: Host,
    *words: str,
    model: str = "demo",
    env: Mapping[str, str] | None = None,
    by: Typed = typed,
) -> Served:
    lines: list[str] = []
    process = host.start(by("serve", "-v", model, *words).add_variables(env or {}), lines.append)
    wait_for(
        f"serve has {model} ready, or ends",
        lambda: any(line.startswith("ready after") for line in lines) or process.poll() is not None,
        READY_LIMIT_S,
        state=lambda: lines[-20:],
    )
    assert process.poll() is None, "\n".join(lines[-20:])
    return Served(host, process, lines)


def assert_problem(
    finished: process.ProcessResult,
    *names: str,
    cause: str | Iterable[str] = (),
    fix: str | Iterable[str] = (),
) -> None:
    """Fail unless a command ended with a Problem whose fields have all of these."""
    assert finished.status == 1, finished.lines
    found = [
        each for each in problems.problems_in(finished.lines) if all(name in each.what for name in names)
    ]
    assert found, finished.lines
    problems.assert_problem(found[-1], cause=cause, fix=fix)
