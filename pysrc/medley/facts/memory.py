"""The host's memory, which is its GPU's too where the two share it."""

import re
from dataclasses import dataclass

from medley.facts.answers import lines, number, required
from medley.transcript import Transcript

MEMINFO = "grep -E '^(MemTotal|MemAvailable):' /proc/meminfo"
# Processes of one engine talk through it, and a container's default of 64 MiB starves them.
SHM = "df -kP /dev/shm"

QUESTIONS = (MEMINFO, SHM)

_FIELD = re.compile(r"(?<!\w)(\w{1,40}):\s{1,40}([0-9]{1,15}) kB")


@dataclass(frozen=True)
class Memory:
    total_bytes: int
    available_bytes: int
    """What can be had without swapping; counts the page cache, which CUDA's own figure does not."""
    shm_bytes: int | None = None
    """The size of /dev/shm."""


def memory(answers: Transcript) -> Memory:
    kib = {key: int(value) for key, value in _FIELD.findall(required(answers, MEMINFO))}
    total = kib.get("MemTotal", 0)
    return Memory(
        total_bytes=total * 1024,
        available_bytes=kib.get("MemAvailable", 0) * 1024,
        shm_bytes=_shm_bytes(lines(answers, SHM)),
    )


def _shm_bytes(df: tuple[str, ...]) -> int | None:
    """From df's POSIX format: device, 1024-blocks, used, available, capacity, mount point."""
    fields = df[1].split() if len(df) > 1 else []
    kib = number(fields[1]) if len(fields) > 1 else None
    return kib * 1024 if kib is not None else None
