"""Prospecting is reading what this host already knows of others; no address is tried to find one."""

import glob
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from medley import facts, known_hosts, machine, neighbours, prospects, ssh_config
from medley.mention import Mention
from medley.problem import Problem
from medley.prospects import Prospect
from medley.recognised import answers


@dataclass(frozen=True)
class Found:
    prospects: tuple[Prospect, ...]
    refused: tuple[Problem, ...]
    where: tuple[str, ...]
    """What was read and which links were looked at."""


def found() -> Found:
    here = facts.facts(answers())
    links = tuple(neighbours.links(here))
    near = neighbours.mentions(machine.ask(neighbours.QUESTIONS), here)
    ours = [address.ip for link in here.net.links for address in link.addresses]
    every = (*named_by_ssh(), *near)
    known, refused = prospects.prospects(every, socket.gethostname().partition(".")[0], ours)
    where = ("~/.ssh/config", "~/.ssh/known_hosts", *(f"the neighbours on {link}" for link in links))
    return Found(known, refused, where)


def named_by_ssh() -> Iterator[Mention]:
    folder = Path.home() / ".ssh"
    for _, text in _files(folder / "config"):
        yield from ssh_config.mentions(text, "~/.ssh/config", _included)
    for _, text in _files(folder / "known_hosts"):
        yield from known_hosts.mentions(text, "~/.ssh/known_hosts")


def _included(pattern: str) -> Iterator[tuple[str, str]]:
    """As ssh has it: relative to ~/.ssh."""
    whole = Path.home() / ".ssh" / Path(pattern).expanduser()
    for name in sorted(glob.glob(str(whole))):  # noqa: PTH207 - Path.glob refuses an absolute pattern
        yield from _files(Path(name))


def _files(path: Path) -> Iterator[tuple[str, str]]:
    """Nothing, where it is not there or not ours to read."""
    try:
        yield str(path), path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
