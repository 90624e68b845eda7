"""Run a script once for each replica of this host, each with a plan of its own, until all have ended.

    python replicas.py PLAN... -- SCRIPT WORDS...

A PLAN is a file with a JSON object; its "variables" are added to the environment of that script. The first
one that fails ends the others, and its exit code is that of this program.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

POLL_INTERVAL_S = 0.1
GRACE_S = 10


def main(words: list[str]) -> int:
    separator = words.index("--")
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    processes = [start_script(plan, words[separator + 1 :]) for plan in words[:separator]]
    try:
        while any(process.poll() is None for process in processes):
            if return_codes := [process.returncode for process in processes if process.poll()]:
                return convert_return_code(return_codes[0])
            time.sleep(POLL_INTERVAL_S)
    finally:
        end_scripts(processes)
    return convert_return_code(next((process.returncode for process in processes if process.returncode), 0))


def start_script(plan: str, script: list[str]) -> "subprocess.Popen[bytes]":
    variables = json.loads(Path(plan).read_text(encoding="utf-8"))["variables"]
    return subprocess.Popen(  # noqa: S603 - what medley was asked to run
        [sys.executable, *script], env={**os.environ, **variables, "MEDLEY_PLAN": plan}
    )


def end_scripts(processes: "list[subprocess.Popen[bytes]]") -> None:
    for process in processes:
        if process.poll() is None:
            process.terminate()
    deadline = time.monotonic() + GRACE_S
    for process in processes:
        try:
            process.wait(max(0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()


def convert_return_code(return_code: int) -> int:
    return 128 - return_code if return_code < 0 else return_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
