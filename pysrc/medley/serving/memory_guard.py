"""Stop new requests while memory is low, and end the engine when it is critical (host/memory_pressure.py)."""

from collections.abc import Callable

from medley.cluster import events
from medley.host.memory_pressure import MemoryWatch
from medley.serving.edge import EdgeClosure
from medley.serving.edge_process import EdgeProcess


class MemoryGuard:
    """Checks the memory of this host, and the reports of a model's other hosts."""

    def __init__(
        self,
        subject: str,
        edge: EdgeProcess,
        print_line: Callable[[str], None],
        find_low_host: Callable[[], str | None],
    ) -> None:
        """`find_low_host` returns the figures of another host whose memory is low."""
        self._subject, self._edge, self._print_line, self._find_low_host = (
            subject,
            edge,
            print_line,
            find_low_host,
        )
        self._memory, self._is_closed = MemoryWatch(), False
        self.is_ready = False
        """Whether the server is ready; before, the edge is closed anyway."""

    def check(self) -> None:
        """Raise a Problem if this host's memory is about to run out; call it often."""
        if self._memory.check():
            raise self._memory.build_problem(self._subject)
        low = self._memory.low or self._find_low_host()
        if not self.is_ready or bool(low) == self._is_closed:
            return
        self._is_closed = bool(low)
        if low:
            self._edge.refuse("memory", EdgeClosure(f"memory is low: {low}"))
        else:
            self._edge.admit("memory")
        text = f"memory is low, new requests get 503: {low}" if low else "memory recovered"
        self._print_line(text)
        events.record_event("fault" if low else "recovery", self._subject, text)
