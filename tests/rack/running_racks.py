"""Which racks there are, by what /proc says: the processes are the only register, so it is never stale."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.rack.spec import Spec

PROC = Path("/proc")
KEEPER = "tests.rack.supervisor"


@dataclass(frozen=True)
class Keeper:
    """A running keeper, and the rack it was told to hold."""

    pid: int
    spec: Spec

    def first_processes(self) -> dict[str, int]:
        """The pid, as seen from here, of process 1 of each host that is alive."""
        found = {}
        for child in children(self.pid):
            for first in children(child):
                words = argv(first)
                if words[-2:-1] and words[-2].endswith("init.py"):
                    found[json.loads(words[-1])["name"]] = first
        return found


def keepers() -> Iterator[Keeper]:
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            words = argv(int(entry.name))
            if words[-3:-1] == ["-m", KEEPER]:
                yield Keeper(int(entry.name), Spec.from_json(words[-1]))


def first_process(unshare: int) -> int:
    """The one child of unshare(1), which is process 1 in there."""
    (first,) = children(unshare)
    return first


def children(pid: int) -> list[int]:
    try:
        return [int(word) for word in (PROC / f"{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def argv(pid: int) -> list[str]:
    try:
        return (PROC / f"{pid}/cmdline").read_text(errors="replace").split("\0")[:-1]
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []
