"""Tell: how this host is now: its part in the cluster, its units, what it serves, its memory and its wire."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from getpass import getuser
from pathlib import Path
from typing import Any

from medley import limits, membership, serving, spreading, units
from medley.membership import Membership
from medley.problem import Problem


def run(asked: Mapping[str, Any], note: Callable[[str], None]) -> Mapping[str, Any]:
    """A head, which is asked for its `nodes`, says what Ray knows of all."""
    del note
    found = membership.noted()
    return {
        "membership": asdict(found) if found else None,
        "units": [state.table for state in units.states()],
        "servers": [asdict(server) for server in serving.servers()],
        "memory": _memory(),
        "wire": _wire(found.interface) if found else None,
        "low": _low(),
        "nodes": _nodes(found) if found and found.role == "head" and asked["nodes"] else None,
    }


def _nodes(found: Membership) -> list[Mapping[str, Any]] | Mapping[str, str]:
    """Or why they are not known."""
    try:
        return spreading.nodes(found)
    except Problem as problem:
        return problem.table


def _memory() -> Mapping[str, int]:
    """In bytes, as /proc/meminfo has it: on unified memory the GPU's too."""
    table = dict(
        line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    )
    names = {"total_bytes": "MemTotal", "available_bytes": "MemAvailable"}
    return {ours: int(table[theirs].split()[0]) << 10 for ours, theirs in names.items()}


def _wire(interface: str) -> Mapping[str, Any]:
    """Whether it is up, and its speed, as the kernel has it now; a virtual one has none."""
    folder = Path("/sys/class/net") / interface
    said: dict[str, Any] = {"interface": interface, "up": False, "mbit": None}
    with suppress(OSError):
        said["up"] = (folder / "operstate").read_text().strip() in {"up", "unknown"}
    with suppress(OSError, ValueError):
        mbit = int((folder / "speed").read_text())
        said["mbit"] = mbit if mbit > 0 else None
    return said


def _low() -> list[str]:
    """What is in force for a process of our Ray, where that is too little."""
    pid = min(membership.processes(), default=None)
    found = limits.of(pid) if pid is not None else None
    if found is None:
        return []
    rdma = any(Path("/sys/class/infiniband").glob("*"))
    return [
        f"Ray here: {each.what}: {each.cause}; {each.fix}" for each in limits.low(found, getuser(), rdma=rdma)
    ]
