"""An agent (`medley agent`) is medley on a host of a cluster, asked by the one where a verb was typed.

One JSON object a line: on stdin {"do": ERRAND, "with": {…}}; on stdout first what this is, then to each
errand any {"note": TEXT} and one {"said": {…}} or {"problem": {…}}. It ends when stdin does.
"""

import itertools
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from queue import Queue
from typing import Any, TypedDict

from medley import errands, shaped, source
from medley.problem import Problem

_WAKE_EVERY_S = 0.2


_Asked = TypedDict("_Asked", {"do": str, "with": dict[str, Any]})


def main() -> int:
    asked: Queue[str] = Queue()
    signal.signal(signal.SIGUSR1, lambda *_: None)
    _say({"medley": source.digest(), "host": socket.gethostname(), "epoch_s": time.time()})
    threading.Thread(target=_listen, args=(asked,), daemon=True).start()
    while line := asked.get():
        _say(_answer(shaped.table(line) or {}))
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
    if not shaped.fits(asked, _Asked):
        said = "one JSON object with `do`, an errand, and `with`, a table"
        problem = Problem(
            "medley here was not asked for an errand", cause=f"it takes {said}", fix="medley help"
        )
        return {"problem": problem.table}
    try:
        return {"said": errands.run(asked["do"], asked["with"], lambda text: _say({"note": text}))}
    except Problem as problem:
        return {"problem": problem.table}


def _say(table: Mapping[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps(table)}\n")
    sys.stdout.flush()
