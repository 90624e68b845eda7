"""Restart the engine of a server that was ready, after a growing delay, by cluster/restart_rule.py."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from medley import process, storage
from medley.cluster import events, membership, ray_serving
from medley.cluster.membership import Membership
from medley.cluster.restart_rule import Restart
from medley.engine.server_spec import ServerSpec
from medley.errors import Problem
from medley.host import memory_pressure
from medley.host.memory_pressure import GIB, MemoryState
from medley.planner.site import Site
from medley.progress import Output
from medley.serving import server_records

REJOIN_LIMIT_S = 24 * 3600
_MIN_FREE_MEMORY_SHARE, _FREE_MEMORY_LIMIT_S = 0.75, 60
"""The share of the memory before the first start that a restart needs, and the seconds to wait for it."""


def _read_memory() -> MemoryState:
    memory = memory_pressure.read_memory()
    return memory.host if memory else MemoryState("this host", 0, 0)


def _require_memory(before_bytes: int, print_line: Callable[[str], None]) -> None:
    """Wait for the bytes that were available before; raise a Problem if less than half come back."""
    if (memory := _read_memory()).available >= before_bytes * _MIN_FREE_MEMORY_SHARE:
        return
    print_line(f"{memory.available / GIB:.1f} of {before_bytes / GIB:.1f} GiB are free; wait for the rest")
    process.wait_until(
        lambda: _read_memory().available >= before_bytes * _MIN_FREE_MEMORY_SHARE,
        _FREE_MEMORY_LIMIT_S,
        every_s=1,
    )
    if (memory := _read_memory()).available < before_bytes / 2:
        raise Problem(
            "the memory of the engine that ended did not come back, so it is not restarted",
            cause=f"{memory.available / GIB:.1f} GiB are available after {_FREE_MEMORY_LIMIT_S} s, and "
            f"{before_bytes / GIB:.1f} GiB were before its first start; "
            f"page cache: {memory.cached / GIB:.1f} GiB",
            fix="find what holds it: ps -eo rss,pid,args --sort=-rss | head; nvidia-smi",
        )


@dataclass
class Restarter:
    """Restarts a server that was ready once, on as many hosts as it ran over."""

    restart_rule: Restart
    server: ServerSpec
    cluster: Membership | None
    output: Output
    find_site: Callable[[], Site]
    """The function that returns this host as the site, if it is in no cluster."""
    has_same_hosts: bool = True
    """Whether a restart needs as many hosts as before, also after a power cut; only with Ray."""
    host_count: int | None = field(default=None, init=False)
    """The number of hosts when it was ready; None before, when it is not restarted."""
    restart_count: int = field(default=0, init=False)
    memory_before_bytes: int = field(default_factory=lambda: _read_memory().available, init=False)
    """Bytes of memory that were available before its first start."""
    ready_at_s: float | None = field(default=None, init=False)

    def run(self, attempt: Callable[[Site, Callable[[int], None]], None], site: Site) -> NoReturn:
        """Call `attempt` for each start: it serves on these hosts, and reports their number when ready."""
        problem: Problem | None = None
        while True:
            # Its record stays until the next attempt has one, so that status has no gap.
            with ExitStack() as record_scope:
                if problem:
                    site = self._wait_for_site(problem, record_scope)
                try:
                    attempt(site, self._record_ready)
                except Problem as new_problem:
                    problem = new_problem

    def _record_ready(self, host_count: int) -> None:
        self.host_count, self.ready_at_s = host_count, time.monotonic()
        if self.restart_count:
            events.record_event(
                "recovery", str(self.server), f"ready again after restart {self.restart_count}"
            )
        if self.has_same_hosts:
            storage.write_text(_find_host_count_file(self.server.port), str(host_count))

    def _wait_for_site(self, problem: Problem, record_scope: ExitStack) -> Site:
        """Wait until a restart is due, and return its hosts; raise the Problem itself if none is due.

        The server is recorded as restarting until `record_scope` ends.
        """
        server = self.server
        while True:
            wait_s = self._begin_restart(problem)
            state = f"restarting, attempt {self.restart_count}: {problem.what}"
            self.output.say(f"{problem}")
            server_record = server_records.record_server(server, state)
            record_scope.enter_context(server_record)
            _require_memory(self.memory_before_bytes, self.output.say)
            self.output.say(f"{state}; in {wait_s:.0f} s, or when {self.host_count} hosts have joined")
            events.record_event("restart", str(server), f"restart {self.restart_count} in {wait_s:.0f} s")
            time.sleep(wait_s)
            if self.cluster is None:
                return self.find_site()
            try:
                return ray_serving.wait_for_site(
                    self.cluster, self.host_count, REJOIN_LIMIT_S, self.output.progress
                )
            except Problem as new_problem:
                problem = new_problem

    def _begin_restart(self, problem: Problem) -> float:
        """Count a restart, and return the seconds until it; raise the Problem itself if none is due."""
        if self.host_count is None:
            raise problem
        served_s = None if self.ready_at_s is None else time.monotonic() - self.ready_at_s
        next_restart = self.restart_rule.compute_next(self.restart_count, served_s)
        if next_restart is None:
            problem.what += f"; medley gave up after restart {self.restart_count}"
            events.record_event("end", str(self.server), f"medley gave up after restart {self.restart_count}")
            raise problem
        self.ready_at_s = None
        self.restart_count, wait_s = next_restart
        return wait_s


@contextmanager
def recall_host_count(port: int, print_line: Callable[[str], None]) -> Iterator[int | None]:
    """Yield the number of hosts that this port's server ran over when it was cut off, or None.

    Wait until there is a cluster again. If Ctrl-C or a signal ends the body, the number is removed.
    """
    file = _find_host_count_file(port)
    try:
        host_count = int(storage.read_text(file) or 0)
        if host_count and host_count > 1:
            print_line(f"it ran on {host_count} hosts before, and waits for {host_count} hosts")
            process.wait_until(membership.find_membership, REJOIN_LIMIT_S, every_s=1)
        yield host_count or None
    except Problem:
        raise
    except BaseException:
        storage.remove_file(file)
        raise


def _find_host_count_file(port: int) -> Path:
    return server_records.get_records_folder() / f"{port}.hosts"
