"""Pages are where the host's memory is: in the page cache, in swap, in processes."""

import re
from dataclasses import dataclass

from medley.transcript import Transcript

PAGES = "grep -E '^(MemFree|Buffers|Cached|SReclaimable|Shmem|SwapTotal|SwapFree):' /proc/meminfo"

QUESTIONS = (PAGES,)


@dataclass(frozen=True)
class Pages:
    free_bytes: int
    """Used by nobody, not even as a cache: all that CUDA itself counts on unified memory."""
    cached_bytes: int
    """Of files, which the kernel gives back when it is asked to."""
    swap_bytes: int = 0
    swapped_bytes: int = 0


def pages(answers: Transcript) -> Pages | None:
    if PAGES not in answers:
        return None
    kib = {key: int(value) for key, value in re.findall(r"(\w+):\s+([0-9]{1,15}) kB", answers[PAGES].text)}
    if "MemFree" not in kib:
        return None
    cached = sum(kib.get(key, 0) for key in ("Buffers", "Cached", "SReclaimable")) - kib.get("Shmem", 0)
    swap = kib.get("SwapTotal", 0)
    return Pages(
        kib["MemFree"] << 10, max(0, cached) << 10, swap << 10, (swap - kib.get("SwapFree", swap)) << 10
    )
