"""Errands are what medley does on a host of the cluster when the one where a verb was typed asks it to.

Each is a module with one function `run(asked, note)`, of JSON values: what is asked, and the answer.
"""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from medley.problem import Problem

ERRANDS = (
    *("look", "prepare", "token", "listen", "connect", "begin", "settle", "gather"),
    *("end", "tell", "log", "type", "transfer", "examine", "mend", "sample"),
)


def run(name: str, asked: Mapping[str, Any], note: Callable[[str], None]) -> Mapping[str, Any]:
    if name not in ERRANDS:
        raise Problem(
            f"medley here knows no errand {name!r}",
            cause="it is older or newer than the one that asks",
            fix="use the same medley on all hosts: git pull, or the same flake",
        )
    found: Mapping[str, Any] = importlib.import_module(f"medley.errands.{name}").run(asked, note)
    return found
