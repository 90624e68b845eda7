"""How many compilers may run at once while an engine starts: cores and free memory bound them.

FlashInfer compiles the kernels of a model's experts after the weights are loaded. It calls ninja, which
starts a job for each core and two more unless MAX_JOBS says otherwise. Each job takes 3 to 8 GiB (flashinfer
issue 3634, pull requests 3636, 3665, 3899): the 22 jobs of a DGX Spark exhaust the memory that it shares with
its GPU.
"""

from collections.abc import Iterable, Mapping

from medley.facts import Facts
from medley.layout.engine_memory import GIB, is_unified
from medley.layout.fit import Rank

_EXPERTS_JOB = 8 * GIB
_SYSTEM = 16 * GIB
# An attention kernel is small, but it is compiled once the KV cache has taken what it may.
_ATTENTION_JOB = 3 * GIB


def compile_jobs(ranks: Iterable[Rank], facts: Mapping[str, Facts]) -> int:
    """MAX_JOBS for all hosts of these ranks: that of the host which bears the fewest, at least 1."""
    ours: dict[str, list[Rank]] = {}
    for rank in ranks:
        ours.setdefault(rank.device.host, []).append(rank)
    return min((_of_host(of_host, facts[host]) for host, of_host in ours.items()), default=1)


def _of_host(ranks: list[Rank], facts: Facts) -> int:
    """The memory of a GPU that is not shared with the host leaves the host's alone."""
    shared = [rank for rank in ranks if is_unified(rank.device.kind)]
    weights = sum(rank.weights_bytes for rank in shared)
    engine = sum(rank.device.memory_bytes for rank in shared)
    free = facts.memory.available_bytes
    bounds = (
        (free - weights - _SYSTEM) // _EXPERTS_JOB,
        (free - engine) // _ATTENTION_JOB,
        facts.cpu.threads,
    )
    return max(1, min(bounds))
