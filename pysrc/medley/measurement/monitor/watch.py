"""Watch all hosts: sample each at its own pace, and keep what was seen last."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from medley.cluster.remote import Remote
from medley.errors import Problem
from medley.json_shape import fits
from medley.measurement.monitor import Sample
from medley.measurement.monitor.rates import Rates, rates

_ANSWER_LIMIT_S = 6
_RETRY_S = (1, 2, 5)
"""Between tries to reach one that does not answer."""
_END_LIMIT_S = 0.3
_CLOSE_LIMIT_S = 2
_LEAST_S = 0.4
"""Rates over less would be noise."""
Connect = Callable[[], Remote]


@dataclass(frozen=True)
class Seen:
    rates: Rates | None = None
    sample: Sample | None = None
    age_s: float | None = None
    problem: Problem | None = None
    """Why it does not answer now."""

    @property
    def table(self) -> dict[str, Any]:
        return {
            "answers": self.problem is None and self.sample is not None,
            "age_s": self.age_s,
            "problem": self.problem.table if self.problem else None,
            **(asdict(self.rates) if self.rates else {}),
        }


@dataclass
class _Host:
    first: Sample | None = None
    before: Sample | None = None
    last: Sample | None = None
    at: float = 0
    problem: Problem | None = None

    def seen(self, now: float) -> Seen:
        if self.last is None:
            return Seen(problem=self.problem)
        found = rates(self.first, self.before, self.last) if self.first and self.before else None
        return Seen(found, self.last, now - self.at, self.problem)


class Watching:
    def __init__(self, connects: Mapping[str, Connect], every_s: float) -> None:
        self._every_s = every_s
        self._hosts = {name: _Host() for name in connects}
        self._remotes: dict[str, Remote] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._asked_at = 0.0
        self._whole = False
        self._threads = [
            threading.Thread(target=self._watch, args=each, daemon=True) for each in connects.items()
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close at once, even if a host does not answer; threads end what they have begun."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            for remote in self._remotes.values():
                remote.abandon()
        deadline = time.monotonic() + _CLOSE_LIMIT_S
        for thread in self._threads:
            thread.join(max(0, deadline - time.monotonic()))

    def seen(self) -> dict[str, Seen]:
        now = time.monotonic()
        with self._changed:
            return {name: host.seen(now) for name, host in self._hosts.items()}

    def settled(self, limit_s: float) -> dict[str, Seen]:
        """Wait until each host has rates or a problem, for `limit_s` at most."""
        hosts = self._hosts.values()
        with self._changed:
            self._changed.wait_for(lambda: all(host.before or host.problem for host in hosts), limit_s)
        return self.seen()

    def fresh(self, limit_s: float) -> dict[str, Seen]:
        """Sample all answering hosts now, with the engines' metrics unchanged."""
        with self._changed:
            asked_at = self._asked_at = time.monotonic()
            self._whole = True
            self._changed.notify_all()
            asked = [host for host in self._hosts.values() if not host.problem]
            self._changed.wait_for(lambda: all(host.problem or host.at > asked_at for host in asked), limit_s)
            self._whole = False
        return self.seen()

    def _watch(self, name: str, connect: Connect) -> None:
        failures = 0
        while not self._closed:
            try:
                for _ in self._samples(name, connect):
                    failures = 0
            except Problem as problem:
                with self._changed:
                    self._hosts[name].problem = problem
                    self._changed.notify_all()
            self._wait(_RETRY_S[min(failures, len(_RETRY_S) - 1)])
            failures += 1

    def _samples(self, name: str, connect: Connect) -> Iterator[None]:
        remote = connect()
        try:
            with self._changed:
                self._remotes[name] = remote
                if self._closed:
                    return
            remote.greeted()
            while not self._closed:
                began = time.monotonic()
                asked = {"every_s": self._every_s, "whole": self._whole}
                self._take(name, sampled(name, remote.ask("sample", asked, _ANSWER_LIMIT_S)), began)
                yield
                self._wait(self._every_s - (time.monotonic() - began), began)
        finally:
            with self._changed:
                self._remotes.pop(name, None)
            remote.close(_END_LIMIT_S)

    def _take(self, name: str, sample: Sample, began: float) -> None:
        with self._changed:
            host = self._hosts[name]
            if host.last and sample.at_s < host.last.at_s:  # the host was restarted
                host.first = host.before = host.last = None
            host.first = host.first or sample
            if host.last and sample.at_s - host.last.at_s >= _LEAST_S:
                host.before = host.last
            host.last, host.at, host.problem = sample, began, None
            self._changed.notify_all()

    def _wait(self, seconds: float, since: float | None = None) -> None:
        def over() -> bool:
            return self._closed or (since is not None and self._asked_at > since)

        with self._changed:
            self._changed.wait_for(over, max(0, seconds))


def table(seen: Mapping[str, Seen]) -> dict[str, Any]:
    return {"epoch_s": time.time(), "hosts": {name: each.table for name, each in seen.items()}}


def sampled(name: str, answer: Mapping[str, Any]) -> Sample:
    if not fits(answer, Sample):
        raise Problem(
            f"{name} tells its figures in another way",
            cause="its medley is older or newer than this one",
            fix="use the same medley on all hosts: git pull, or the same flake",
        )
    return Sample.of(answer)
