"""Run a watchdog in simulated time, which passes only while all of its threads wait."""

import contextlib
import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from medley.process import Process
from medley.serving import server_records
from medley.serving.watchdog import HostQuery, Watchdog

NEVER = float("inf")
_MODULE = "medley.serving.watchdog"


class _Over(BaseException):
    """The watchdog has ended, and its other threads with it."""


class SimulatedTime(threading.Event):
    """The clock of a watchdog, and the event that ends it; its threads run one at a time."""

    def __init__(self, limit_s: float) -> None:
        super().__init__()
        self.now = 0.0
        self.cause = self.fix = ""
        """Those of the last alarm."""
        self._limit_s = limit_s
        self._end = 0.0
        self._answers: list[float] = []
        self._sleepers: list[tuple[float, int, threading.Semaphore]] = []
        self._closed = False
        self._turn = threading.Semaphore(0)
        """Released by each thread that sleeps or ends, for the watchdog's own thread."""

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Give the watchdog this clock and these threads, and an idle engine without metrics."""
        idle = {"pid": 7, "name": "engine", "state": "S", "cpu_s": 0, "wchan": ""}
        monkeypatch.setattr(f"{_MODULE}.time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(f"{_MODULE}.threading", SimpleNamespace(Thread=self._thread))
        monkeypatch.setattr(f"{_MODULE}.metrics", SimpleNamespace(read_figures=lambda *_: {}))
        monkeypatch.setattr(
            f"{_MODULE}.http_client", SimpleNamespace(send_request=self._answer, bearer=lambda _: {})
        )
        monkeypatch.setattr(
            f"{_MODULE}._sample_this_host", lambda *_, **__: {"at_s": self.now, "processes": [idle]}
        )
        monkeypatch.setattr(f"{_MODULE}._read_power_w", lambda: None)

    def alarm(self, *answers_s: float, hosts: HostQuery = lambda **_: {}) -> float:
        """Return after which time the engine is named; it takes so long for its first answers."""
        self._answers, began, self._closed = list(answers_s), self.now, False
        self._end = began + 10 * self._limit_s
        url, log = "http://127.0.0.1:1/v1", server_records.get_log_file("x")
        dog = Watchdog(url, "tiny", 1, self._limit_s, log, query_hosts=hosts, _ended=self)
        dog._run(object.__new__(Process))  # noqa: SLF001 - on this thread, so that it ends with the test
        ended, self._closed = self.now, True
        self._pass(NEVER)
        self.now = ended
        if dog._problem is None:  # noqa: SLF001 - look() raises it
            return NEVER
        self.cause, self.fix = dog._problem.cause, dog._problem.fix  # noqa: SLF001 - as above
        return ended - began

    def sleep(self, seconds: float) -> None:
        """Let simulated time pass, on whichever thread."""
        if not isinstance(threading.current_thread(), _Turn):
            self._pass(self.now + seconds)
            return
        woken = threading.Semaphore(0)
        self._sleepers.append((self.now + seconds, len(self._sleepers), woken))
        self._turn.release()
        woken.acquire()
        if self._closed:
            raise _Over

    def wait(self, timeout: float | None = None) -> bool:
        """Return whether the watchdog's time is over."""
        self.sleep(timeout or 0)
        return self.now >= self._end

    def _pass(self, until: float) -> None:
        while self._sleepers and min(self._sleepers)[0] <= until:
            self._sleepers.remove(first := min(self._sleepers))
            self.now = max(self.now, first[0])
            first[2].release()
            self._turn.acquire()
        self.now = max(self.now, until)

    def _answer(self, *_: object, **__: object) -> SimpleNamespace:
        self.sleep(self._answers.pop(0) if self._answers else 0)
        return SimpleNamespace(status=200)

    def _thread(self, *, target: Callable[..., None], args: Sequence[Any] = (), daemon: bool) -> "_Turn":
        return _Turn(target, args, self._turn, daemon=daemon)


class _Turn(threading.Thread):
    """A thread that runs until it sleeps or ends, while the one that started it waits."""

    def __init__(
        self, call: Callable[..., None], given: Sequence[Any], turn: threading.Semaphore, *, daemon: bool
    ) -> None:
        super().__init__(daemon=daemon)
        self._call, self._given, self._turn, self._over = call, given, turn, False

    def start(self) -> None:
        super().start()
        self._turn.acquire()

    def run(self) -> None:
        with contextlib.suppress(_Over):
            self._call(*self._given)
        self._over = True
        self._turn.release()

    def is_alive(self) -> bool:
        return not self._over
