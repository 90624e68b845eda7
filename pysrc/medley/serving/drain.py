"""Hold new requests back from a running server, and end it once it has answered those inside."""

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import httpx

from medley import serving, storage
from medley.errors import Problem
from medley.serving import api

_LOOK_EVERY_S = 0.2
_LOOKS = 3


class Gate:
    """The file that payload/api_guard.py looks for: while it exists, new requests get 503."""

    def __init__(self, port: int) -> None:
        self._file, self._reasons = serving.gate_file(port), dict[str, str]()

    def hold(self, by: str, reason: str | None, retry_after_s: int = 10) -> None:
        """Close it for a reason of one's own, or take that back with None; it opens without reasons."""
        self._reasons.pop(by, None)
        if reason is not None:
            self._reasons[by] = reason
        if self._reasons:
            last = next(reversed(self._reasons.values()))
            storage.write(self._file, json.dumps({"reason": last, "retry_after_s": retry_after_s}))
        else:
            self._file.unlink(missing_ok=True)


@contextmanager
def gated(port: int) -> Iterator[Gate]:
    """Yield the gate of a port, open, whatever a process that was killed left."""
    gate = Gate(port)
    gate.hold("", None)
    try:
        yield gate
    finally:
        Gate(port).hold("", None)


class Drain:
    """Ends a server by SIGTERM: no new request is let in, and those inside have `limit_s` to be answered.

    A second SIGTERM, SIGHUP or Ctrl-C ends it immediately, as SIGTERM does before the server is ready.
    """

    def __init__(
        self, url: str, limit_s: int, gate: Gate, say: Callable[[str], None], *, servers: int = 1
    ) -> None:
        """`servers`: processes that answer; each counts its own requests, and any of them may be asked."""
        self._url, self._limit_s, self._gate, self._say = url, limit_s, gate, say
        self._looks = _LOOKS * servers
        self._asked_at: float | None = None
        self._next, self._quiet = 0.0, 0

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

    def look(self) -> None:
        """End the server where it is time; call it often."""
        now = time.monotonic()
        if self._asked_at is None or now < self._next:
            return
        if not self._next:
            reason = "the server is ending; running requests are answered"
            self._gate.hold("drain", reason, retry_after_s=self._limit_s)
            self._say(f"running requests have {self._limit_s} s; to end it now: medley stop --now")
        self._next = now + _LOOK_EVERY_S
        try:
            count = api.open_requests(self._url)
        except httpx.HTTPError:  # it is busy
            count = 1
        self._quiet = 0 if count else self._quiet + 1
        if count is None or self._quiet >= self._looks:
            self._end("every request was answered" if count == 0 else "its server counts no requests")
        elif now - self._asked_at >= self._limit_s:
            self._end(f"{count} requests were not answered within {self._limit_s} s")

    def _end(self, why: str) -> None:
        self._say(why)
        signal.signal(signal.SIGTERM, self._before)
        signal.raise_signal(signal.SIGTERM)
