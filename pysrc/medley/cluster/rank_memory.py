"""End the ranks on a host of a Ray cluster before its memory runs out."""

from collections.abc import Collection

from medley.cluster import events
from medley.host.memory_pressure import MemoryWatch
from medley.process_identity import ProcessIdentity, end_processes

_MEMORY_PATIENCE_S = 4.0
"""Seconds of critical memory before ranks end: more than the server's own limit, whose Problem says more."""
_END_GRACE_S = 2
_RANK_PREFIXES, _IDLE_NAME = ("ray::", "sglang::"), "ray::IDLE"


class RankMemory:
    """Watches the memory of a host whose ranks Ray started; their server ends when one of them ends."""

    def __init__(self, subject: str) -> None:
        self._subject, self._memory = subject, MemoryWatch(patience_s=_MEMORY_PATIENCE_S)

    def check(self, processes: Collection[ProcessIdentity]) -> None:
        """End the ranks among `processes` after memory was critical for too long; record the reason."""
        if not processes or not self._memory.check():
            return
        ranks = [
            process
            for process in processes
            if process.name.startswith(_RANK_PREFIXES) and process.name != _IDLE_NAME
        ]
        if ranks:
            problem = self._memory.build_problem(f"{len(ranks)} ranks")
            events.record_event("fault", self._subject, f"{problem.what}: {problem.cause}")
            end_processes(ranks, _END_GRACE_S)
