"""A server started anew: after it was ready and was lost, once the hosts that it needs are back."""

import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from medley import membership, serving, spreading, store
from medley.cli.ready import url
from medley.cli.served import say
from medley.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from medley.engine import Serving
    from medley.membership import Membership
    from medley.site import Site
    from medley.unit import Restart
    from medley.watch import Watch

HOSTS_LIMIT_S = 24 * 3600
_LOOK_EVERY_S = 1
Attempt = Callable[["Site", Callable[[int], None]], None]
"""Serves on the site until that ends; it says of how many hosts once it is ready."""


@dataclass
class Again:
    rule: "Restart"
    listens: "Serving"
    joined: "Membership | None"
    watch: "Watch"
    here: Callable[[], "Site"]
    """This host alone, where it is in no cluster."""
    hosts: int | None = None
    """How many it ran over when it was ready; before that it is not started anew."""
    done: int = 0
    ready_since: float = field(default=0, init=False)

    def run(self, attempt: Attempt, site: "Site") -> NoReturn:
        while True:
            try:
                attempt(site, self._ready)
            except Problem as problem:
                site = self._next_site(problem)

    def _ready(self, hosts: int) -> None:
        self.hosts, self.ready_since = hosts, time.monotonic()
        store.write(_ran_over(self.listens.port), str(hosts))

    def _next_site(self, problem: Problem) -> "Site":
        """Where it starts anew, once that is due; the Problem itself where it does not."""
        while True:
            wait_s = self._due(problem)
            state = f"restarts, for the {_ordinal(self.done)} time in a row: {problem.what}"
            say(f"{problem}")
            say(f"{state}; in {wait_s:.0f} s, or when {self.hosts} hosts are there")
            listens = self.listens
            with serving.noted(url(listens), listens.name, listens.port, listens.key, state):
                time.sleep(wait_s)
                if self.joined is None:
                    return self.here()
                try:
                    return spreading.site(self.joined, self.hosts, HOSTS_LIMIT_S, self.watch)
                except Problem as another:
                    problem = another

    def _due(self, problem: Problem) -> float:
        if self.hosts is None:
            raise problem
        if self.ready_since and time.monotonic() - self.ready_since >= self.rule.lasting_s:
            self.done = 0
        self.ready_since = 0
        if self.rule.limit is not None and self.done >= self.rule.limit:
            raise Problem(
                f"{problem.what}, and it was started anew {self.done} times in vain",
                cause=problem.cause,
                fix=problem.fix,
                status=problem.status,
            )
        self.done += 1
        return self.rule.waits_s(self.done - 1)


@contextmanager
def resumed(port: int) -> "Iterator[int | None]":
    """How many hosts the server of this port ran over when it was cut off, once there is a cluster again.

    None where it was not cut off. An end that somebody wants is none: then nothing is kept of it.
    """
    file = _ran_over(port)
    try:
        hosts = int(file.read_text(encoding="utf-8")) if file.exists() else None
        if hosts and hosts > 1:
            say(f"it ran over {hosts} hosts before, and waits for as many")
            deadline = time.monotonic() + HOSTS_LIMIT_S
            while membership.noted() is None and time.monotonic() < deadline:
                time.sleep(_LOOK_EVERY_S)
        yield hosts
    except Problem:
        raise
    except BaseException:
        file.unlink(missing_ok=True)
        raise


def _ran_over(port: int) -> Path:
    return serving.folder() / f"{port}.hosts"


def _ordinal(number: int) -> str:
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number, 'th') }"
