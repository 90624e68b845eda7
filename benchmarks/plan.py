"""What `medley plan` costs, whole processes: seconds and memory against their ceilings; exit 1 above one.

    .venv/bin/python benchmarks/plan.py            # 5 rounds, about half a minute

Recordings of two hosts: 1.5 s and 150 MB. 64 hosts of two kinds, and of four: 5 s. The least of the rounds
counts, for what else runs on a machine can only add to it.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 5
HOSTS = Path(__file__).parent.parent / "tests" / "host" / "recorded"
PAIR = [word for half in "ab" for word in ("--from", str(HOSTS / f"spark-pair-{half}.txt"))]
CASES = (
    ("two recordings", PAIR, 1.5),
    ("64 hosts, two kinds", ["--hosts", "spark:32,thor:32"], 5.0),
    ("64 hosts, four kinds", ["--hosts", "spark:16,thor:16,orin:16,rtx:16"], 5.0),
)
MOST_MB = 150


def cost(words: list[str]) -> tuple[float, float]:
    """Seconds, and the most memory that it held, in MB."""
    began = time.monotonic()
    command = [sys.executable, "-m", "medley", "plan", "gpt-oss-120b", *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{words}: exit code {process.returncode}")
    return time.monotonic() - began, used.ru_maxrss / 1000


def main() -> int:
    over = False
    for name, words, limit_s in CASES:
        rounds = [cost(words) for _ in range(ROUNDS)]
        least_s, most_mb = min(each for each, _ in rounds), max(each for _, each in rounds)
        slowest = max(each for each, _ in rounds)
        over = over or least_s > limit_s or most_mb > MOST_MB
        print(
            f"{name:22} {least_s:.2f} to {slowest:.2f} s (ceiling {limit_s}), "
            f"{most_mb:.0f} MB (ceiling {MOST_MB})"
        )
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
