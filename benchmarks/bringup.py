"""How long `medley up` takes, beside the hand way and beside the least that any way can take.

    python -m benchmarks.bringup [ROUNDS] [HOSTS...]      as root; hosts are namespaces of this machine

Three ways to make the same Ray cluster out of N hosts, each from nothing, interleaved in every round:

ours    `medley up`, typed on the first host
hand    `ray start` on one host after another over ssh, as the guides have it: the head, then each worker
floor   every `ray start` at the same moment, without ssh, checks, or anybody who waits for all to have joined

All three start Ray with the same flags and variables, which `medley up --dry-run` prints. What is printed are
three ratios, of each round, and their medians: hand to ours (how many times faster), ours to floor, and hand
to floor, the most that any way can be faster than by hand.
"""

import json
import os
import re
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

from medley.process import ProcessResult
from tests.rack.cluster import STATE
from tests.rack.host import Host
from tests.rack.rack import up
from tests.rack.spec import Spec
from tests.rack.ssh_cluster import LINKS, SshCluster, busy
from tests.waiting import wait_for

ROUNDS = 5
COUNTS = (1, 2, 4, 8)
LIMIT_S = 180


def main() -> None:
    words = [int(word) for word in sys.argv[1:]]
    rounds, counts = (words[0] if words else ROUNDS), tuple(words[1:]) or COUNTS
    print(
        f"{rounds} rounds; hand/ours: how many times faster than by hand; ours/floor: 1 is the least there is"
    )
    for count in counts:
        print(measured(count, rounds), flush=True)


def measured(count: int, rounds: int) -> str:
    with up(Spec(count, LINKS, name=f"bringup-{os.getpid()}")) as rack:
        desk = SshCluster.of(rack)
        commands = printed(desk)
        ways: dict[str, Callable[[], object]] = {
            "ours": lambda: desk.done("up"),
            "hand": lambda: by_hand(desk, commands),
            "floor": lambda: at_once(desk, commands),
        }
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(rounds + 1):  # the first warms what is cached
            for way in rotated(list(ways), number):
                took = timed(ways[way], desk, way)
                if number:
                    seconds[way].append(took)
        return shown(count, seconds)


def rotated(ways: list[str], number: int) -> list[str]:
    return ways[number % len(ways) :] + ways[: number % len(ways)]


def timed(way: Callable[[], object], desk: SshCluster, name: str) -> float:
    if name != "ours":
        for host in desk.rack.hosts:
            host.says("mkdir", "-p", f"{STATE}/ray")
            host.path(f"{STATE}/token").write_text("0" * 64)
    began = time.monotonic()
    way()
    took = time.monotonic() - began
    clear(desk, name)
    return took


def printed(desk: SshCluster) -> dict[str, str]:
    """The command of each host, less what makes it stay."""
    told = json.loads(desk.done("up", "--dry-run", "--json")[-1])
    return {name: re.sub(r" --block\b", "", each["command"]) for name, each in told.items()}


def by_hand(desk: SshCluster, commands: dict[str, str]) -> None:
    for name, command in commands.items():
        said = desk.head.run(["ssh", "-o", "BatchMode=yes", name, command], limit_s=LIMIT_S)
        assert said.status == 0, said.lines


def at_once(desk: SshCluster, commands: dict[str, str]) -> None:
    running = [desk.rack[name].start(["sh", "-c", command]) for name, command in commands.items()]
    for process in running:
        finished = process.wait(LIMIT_S)
        assert finished == ProcessResult(0, finished.lines if finished else ()), finished


def clear(desk: SshCluster, name: str) -> None:
    """As if nothing had been: the next way starts from nothing too."""
    if name == "ours":
        desk.done("down")
    for host in desk.rack.hosts:
        wait_for(f"nothing runs on {host.name}", partial(ended, host), state=partial(busy, host))
        host.says("rm", "-rf", STATE)


def ended(host: Host) -> bool:
    """Whether nothing runs there any more; what does is killed."""
    pids = [line.split()[0] for line in busy(host)]
    if pids:
        host.run(["kill", "-KILL", *pids])
    return not pids


def shown(count: int, seconds: dict[str, list[float]]) -> str:
    pairs = list(zip(seconds["ours"], seconds["hand"], seconds["floor"], strict=True))
    faster = [hand / ours for ours, hand, _ in pairs]
    over = [ours / floor for ours, _, floor in pairs]
    medians = {way: statistics.median(each) for way, each in seconds.items()}
    most = [hand / floor for _, hand, floor in pairs]
    return (
        f"{count} hosts: hand/ours {spread(faster)}, ours/floor {spread(over)}, hand/floor {spread(most)}; "
        f"of medians {medians['hand'] / medians['ours']:.2f}, {medians['ours'] / medians['floor']:.2f} "
        f"and {medians['hand'] / medians['floor']:.2f}"
    )


def spread(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


if __name__ == "__main__":
    main()
