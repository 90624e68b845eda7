"""`medley agent`: answers requests of another host over ssh, JSON lines; table of handlers.

One JSON object a line: on stdin {"do": ERRAND, "with": {…}}; on stdout first what this is, then to each
errand any {"note": TEXT} and one {"said": {…}} or {"problem": {…}}. It ends when stdin does.

Each is a function `answer_ERRAND(asked, note)` of one of the modules below.
"""

import importlib
import itertools
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from queue import Queue
from typing import Any, TypedDict

from medley import json_shape
from medley.cli.progress import Noted
from medley.cluster import self_command
from medley.errors import Problem

Table = Mapping[str, Any]
"""What is asked, and the answer: JSON values."""
Note = Callable[[str], None]
"""Tells the host that asks what goes on."""

ANSWERED_BY = {
    **dict.fromkeys(("prepare", "gather", "begin", "settle", "end"), "ray"),
    **dict.fromkeys(("look", "tell", "examine", "sample", "log", "events", "listen", "connect"), "state"),
    **dict.fromkeys(("transfer", "type", "token", "mend"), "transfer"),
}
"""The module here that answers each request."""


def answer(name: str, asked: Table, note: Note) -> Table:
    if name not in ANSWERED_BY:
        raise Problem(
            f"medley here knows no errand {name!r}",
            cause="it is older or newer than the one that asks",
            fix="use the same medley on all hosts: git pull, or the same flake",
        )
    module = importlib.import_module(f"medley.cli.agent.{ANSWERED_BY[name]}")
    found: Table = getattr(module, f"answer_{name}")(asked, note)
    return found


class Notes(Noted):
    """Progress whose stages and notes go to the host that asks."""

    def __init__(self, note: Note) -> None:
        self._tell = note

    def note(self, text: str) -> None:
        self._tell(text)


_WAKE_EVERY_S = 0.2
_Asked = TypedDict("_Asked", {"do": str, "with": dict[str, Any]})


def main() -> int:
    asked: Queue[str] = Queue()
    signal.signal(signal.SIGUSR1, lambda *_: None)
    _say(
        {"medley": self_command.compute_source_digest(), "host": socket.gethostname(), "epoch_s": time.time()}
    )
    threading.Thread(target=_listen, args=(asked,), daemon=True).start()
    while line := asked.get():
        _say(_answer(json_shape.table(line) or {}))
    return 0


def _listen(asked: "Queue[str]") -> None:
    """An end of stdin ends us, also in the middle of an errand."""
    for line in sys.stdin:
        asked.put(line)
    for number in itertools.chain([signal.SIGTERM], itertools.repeat(signal.SIGUSR1)):
        # One that comes just as the main thread is about to block does not wake it; the next one does.
        os.kill(os.getpid(), number)
        time.sleep(_WAKE_EVERY_S)


def _answer(asked: dict[str, Any]) -> dict[str, Any]:
    if not json_shape.fits(asked, _Asked):
        said = "one JSON object with `do`, an errand, and `with`, a table"
        problem = Problem(
            "medley here was not asked for an errand", cause=f"it takes {said}", fix="medley help"
        )
        return {"problem": problem.table}
    try:
        return {"said": answer(asked["do"], asked["with"], lambda text: _say({"note": text}))}
    except Problem as problem:
        return {"problem": problem.table}


def _say(table: Table) -> None:
    sys.stdout.write(f"{json.dumps(table)}\n")
    sys.stdout.flush()
