"""An agent (`medley agent`) is medley on a host of a cluster, asked by the one where a verb was typed.

One JSON object a line: on stdin {"do": ERRAND, "with": {…}}; on stdout first what this is, then to each
errand any {"note": TEXT} and one {"said": {…}} or {"problem": {…}}. It ends when stdin does.
"""

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from queue import Queue
from typing import Any

from medley import errands, source
from medley.problem import Problem


def main() -> int:
    asked: Queue[str] = Queue()
    _say({"medley": source.digest(), "host": socket.gethostname(), "epoch_s": time.time()})
    threading.Thread(target=_listen, args=(asked,), daemon=True).start()
    while line := asked.get():
        _say(_answer(json.loads(line)))
    return 0


def _listen(asked: "Queue[str]") -> None:
    """An end of stdin ends us, also in the middle of an errand."""
    for line in sys.stdin:
        asked.put(line)
    os.kill(os.getpid(), signal.SIGTERM)


def _answer(asked: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"said": errands.run(asked["do"], asked["with"], lambda text: _say({"note": text}))}
    except Problem as problem:
        return {"problem": problem.table}


def _say(table: Mapping[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps(table)}\n")
    sys.stdout.flush()
