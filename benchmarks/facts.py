"""What asking this host and reading its answers costs, as a ratio to the bare commands that are asked.

    .venv/bin/python benchmarks/facts.py            # 30 pairs, about a quarter of a minute

`asked` is process.ask_host and facts.facts: each question under its limit, and the transcript is parsed.
`bare` is one shell that runs the same commands one after the other and throws away what they say. Both start
from this process, so that Python's own start is in neither. They take turns, so that a machine whose speed
drifts slows them alike; the figure is the median of the pairs' ratios, with the lowest and the highest.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from medley import process
from medley.host import facts

PAIRS = int(sys.argv[1]) if len(sys.argv) > 1 else 30

# In C's locale like the other, for loading one takes time.
BARE = "export LC_ALL=C\n" + "".join(
    f"( {question}\n) >/dev/null 2>&1 </dev/null\n" for question in facts.QUESTIONS
)


def main() -> None:
    for run in (asked, bare):
        run()  # the file cache
    pairs = [(seconds(asked), seconds(bare)) for _ in range(PAIRS)]
    ratios = sorted(one / other for one, other in pairs)
    whole = statistics.median(one for one, _ in pairs)
    print(f"asked/bare: {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
    print(f"asked: {whole * 1000:.0f} ms for {len(facts.QUESTIONS)} questions, median of {PAIRS}")
    print(f"again: .venv/bin/python benchmarks/facts.py {PAIRS}")


def asked() -> None:
    facts.read_facts(process.ask_host(facts.QUESTIONS))


def bare() -> None:
    subprocess.run(["sh", "-c", BARE], check=False)


def seconds(run: Callable[[], None]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
