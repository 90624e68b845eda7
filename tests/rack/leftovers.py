"""What is on a host: processes, ports, files of medley's state, shared memory; and what came to it since."""

import re
from collections import Counter

from tests.rack.cluster import STATE
from tests.rack.host import Host
from tests.rack.ssh_cluster import busy

RAY_WORKERS = 24_100
"""From here on are the ports of idle workers that Ray itself keeps for a while."""
_OWN = re.compile(r"^\[?ray::IDLE|^sh -c|medley agent|^find |^ss |^ls |^nsenter")
_KEPT = (
    *(".lock", ".starting", ".probing", "events.jsonl", "events.counts", "gathered.json"),
    *("device-history.jsonl", "file token"),
)
"""The ends of names that medley keeps on purpose."""


def inventory(host: Host) -> Counter[str]:
    """Each thing on a host by a name that is the same after a restart."""
    return Counter([*_processes(host), *_ports(host), *_files(host)])


def left(before: Counter[str], after: Counter[str]) -> list[str]:
    return [f"{count} x {each}" if count > 1 else each for each, count in sorted((after - before).items())]


def _processes(host: Host) -> list[str]:
    alive = {line.split()[0]: line.split(maxsplit=1)[1] for line in busy(host)}
    parents = dict(line.split() for line in host.says("ps", "-eo", "pid=,ppid=").splitlines())
    named = []
    for pid, name in alive.items():
        parent = alive.get(parents.get(pid, ""), "")
        of = f" of {_short(parent)}" if "<defunct>" in name else ""
        named.append(f"process {_short(name)}{of}")
    return [each for each in named if not _OWN.search(each.removeprefix("process "))]


def _short(name: str) -> str:
    words = [re.sub(r"[.]\d+$|_[\d_-]{20,}", "", word.rpartition("/")[2]) for word in name.split()]
    return " ".join(words[:5])[:60]


def _ports(host: Host) -> list[str]:
    """Those with a number of our own; the others are picked, and end with their process."""
    lines = host.says("ss", "-Hltn").splitlines()
    numbers = sorted({int(line.split()[3].rpartition(":")[2]) for line in lines})
    return [f"port {each}" for each in numbers if each < 10_000 or 24_000 <= each < RAY_WORKERS]


def _files(host: Host) -> list[str]:
    host.says("mkdir", "-p", STATE)
    found = host.says(
        "find", STATE, "/dev/shm", "-path", f"{STATE}/ray", "-prune", "-o", "-type", "f", "-print"
    )
    names = [line for line in found.splitlines() if "/logs/" not in line]
    kept = [f"file {line.removeprefix(f'{STATE}/')}" for line in names if "/dev/shm" not in line]
    shared = [f"shared memory {re.sub('[0-9a-f]{8,}', '', line)}" for line in names if "/dev/shm" in line]
    return [*(each for each in kept if not _stays(each)), *shared]


def _stays(name: str) -> bool:
    return name.endswith(_KEPT) or " vllm/" in name
