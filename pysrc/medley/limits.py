"""Limits are what the kernel lets a process have, as /proc says of one that runs, not what a unit asks."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from medley.fabric import Finding

_ROWS = {
    "Max locked memory": "locked_bytes",
    "Max open files": "open_files",
    "Max processes": "processes",
}
_FEW_FILES = 65_536
"""Ray's and the engines' own advice; each connection of a rank is one."""


@dataclass(frozen=True)
class Limits:
    """The hard ones, to which a process can raise the others by itself; None is unlimited, or not told.

    `locked_bytes` is the soft one: what pins memory does not raise it.
    """

    locked_bytes: int | None = None
    open_files: int | None = None
    processes: int | None = None


def limits(text: str) -> Limits:
    """Of what /proc/PID/limits says."""
    found: dict[str, int | None] = {}
    for line in text.splitlines():
        for title, name in _ROWS.items():
            if line.startswith(title):
                soft, hard, *_ = line.removeprefix(title).split()
                value = soft if name == "locked_bytes" else hard
                found[name] = int(value) if value.isdecimal() else None
    return Limits(**found)


def of(pid: int) -> Limits | None:
    """Of a process that runs; None where it does not, or is another user's."""
    try:
        return limits(Path(f"/proc/{pid}/limits").read_text(encoding="ascii"))
    except OSError:
        return None


def low(found: Limits, user: str, *, rdma: bool) -> Iterator[Finding]:
    """What will be in the way, and what mends it for all that this user starts from the next login on."""
    if rdma and found.locked_bytes is not None:
        yield Finding(
            f"it may lock {found.locked_bytes >> 10} KiB of memory",
            "RDMA pins what it sends from, so NCCL fails there or goes by TCP",
            _raised(user, "memlock", "unlimited"),
        )
    if found.open_files is not None and found.open_files < _FEW_FILES:
        yield Finding(
            f"it may have {found.open_files} files open",
            f"each connection is one, and a cluster has many: {_FEW_FILES} are advised",
            _raised(user, "nofile", "1048576"),
        )


def _raised(user: str, item: str, value: str) -> str:
    line = f"{user} - {item} {value}"
    return (
        f"echo '{line}' | sudo tee /etc/security/limits.d/medley-{item}.conf, then log in anew; "
        "a unit of medley service install has it already"
    )
