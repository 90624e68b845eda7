"""Run a script once for each replica of this host, each with a plan of its own, until all have ended.

    python replicas.py PLAN... -- SCRIPT WORDS...

A PLAN is a file with a JSON object; its "variables" are added to the environment of that script. The first
one that fails ends the others, and its exit code is ours.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

LOOK_EVERY_S = 0.1
GRACE_S = 10


def main(words: list[str]) -> int:
    at = words.index("--")
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    started = [start(plan, words[at + 1 :]) for plan in words[:at]]
    try:
        while any(each.poll() is None for each in started):
            if failed := [each.returncode for each in started if each.poll()]:
                return status(failed[0])
            time.sleep(LOOK_EVERY_S)
    finally:
        end(started)
    return status(next((each.returncode for each in started if each.returncode), 0))


def start(plan: str, script: list[str]) -> "subprocess.Popen[bytes]":
    variables = json.loads(Path(plan).read_text(encoding="utf-8"))["variables"]
    return subprocess.Popen(  # noqa: S603 - what medley was asked to run
        [sys.executable, *script], env={**os.environ, **variables, "MEDLEY_PLAN": plan}
    )


def end(started: "list[subprocess.Popen[bytes]]") -> None:
    for each in started:
        if each.poll() is None:
            each.terminate()
    deadline = time.monotonic() + GRACE_S
    for each in started:
        try:
            each.wait(max(0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            each.kill()


def status(code: int) -> int:
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
