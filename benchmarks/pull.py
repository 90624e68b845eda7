"""How long a model takes from one host to 1, 2, 4 and 8 others, as ratios to what its bytes take on one wire.

    sudo .venv/bin/python -m benchmarks.pull [ROUNDS] [MB]     # 3 of 500 MB: 15 minutes, 5 GB of memory

Hosts made of namespaces, on wires of 200 Mbit/s each way. `medley` is the transfer behind `medley pull`, from
the start of its programs on all hosts on: the model's hashes are read, all get it, each piece is verified.
`rsync` is `rsync -a` over ssh from the same host to one after the other. They take turns in each round; a
figure is the median of the rounds' ratios, with the lowest and highest. Bytes alone would be 1; headers of
Ethernet, IP and TCP make that 1.046.
"""

import statistics
import sys
import time

from tests.rack import ssh
from tests.rack.init import HOME
from tests.rack.rack import Rack, up
from tests.rack.spec import Link, Spec
from tests.rack.transfers import ROOT, Transfer, model

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 3
SIZE_BYTES = int(sys.argv[2] if len(sys.argv) > 2 else 500) * 1_000_000  # noqa: PLR2004 - MB, if it is given
MBIT = 200
ALONE_S = SIZE_BYTES * 8 / (MBIT * 1e6)
HOSTS = (1, 2, 4, 8)
LIMIT_S = 40 * ALONE_S + 60
Ratios = dict[int, float]


def main() -> None:
    with up(Spec(max(HOSTS) + 1, (Link(mbit=MBIT),), name="pull")) as rack:
        ssh.serve(rack)
        model(rack.hosts[0], SIZE_BYTES)
        ways = {"medley": medley, "rsync": rsync}
        found: dict[str, list[Ratios]] = {way: [] for way in ways}
        for number in range(ROUNDS):
            for way in ways if number % 2 == 0 else reversed(ways):
                found[way].append(ways[way](rack))
                said = "  ".join(f"{count}: {ratio:.2f}" for count, ratio in found[way][-1].items())
                print(f"round {number + 1}, {way:>6}  {said}", flush=True)
    print("\nhosts  medley               rsync, one after another")
    for count in HOSTS:
        print(f"{count:>5}  {shown(found['medley'], count):<20} {shown(found['rsync'], count)}")
    print(f"\nagain: sudo .venv/bin/python -m benchmarks.pull {ROUNDS} {SIZE_BYTES // 1_000_000}")


def shown(rounds: list[Ratios], count: int) -> str:
    ratios = [each[count] for each in rounds]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def medley(rack: Rack) -> Ratios:
    found = {}
    for count in HOSTS:
        clean(rack)
        lacking = rack.hosts[1 : count + 1]
        began = time.monotonic()
        transfer = Transfer(rack.hosts[:1], lacking)
        for host in lacking:
            transfer.runs[host.name].await_("done", LIMIT_S)
        found[count] = (max(transfer.runs[host.name].at("done") for host in lacking) - began) / ALONE_S
        notes = [note for host in lacking for note in transfer.runs[host.name].all("note")]
        transfer.stop()
        assert not notes, notes
    return found


def rsync(rack: Rack) -> Ratios:
    clean(rack)
    found = {}
    began = time.monotonic()
    for count, host in enumerate(rack.hosts[1:], 1):
        rack.hosts[0].says("rsync", "-a", f"{ROOT}/", f"{host.name}:{ROOT}/", limit_s=LIMIT_S)
        if count in HOSTS:
            found[count] = (time.monotonic() - began) / ALONE_S
    return found


def clean(rack: Rack) -> None:
    """No host has it but the first, and that one has not read it yet."""
    for host in rack.hosts[1:]:
        host.says("rm", "-rf", ROOT)
    rack.hosts[0].says("rm", "-rf", f"{HOME}/cache")


if __name__ == "__main__":
    main()
