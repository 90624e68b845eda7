"""How fast a model is over two hosts of unlike speed, cut as planned, equally, and otherwise.

    sudo .venv/bin/python -m benchmarks.uneven [ROUNDS]       # 6 servers, about 10 minutes

Two hosts made of namespaces, each with a processor of its own, the second with three tenths of it; the plan
learns that by `medley collective-test`. The splits are served one after the other, planned and equal at both
ends; a figure is the median of all its rounds of 8 streams with 8 tokens each, with the lowest and highest.
"""

import statistics
import sys
import tempfile
from pathlib import Path

from tests.rack.uneven import EQUAL, MADE, uneven

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 3


def main() -> None:
    with tempfile.TemporaryDirectory() as name, uneven(Path(name)) as hosts:
        planned = hosts.planned()
        print(f"planned: {planned}", flush=True)
        rates: dict[str, list[float]] = {}
        for split in order(planned):
            with hosts.serving(split, forced=split != planned):
                rates.setdefault(split, []).extend(hosts.tokens_per_s(ROUNDS))
            print(f"{split:>6}: {' '.join(f'{rate:.1f}' for rate in rates[split])}", flush=True)
    middle = {split: statistics.median(each) for split, each in rates.items()}
    print("\nlayers  tokens/s")
    for split in sorted(rates, key=lambda each: int(each.split(",")[0])):
        mark = " planned" if split == planned else " equal" if split == EQUAL else ""
        low, high = min(rates[split]), max(rates[split])
        print(f"{split:>6}  {middle[split]:.1f} ({low:.1f} to {high:.1f}){mark}")
    print(f"\nplanned/equal: {middle[planned] / middle[EQUAL]:.2f}")
    print(f"planned/best: {middle[planned] / max(middle.values()):.2f}")


def order(planned: str) -> list[str]:
    """Planned and equal first and last, so that a machine whose speed drifts slows both alike."""
    first = int(planned.split(",", maxsplit=1)[0])
    near = [each for each in range(first - 1, first + 2) if 0 < each < MADE.layers]
    splits = dict.fromkeys([planned, EQUAL, *(f"{each},{MADE.layers - each}" for each in near)])
    return [*splits, EQUAL, planned]


if __name__ == "__main__":
    main()
