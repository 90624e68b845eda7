"""How long `medley explain` takes over a log of 100 MB, and how much memory: python benchmarks/explain.py.

Logs of a server that works, of one that says one error all the time, one whose every line has words of
failures in it, and one whose lines all differ. The budget is 10 s of CPU time each, and 100 MiB beside the
interpreter's own.
"""

import resource
import sys
import time
from collections.abc import Iterator

from medley.explain.diagnosis import explain_logs
from medley.explain.lines import BLOCK_BYTES
from medley.explain.scanned_log import Log

MB = 1_000_000
SIZE = 100 * MB
_LETTERS = str.maketrans("0123456789abcdef", "ghijklmnopqrstuv")
LIMIT_S, LIMIT_MIB = 10.0, 100.0
WORKS = (
    '(APIServer pid=1234) INFO:     10.0.0.7:{port} - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
    "(EngineCore pid=222) INFO 11-22 08:01:{second:02} [loggers.py:127] Engine 000: Avg prompt "
    "throughput: 12.1"
    " tokens/s, Avg generation throughput: 88.3 tokens/s, Running: 3 reqs, Waiting: 0 reqs\n"
)
FAILS = (
    "(EngineCore pid=222) ERROR 11-22 08:01:{second:02} [core.py:710] torch.OutOfMemoryError: CUDA out of"
    " memory. Tried to allocate {port}.00 MiB. GPU 0 has a total capacity of 15.47 GiB\n"
)
LOOKS = (
    "WARNING 11-22 08:01:{second:02} [x.py:{port}] Connection refused, cannot connect, it must not time "
    "out: No"
    " module named 'x{port}', undefined symbol\n"
)
UNLIKE = (
    "INFO 11-22 08:01:{second:02} [logger.py:39] {word} the question is {word} and the answer {word}{word}\n"
)
LOGS = {
    "a server that works": WORKS,
    "one error all the time": FAILS,
    "only look-alikes": LOOKS,
    "all lines differ": UNLIKE,
}


def blocks(text: str) -> Iterator[bytes]:
    made, sent = "", 0
    at = 0
    while sent < SIZE:
        while len(made) < BLOCK_BYTES:
            made += "".join(text.format(**_values(at + more)) for more in range(100))
            at += 100
        yield made.encode()
        sent += len(made)
        made = ""


def _values(at: int) -> dict[str, object]:
    word = f"{at:x}".translate(_LETTERS)
    return {"port": 10_000 + at % 50_000, "second": at % 60, "word": word}


def main() -> int:
    worst = 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name, text in LOGS.items():
        spent = _spent(text)
        began = time.process_time()
        found = explain_logs([Log(name, blocks(text))])
        seconds = time.process_time() - began - spent
        peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        over = seconds > LIMIT_S or peak > LIMIT_MIB
        worst += over
        names = [each.match.failure.name for each in found.problems]
        print(f"{name:24}  {seconds:5.1f} s of {LIMIT_S:.0f}  {peak:5.0f} MiB of {LIMIT_MIB:.0f}  {names}")
    return 1 if worst else 0


def _spent(text: str) -> float:
    """The time that making the log takes by itself."""
    began = time.process_time()
    for _ in blocks(text):
        pass
    return time.process_time() - began


if __name__ == "__main__":
    sys.exit(main())
