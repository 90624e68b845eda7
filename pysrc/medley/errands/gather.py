"""Gather: the head keeps what its hosts told of themselves, and sees who is there."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from medley import machine, membership, shaped, store, token
from medley.command import Command
from medley.errands.prepare import Told, prepared
from medley.part import Part
from medley.problem import Problem

LIMIT_S = 75


def run(asked: Mapping[str, Any], note: Callable[[str], None]) -> Mapping[str, Any]:
    """What `prepare` is asked, `head` and `gathered`: on a head that runs."""
    done = machine.run(
        command(prepared(asked, Told(note)), asked["head"], asked["gathered"]), limit_s=LIMIT_S
    )
    return answer(done.lines)


def command(ours: Part, head: str, gathered: Mapping[str, Any]) -> Command:
    """Keeps with the head at HOST:PORT what a file of ours holds, for one that starts anew too."""
    file = store.state() / "gathered.json"
    store.write(file, json.dumps({**gathered, "note": {**ours.terms(), "address": head.partition(":")[0]}}))
    return membership.asked(ours.environment, token.path(), "gather.py", head, str(file), reads=(file,))


def answer(lines: "list[str] | tuple[str, ...]") -> Mapping[str, Any]:
    """Its nodes and who is missing, out of what the command said."""
    said = next((line for line in reversed(lines) if line.startswith(('{"nodes"', '{"error"'))), None)
    found = shaped.table(said or "") or {"error": "", "said": "\n".join(lines[-3:])}
    if "error" in found:
        raise Problem("the head's Ray does not answer", cause=found["said"], fix="medley down; medley up")
    return found
