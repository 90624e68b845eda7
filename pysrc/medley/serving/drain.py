"""Refuse new requests to a running server, and end it once it has answered those that run."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import httpx

from medley.errors import Problem
from medley.serving.edge import EdgeClosure
from medley.serving.edge_process import EdgeProcess, count_open_requests

_POLL_INTERVAL_S = 0.2


class Drain:
    """Ends a server at SIGTERM: new requests are refused, and running ones have `limit_s` to be answered.

    A second SIGTERM, SIGHUP or Ctrl-C ends it immediately, as SIGTERM does before the server is ready.
    """

    def __init__(self, edge: EdgeProcess, limit_s: int, print_line: Callable[[str], None]) -> None:
        self._edge, self._limit_s, self._print_line = edge, limit_s, print_line
        self._started_at: float | None = None
        self._next_check_at = 0.0

    @contextmanager
    def drain_on_sigterm(self) -> Iterator[None]:
        """Drain at SIGTERM while the body runs; an engine that ends during the drain is not a failure."""
        self._old_handler = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, self._handle_sigterm)
        try:
            yield
        except Problem as problem:
            if self._started_at is not None:
                self._end_server(f"the engine ended first: {problem.what}")
            raise
        finally:
            signal.signal(signal.SIGTERM, self._old_handler)

    def _handle_sigterm(self, _number: int, _frame: FrameType | None) -> None:
        if self._started_at is not None or not self._limit_s:
            self._end_server("ended immediately, as requested")
        self._started_at = time.monotonic()

    def check(self) -> None:
        """End the server once it is drained or the limit is over; call it often."""
        now = time.monotonic()
        if self._started_at is None or now < self._next_check_at:
            return
        if not self._next_check_at:
            reason = "the server is ending; running requests are answered"
            self._edge.refuse("drain", EdgeClosure(reason, self._limit_s))
            self._print_line(f"running requests have {self._limit_s} s; to end it now: medley stop --now")
        self._next_check_at = now + _POLL_INTERVAL_S
        try:
            count = str(count_open_requests(self._edge.settings.control_socket))
        except httpx.HTTPError:  # Caddy is busy, or restarts
            count = "an unknown number of"
        if count == "0":
            self._end_server("every request was answered")
        elif now - self._started_at >= self._limit_s:
            self._end_server(f"{count} requests were not answered within {self._limit_s} s")

    def _end_server(self, reason: str) -> None:
        self._print_line(reason)
        signal.signal(signal.SIGTERM, self._old_handler)
        signal.raise_signal(signal.SIGTERM)
