"""`medley agent`: answer another host's requests over ssh, in JSON lines.

Each line is a JSON object. Stdin has {"do": REQUEST, "with": {…}}. Stdout has a greeting, then for each
request any {"note": TEXT} and one {"said": {…}} or {"problem": {…}}. The agent ends when stdin does.

A request is answered by the function `answer_REQUEST(fields, note)` of its module in HANDLER_MODULES.
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
from medley.cli.progress import NoteProgress
from medley.cluster import self_command
from medley.errors import Problem

Table = Mapping[str, Any]
"""Fields of a request or an answer: JSON values."""
Note = Callable[[str], None]
"""Sends a note to the host that asks."""

HANDLER_MODULES = {
    **dict.fromkeys(("prepare", "gather", "begin", "settle", "end"), "ray"),
    **dict.fromkeys(("look", "tell", "examine", "sample", "log", "events", "listen", "connect"), "state"),
    **dict.fromkeys(("transfer", "type", "token", "mend"), "transfer"),
}
"""The module of this package that answers each request."""


def answer_request(request: str, fields: Table, note: Note) -> Table:
    if request not in HANDLER_MODULES:
        raise Problem(
            f"this host's medley does not know the request {request!r}",
            cause="it is older or newer than the one that asks",
            fix="use the same medley on all hosts: git pull, or the same flake",
        )
    module = importlib.import_module(f"medley.cli.agent.{HANDLER_MODULES[request]}")
    result: Table = getattr(module, f"answer_{request}")(fields, note)
    return result


class NoteSender(NoteProgress):
    """Progress whose stages and notes go to the host that asks."""

    def __init__(self, note: Note) -> None:
        self._send_note = note

    def note(self, text: str) -> None:
        self._send_note(text)


_WAKE_INTERVAL_S = 0.2
_Message = TypedDict("_Message", {"do": str, "with": dict[str, Any]})


def main() -> int:
    lines: Queue[str] = Queue()
    signal.signal(signal.SIGUSR1, lambda *_: None)
    _send(
        {"medley": self_command.compute_source_digest(), "host": socket.gethostname(), "epoch_s": time.time()}
    )
    threading.Thread(target=_read_lines, args=(lines,), daemon=True).start()
    while line := lines.get():
        _send(_answer_message(json_shape.parse_object(line) or {}))
    return 0


def _read_lines(lines: "Queue[str]") -> None:
    """Pass on the lines of stdin; its end ends this process, also in the middle of a request."""
    for line in sys.stdin:
        lines.put(line)
    for number in itertools.chain([signal.SIGTERM], itertools.repeat(signal.SIGUSR1)):
        # A signal that comes just as the main thread is about to block does not wake it; the next one does.
        os.kill(os.getpid(), number)
        time.sleep(_WAKE_INTERVAL_S)


def _answer_message(message: dict[str, Any]) -> dict[str, Any]:
    if not json_shape.has_type(message, _Message):
        expected = "one JSON object with `do`, a request, and `with`, a table"
        problem = Problem(
            "this host's medley got no valid request", cause=f"it takes {expected}", fix="medley help"
        )
        return {"problem": problem.table}
    try:
        return {"said": answer_request(message["do"], message["with"], lambda text: _send({"note": text}))}
    except Problem as problem:
        return {"problem": problem.table}


def _send(table: Table) -> None:
    sys.stdout.write(f"{json.dumps(table)}\n")
    sys.stdout.flush()
