"""Tokens per second of a model that medley serves, over the engine's own when its command is typed by hand.

    .venv/bin/python benchmarks/overhead.py [PAIRS] [-- SERVE'S WORDS]       # 7 pairs: about 10 minutes

Each pair starts both on this machine, one after the other, in turns: medley first, then the raw engine first.
The raw one is what `serve --dry-run --json` prints, argv and environment, started without medley. Each has
16 streams of 64 tokens, once to warm up and ROUNDS times more; a pair's ratio is of the medians. The interval
is that of the mean of the ratios' logarithms (95 %, Student's t).
"""

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

PAIRS = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdecimal() else 7
WORDS = sys.argv[sys.argv.index("--") + 1 :] if "--" in sys.argv else []
MEDLEY = (sys.executable, "-m", "medley", "serve", "demo", "--port", "8765", *WORDS)
URL = "http://127.0.0.1:8765/v1/completions"
STREAMS, TOKENS, ROUNDS = 16, 64, 5
READY_LIMIT_S = 300
# Student's t at 97.5 %, by degrees of freedom.
T = {6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228, 11: 2.201, 12: 2.179, 13: 2.160, 14: 2.145}


def main() -> None:
    if PAIRS - 1 not in T:
        sys.exit(f"between {min(T) + 1} and {max(T) + 1} pairs")
    raw = json.loads(subprocess.check_output([*MEDLEY, "--dry-run", "--json"], stderr=subprocess.DEVNULL))
    kept = {name: value for name, value in os.environ.items() if name not in raw["unset"]}
    ways = {"medley": (MEDLEY, dict(os.environ)), "raw": (raw["argv"], kept | raw["env"])}
    print(raw["command"])
    logs = []
    for pair in range(PAIRS):
        order = ("medley", "raw") if pair % 2 == 0 else ("raw", "medley")
        rate = {way: measured(*ways[way]) for way in order}
        logs.append(math.log(rate["medley"] / rate["raw"]))
        print(
            f"pair {pair + 1}: medley {rate['medley']:.1f} tokens/s, raw {rate['raw']:.1f}, "
            f"ratio {math.exp(logs[-1]):.3f}",
            flush=True,
        )
    middle, error = statistics.mean(logs), statistics.stdev(logs) / math.sqrt(PAIRS)
    low, high = (math.exp(middle + sign * T[PAIRS - 1] * error) for sign in (-1, 1))
    print(f"\nmedley/raw: {math.exp(middle):.3f} ({low:.3f} to {high:.3f}), {PAIRS} pairs")


def measured(argv: tuple[str, ...], env: dict[str, str]) -> float:
    """Tokens per second: the median of all rounds but the first."""
    with serving(argv, env):
        return statistics.median([rate() for _ in range(ROUNDS + 1)][1:])


@contextmanager
def serving(argv: tuple[str, ...], env: dict[str, str]) -> Iterator[None]:
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(argv, env=env, stdout=log, stderr=log, process_group=0)
        try:
            deadline = time.monotonic() + READY_LIMIT_S
            while not answers():
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    sys.exit(log.read().decode(errors="replace")[-2000:])
                time.sleep(0.5)
            yield
        finally:
            process.terminate()
            process.wait(60)


def answers() -> bool:
    try:
        return tokens(0) > 0
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def rate() -> float:
    began = time.monotonic()
    with ThreadPoolExecutor(STREAMS) as pool:
        return sum(pool.map(tokens, range(STREAMS))) / (time.monotonic() - began)


def tokens(number: int) -> int:
    body = {"model": "demo", "prompt": f"Tell me {number}", "max_tokens": TOKENS, "temperature": 0}
    data = json.dumps(body | {"ignore_eos": True}).encode()
    request = urllib.request.Request(URL, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return int(json.load(answer)["usage"]["completion_tokens"])


if __name__ == "__main__":
    main()
