"""Hold new requests back from a running server, and end it once it has answered those inside."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import httpx

from medley.errors import Problem
from medley.serving.edge import Closed
from medley.serving.edge_process import EdgeProcess, count_open_requests

_LOOK_EVERY_S = 0.2


class Drain:
    """Ends a server by SIGTERM: no new request is let in, and those inside have `limit_s` to be answered.

    A second SIGTERM, SIGHUP or Ctrl-C ends it immediately, as SIGTERM does before the server is ready.
    """

    def __init__(self, edge: EdgeProcess, limit_s: int, say: Callable[[str], None]) -> None:
        self._edge, self._limit_s, self._say = edge, limit_s, say
        self._asked_at: float | None = None
        self._next = 0.0

    @contextmanager
    def on_sigterm(self) -> Iterator[None]:
        """Drain at SIGTERM while the body runs; an engine that ends meanwhile is no failure."""
        self._before = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, self._ask)
        try:
            yield
        except Problem as problem:
            if self._asked_at is not None:
                self._end(f"the engine ended first: {problem.what}")
            raise
        finally:
            signal.signal(signal.SIGTERM, self._before)

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        if self._asked_at is not None or not self._limit_s:
            self._end("ended immediately, as requested")
        self._asked_at = time.monotonic()

    def check(self) -> None:
        """End the server where it is time; call it often."""
        now = time.monotonic()
        if self._asked_at is None or now < self._next:
            return
        if not self._next:
            reason = "the server is ending; running requests are answered"
            self._edge.close("drain", Closed(reason, self._limit_s))
            self._say(f"running requests have {self._limit_s} s; to end it now: medley stop --now")
        self._next = now + _LOOK_EVERY_S
        try:
            count = str(count_open_requests(self._edge.edge.control))
        except httpx.HTTPError:  # Caddy is busy, or is started again
            count = "an unknown number of"
        if count == "0":
            self._end("every request was answered")
        elif now - self._asked_at >= self._limit_s:
            self._end(f"{count} requests were not answered within {self._limit_s} s")

    def _end(self, why: str) -> None:
        self._say(why)
        signal.signal(signal.SIGTERM, self._before)
        signal.raise_signal(signal.SIGTERM)
