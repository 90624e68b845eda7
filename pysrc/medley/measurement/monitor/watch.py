"""Watch all hosts: sample each at its own pace, and store its last samples."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from medley.cluster.remote import Remote
from medley.errors import Problem
from medley.json_shape import has_type
from medley.measurement.monitor.rates import Rates, compute_rates
from medley.measurement.monitor.sample import Sample
from medley.values import Value

_ANSWER_LIMIT_S = 6
_RETRY_S = (1, 2, 5)
"""The pauses between attempts to reach a host that does not answer."""
_END_LIMIT_S = 0.3
_CLOSE_LIMIT_S = 2
_MIN_RATE_S = 0.4
"""The shortest time between two samples for rates; in less the noise is too high."""
Connect = Callable[[], Remote]


class HostStatus(Value):
    """The last sample and rates of a host, and why it does not answer, if it does not."""

    rates: Rates | None = None
    sample: Sample | None = None
    age_s: float | None = None
    problem: Problem | None = None
    """The reason why it does not answer now."""

    @property
    def table(self) -> dict[str, Any]:
        """The status for JSON."""
        return {
            "answers": self.problem is None and self.sample is not None,
            "age_s": self.age_s,
            "problem": self.problem.table if self.problem else None,
            **(self.rates.to_table() if self.rates else {}),
        }


@dataclass
class _SampledHost:
    first: Sample | None = None
    previous: Sample | None = None
    last: Sample | None = None
    request_time: float = 0
    """The monotonic time at which the last sample was requested."""
    problem: Problem | None = None

    def build_status(self, time_s: float) -> HostStatus:
        if self.last is None:
            return HostStatus(problem=self.problem)
        rates = None
        if self.first and self.previous:
            rates = compute_rates(self.first, self.previous, self.last)
        return HostStatus(rates, self.last, time_s - self.request_time, self.problem)


class FleetWatch:
    """Sampler of several hosts: inside `with`, one thread samples each host at an interval."""

    def __init__(self, connects: Mapping[str, Connect], interval_s: float) -> None:
        self._interval_s = interval_s
        self._hosts = {name: _SampledHost() for name in connects}
        self._remotes: dict[str, Remote] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._sample_now_time = 0.0
        self._include_metrics = False
        self._threads = [
            threading.Thread(target=self._watch, args=host, daemon=True) for host in connects.items()
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close immediately, even if a host does not answer; threads finish their current step."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            for remote in self._remotes.values():
                remote.terminate()
        deadline = time.monotonic() + _CLOSE_LIMIT_S
        for thread in self._threads:
            thread.join(max(0, deadline - time.monotonic()))

    def read_statuses(self) -> dict[str, HostStatus]:
        """Return the status of each host by name, without a wait."""
        time_s = time.monotonic()
        with self._changed:
            return {name: host.build_status(time_s) for name, host in self._hosts.items()}

    def wait_for_rates(self, limit_s: float) -> dict[str, HostStatus]:
        """Wait until each host has rates or a problem, for `limit_s` at most."""
        hosts = self._hosts.values()
        with self._changed:
            self._changed.wait_for(lambda: all(host.previous or host.problem for host in hosts), limit_s)
        return self.read_statuses()

    def sample_now(self, limit_s: float) -> dict[str, HostStatus]:
        """Sample all answering hosts now, with the text of the engines' metrics; wait `limit_s` at most."""
        with self._changed:
            start = self._sample_now_time = time.monotonic()
            self._include_metrics = True
            self._changed.notify_all()
            hosts = [host for host in self._hosts.values() if not host.problem]
            self._changed.wait_for(
                lambda: all(host.problem or host.request_time > start for host in hosts), limit_s
            )
            self._include_metrics = False
        return self.read_statuses()

    def _watch(self, name: str, connect: Connect) -> None:
        failures = 0
        while not self._closed:
            try:
                for _ in self._sample_host(name, connect):
                    failures = 0
            except Problem as problem:
                with self._changed:
                    self._hosts[name].problem = problem
                    self._changed.notify_all()
            self._wait(_RETRY_S[min(failures, len(_RETRY_S) - 1)])
            failures += 1

    def _sample_host(self, name: str, connect: Connect) -> Iterator[None]:
        """Sample one host until its connection breaks; yield after each sample."""
        remote = connect()
        try:
            with self._changed:
                self._remotes[name] = remote
                if self._closed:
                    return
            remote.read_greeting()
            while not self._closed:
                start = time.monotonic()
                request = {"every_s": self._interval_s, "whole": self._include_metrics}
                answer = remote.ask("sample", request, _ANSWER_LIMIT_S)
                self._store_sample(name, read_sample(name, answer), start)
                yield
                self._wait(self._interval_s - (time.monotonic() - start), start)
        finally:
            with self._changed:
                self._remotes.pop(name, None)
            remote.close(_END_LIMIT_S)

    def _store_sample(self, name: str, sample: Sample, request_time: float) -> None:
        with self._changed:
            host = self._hosts[name]
            if host.last and sample.at_s < host.last.at_s:  # the host was restarted
                host.first = host.previous = host.last = None
            host.first = host.first or sample
            if host.last and sample.at_s - host.last.at_s >= _MIN_RATE_S:
                host.previous = host.last
            host.last, host.request_time, host.problem = sample, request_time, None
            self._changed.notify_all()

    def _wait(self, seconds: float, start: float | None = None) -> None:
        """Wait, but not past the end of the watch, or a call of `sample_now` after `start`."""

        def is_over() -> bool:
            return self._closed or (start is not None and self._sample_now_time > start)

        with self._changed:
            self._changed.wait_for(is_over, max(0, seconds))


def build_table(statuses: Mapping[str, HostStatus]) -> dict[str, Any]:
    """Return the object that `medley top --json` prints."""
    hosts = {name: status.table for name, status in statuses.items()}
    return {"epoch_s": time.time(), "hosts": hosts}


def read_sample(name: str, answer: Mapping[str, Any]) -> Sample:
    """Return the sample in an agent's answer, or raise a Problem if another version sent it."""
    if not has_type(answer, Sample):
        raise Problem(
            f"{name} sent figures in an unknown format",
            cause="its medley is older or newer than this one",
            fix="use the same medley on all hosts: git pull, or the same flake",
        )
    return Sample.from_table(answer)
