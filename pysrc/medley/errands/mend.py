"""Mend: one of the doctor's safe changes, made on this host."""

import os
from collections.abc import Callable, Mapping
from typing import Any

from medley import machine, own
from medley.command import Command
from medley.problem import Problem

LIMIT_S = 60


def run(asked: Mapping[str, Any], note: Callable[[str], None]) -> Mapping[str, Any]:
    """`words` of the command, `unasked` more of them, and whether it needs `root`."""
    words = tuple(asked["words"])
    if words[0] == "medley":
        words = (*own.command(), *words[1:])
    shown = " ".join(asked["words"])
    sudo = ("sudo", "-n") if asked["root"] and os.geteuid() != 0 else ()
    finished = machine.run(Command((*sudo, *words, *asked["unasked"])), limit_s=LIMIT_S, on_line=note)
    if finished.status:
        raise Problem(
            f"it could not be mended: {shown}",
            cause="\n".join(finished.lines[-4:]) or f"it ended with {finished.status}",
            fix=f"type it there, where sudo can ask for its password: {'sudo ' if sudo else ''}{shown}",
        )
    return {}
