"""Tokens a second as `medley bench` says, over those of the engine's own benchmark typed by hand.

    sudo .venv/bin/python -m benchmarks.bench [PAIRS]       # 5 pairs: about 6 minutes

The demo model over two hosts made of namespaces; each pair has both, one after the other, in turns. It is
right where the ratio of the medians lies within the spread of the runs by hand.
"""

import sys

from tests.rack.bench_pairs import AT_ONCE, INPUT, OUTPUT, REQUESTS, benched

PAIRS = int(sys.argv[1]) if len(sys.argv) > 1 else 5


def main() -> None:
    print(f"sudo .venv/bin/python -m benchmarks.bench {PAIRS}")
    print(f"{REQUESTS} requests, {AT_ONCE} at once, {INPUT} tokens in and {OUTPUT} out")
    with benched() as served:
        found = served.pairs(PAIRS, lambda line: print(line, flush=True))
    low, high = found.spread
    print(f"\nmedley bench/by hand: {found.ratio:.3f}; by hand {low:.3f} to {high:.3f} of its median")
    print("within" if found.within else "NOT within")
    sys.exit(not found.within)


if __name__ == "__main__":
    main()
