"""Supervise an engine from its start to its end, and restart a server with backoff."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, Protocol

from medley import process, serving, storage
from medley.cluster import events, membership, ray_serving
from medley.cluster.membership import Membership
from medley.cluster.restart_rule import Restart
from medley.command import Command
from medley.engine import ServerSpec
from medley.errors import Problem
from medley.explain import LastError, explain_engine_end
from medley.host import memory_pressure
from medley.host.memory_pressure import GIB, MemoryState
from medley.planner.site import Site
from medley.process import Process, ProcessResult
from medley.process_identity import SharedMemoryCleaner
from medley.progress import Output
from medley.serving import api
from medley.serving.watchdog import Watchdog

REJOIN_LIMIT_S = 24 * 3600
_CHECK_INTERVAL_S = 0.1
_EXIT_LIMIT_S = 5
_END_GRACE_S, _LOADING_GRACE_S = 15, 3
_MIN_FREE_MEMORY_SHARE, _FREE_MEMORY_LIMIT_S = 0.75, 60
"""The share of the memory before the first start that a restart needs, and the seconds to wait for it."""


class Monitor(Protocol):
    """A check that may end a running engine."""

    def check(self) -> None:
        """Raise a Problem if the engine must end; called several times a second."""


def supervise(
    command: Command,
    *,
    url: str,
    model: str,
    limit_s: float,
    log: Path,
    on_line: Callable[[str], None],
    on_ready: Callable[[str, float], None],
    find_last_error: LastError,
    is_fatal: Callable[[str], bool] = lambda _: False,
    monitors: Sequence[Monitor] = (),
    watchdog: Watchdog | None = None,
    on_lost: Callable[[str], None] = lambda _: None,
) -> NoReturn:
    """Run an engine until it ends, which is always a Problem; Ctrl-C and signals end it too.

    The monitors are checked several times a second. `limit_s`: seconds until the first completion. `on_lost`
    gets the reason why the model is served no longer, before the engine's processes end. In every case all
    processes of the engine are ended.
    """
    fatal_lines: list[str] = []

    def read_line(line: str) -> None:
        if is_fatal(line):
            fatal_lines.append(line)
        on_line(line)

    kernel_kills = memory_pressure.count_kernel_kills()
    shared_memory = SharedMemoryCleaner()
    engine = Process(command, read_line)
    started_s = time.monotonic()
    engine.prefer_for_oom_kill()
    completion = None
    try:
        completion = _wait_for_completion(
            engine, lambda: api.request_probe_answer(url, model), model, limit_s, monitors
        )
        if completion is not None:
            on_ready(completion, time.monotonic() - started_s)
            with watchdog.watch(engine) if watchdog else nullcontext():
                while engine.wait(_CHECK_INTERVAL_S) is None and not fatal_lines:
                    _check_all(monitors)
                    shared_memory.check()
                    if watchdog:
                        watchdog.check()
        on_lost((fatal_lines or ["its engine ended"])[0][:200])
        if not fatal_lines:
            engine.wait(_EXIT_LIMIT_S)
    except Problem as problem:
        on_lost(problem.what)
        raise
    finally:
        shared_memory.remove_unused()
        # While it imports, an engine does not end by SIGTERM, and it has no request to finish.
        engine.stop(_LOADING_GRACE_S if completion is None else _END_GRACE_S)
        shared_memory.remove_unused()
    finished = engine.poll() or ProcessResult(1, ())
    if fatal_lines:  # medley ended it, so its exit code has no meaning
        finished = ProcessResult(1, tuple(fatal_lines))
    raise explain_engine_end(
        finished,
        ready=completion is not None,
        log=log,
        last_error=find_last_error,
        killer=memory_pressure.describe_killer(kernel_kills),
    )


def _check_all(monitors: Sequence[Monitor]) -> None:
    for monitor in monitors:
        monitor.check()


def _wait_for_completion(
    engine: Process,
    probe: Callable[[], str | None],
    model: str,
    limit_s: float,
    monitors: Sequence[Monitor],
) -> str | None:
    """Return the first completion, or None if the engine ended instead; raise a Problem after the limit."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if engine.wait(_CHECK_INTERVAL_S) is not None:
            return None
        _check_all(monitors)
        try:
            completion = probe()
        except Problem:
            # A dying engine breaks the connection first; then its own last error says more.
            if engine.wait(_EXIT_LIMIT_S) is not None:
                return None
            raise
        if completion is not None:
            return completion
    raise Problem(
        f"{model} is not ready after {limit_s:g} s",
        cause=(list(engine.last_lines) or ["the engine printed nothing"])[-1][:300],
        fix=f"allow more time: --timeout {max(1800, limit_s * 2):.0f}",
    )


def _read_memory() -> MemoryState:
    return next(memory_pressure.read_memory())


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
            server_record = serving.record_server(server, state)
            record_scope.enter_context(server_record)
            _require_memory(self.memory_before_bytes, self.output.say)
            self.output.say(f"{state}; in {wait_s:.0f} s, or when {self.host_count} hosts have joined")
            events.record_event("restart", str(server), f"restart {self.restart_count} in {wait_s:.0f} s")
            time.sleep(wait_s)
            if self.cluster is None:
                return self.find_site()
            try:
                return ray_serving.wait_for_site(
                    self.cluster, self.host_count, REJOIN_LIMIT_S, self.output.watch
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
def resume_hosts(port: int, print_line: Callable[[str], None]) -> Iterator[int | None]:
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
    return serving.get_records_folder() / f"{port}.hosts"
