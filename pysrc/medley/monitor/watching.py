"""Watching is asking every host for samples, each at its own pace; who does not answer holds up nobody."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from medley.monitor.rates import Rates, rates
from medley.monitor.sample import Sample
from medley.problem import Problem
from medley.remote import Remote
from medley.shaped import fits

ANSWER_LIMIT_S = 6
_AGAIN_S = (1, 2, 5)
"""Between tries to reach one that does not answer."""
_END_LIMIT_S = 0.3
_CLOSE_LIMIT_S = 2
_LEAST_S = 0.4
"""Rates over less would be noise."""
Connect = Callable[[], Remote]


@dataclass(frozen=True)
class Seen:
    """What is known of a host."""

    rates: Rates | None = None
    sample: Sample | None = None
    age_s: float | None = None
    """Of both."""
    problem: Problem | None = None
    """Why it does not answer now."""

    @property
    def table(self) -> dict[str, Any]:
        return {
            "answers": self.problem is None and self.sample is not None,
            "age_s": self.age_s,
            "problem": self.problem.table if self.problem else None,
            **(self.rates.table if self.rates else {}),
        }


@dataclass
class _Host:
    first: Sample | None = None
    before: Sample | None = None
    last: Sample | None = None
    at: float = 0
    problem: Problem | None = None


class Watching:
    """Until it is closed. `connects` says of each host how it is reached."""

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
        self.close()

    def close(self) -> None:
        """At once, also where a host does not answer: each thread ends what it has begun."""
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
            return {name: _seen(host, now) for name, host in self._hosts.items()}

    def settled(self, limit_s: float) -> dict[str, Seen]:
        """Once each host has rates, or has not answered; as it is when the limit is over."""
        with self._changed:
            self._changed.wait_for(
                lambda: all(host.before or host.problem for host in self._hosts.values()), limit_s
            )
        return self.seen()

    def fresh(self, limit_s: float) -> dict[str, Seen]:
        """Asked for now, with engines' metrics as they are, of those that answer."""
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
            self._wait(_AGAIN_S[min(failures, len(_AGAIN_S) - 1)])
            failures += 1

    def _samples(self, name: str, connect: Connect) -> Any:  # noqa: ANN401 - a generator of nothing
        remote = connect()
        try:
            with self._changed:
                self._remotes[name] = remote
                if self._closed:
                    return
            remote.greeted()
            while not self._closed:
                began = time.monotonic()
                told = remote.ask("sample", {"every_s": self._every_s, "whole": self._whole}, ANSWER_LIMIT_S)
                self._take(name, sampled(name, told), began)
                yield
                self._wait(self._every_s - (time.monotonic() - began), began)
        finally:
            with self._changed:
                self._remotes.pop(name, None)
            remote.close(_END_LIMIT_S)

    def _take(self, name: str, sample: Sample, began: float) -> None:
        with self._changed:
            host = self._hosts[name]
            restarted = host.last is not None and sample.at_s < host.last.at_s
            if restarted:
                host.first = host.before = host.last = None
            host.first = host.first or sample
            if host.last and sample.at_s - host.last.at_s >= _LEAST_S:
                host.before = host.last
            host.last, host.at, host.problem = sample, began, None
            self._changed.notify_all()

    def _wait(self, seconds: float, since: float | None = None) -> None:
        """Or until somebody wants to know now, or it is closed."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or (since is not None and self._asked_at > since), max(0, seconds)
            )


def table(seen: Mapping[str, Seen]) -> dict[str, Any]:
    """As programs read it."""
    return {"epoch_s": time.time(), "hosts": {name: each.table for name, each in seen.items()}}


def _seen(host: _Host, now: float) -> Seen:
    if host.last is None:
        return Seen(problem=host.problem)
    found = rates(host.first, host.before, host.last) if host.first and host.before else None
    return Seen(found, host.last, now - host.at, host.problem)


def sampled(name: str, told: Mapping[str, Any]) -> Sample:
    if not fits(told, Sample):
        raise Problem(
            f"{name} tells its figures in another way",
            cause="its medley is older or newer than this one",
            fix="use the same medley on all hosts: git pull, or the same flake",
        )
    return Sample.of(told)
