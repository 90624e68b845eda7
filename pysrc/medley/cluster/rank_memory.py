"""End the ranks on a host of a Ray cluster before its memory runs out."""

from collections.abc import Collection

from medley.cluster import events
from medley.host.memory_pressure import MemoryWatch
from medley.process_identity import Identity, end_processes

_PATIENCE_S = 4.0
"""Longer than the server's own on the head, whose Problem says more."""
_GRACE_S = 2
_RANK_PREFIXES, _IDLE_NAME = ("ray::", "sglang::"), "ray::IDLE"


class RankMemory:
    """A watch on the memory of a host whose ranks Ray started; their server ends when one of them does."""

    def __init__(self, subject: str) -> None:
        self._subject, self._watch = subject, MemoryWatch(patience_s=_PATIENCE_S)

    def check(self, processes: Collection[Identity]) -> None:
        """End those of `processes` that are ranks where memory has been critical; keep the reason."""
        if not processes or not self._watch.look():
            return
        ranks = [
            process
            for process in processes
            if process.name.startswith(_RANK_PREFIXES) and process.name != _IDLE_NAME
        ]
        if ranks:
            problem = self._watch.problem(f"{len(ranks)} ranks")
            events.record_event("fault", self._subject, f"{problem.what}: {problem.cause}")
            end_processes(ranks, _GRACE_S)
