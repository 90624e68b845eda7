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
from medley.cluster.unit_file import Restart
from medley.command import Command
from medley.engine import Serving
from medley.errors import Problem
from medley.explain import LastError, explain_engine_end
from medley.host import memory_pressure
from medley.host.memory_pressure import GIB, Memory
from medley.planner.topology import Topology
from medley.process import Finished, Process
from medley.process_identity import SharedMemory
from medley.progress import Output
from medley.serving import api
from medley.serving.watchdog import Watchdog

HOSTS_LIMIT_S = 24 * 3600
_CHECK_EVERY_S = 0.1
_END_LIMIT_S = 5
_GRACE_S, _LOADING_GRACE_S = 15, 3
_BACK, _BACK_LIMIT_S = 0.75, 60
"""Of the memory before the first start."""


class Monitor(Protocol):
    """Something that may end a running engine."""

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
    last_error: LastError,
    fatal: Callable[[str], bool] = lambda _: False,
    monitors: Sequence[Monitor] = (),
    watchdog: Watchdog | None = None,
    on_lost: Callable[[str], None] = lambda _: None,
) -> NoReturn:
    """Run an engine until it ends, which is always a Problem: it is only left by Ctrl-C or a signal.

    The monitors are checked several times a second. `limit_s`: seconds until the first completion. `on_lost`
    gets the reason why the model is served no longer, before the engine's processes end. However this is
    left, no process of the engine stays behind.
    """
    lost: list[str] = []

    def watch(line: str) -> None:
        if fatal(line):
            lost.append(line)
        on_line(line)

    kills, segments = memory_pressure.count_kernel_kills(), SharedMemory()
    engine, began = Process(command, watch), time.monotonic()
    engine.die_first()
    completion = None
    try:
        completion = _first_completion(engine, lambda: api.answered(url, model), model, limit_s, monitors)
        if completion is not None:
            on_ready(completion, time.monotonic() - began)
            with watchdog.watching(engine) if watchdog else nullcontext():
                while engine.wait(_CHECK_EVERY_S) is None and not lost:
                    _check_all(monitors)
                    segments.check()
                    if watchdog:
                        watchdog.check()
        on_lost((lost or ["its engine ended"])[0][:200])
        if not lost:
            engine.wait(_END_LIMIT_S)
    except Problem as problem:
        on_lost(problem.what)
        raise
    finally:
        segments.settle()
        # While it imports, an engine does not end by SIGTERM, and it has no request to finish.
        engine.stop(_LOADING_GRACE_S if completion is None else _GRACE_S)
        segments.settle()
    finished = engine.poll() or Finished(1, ())
    if lost:  # it was we who ended it, so its exit code says nothing
        finished = Finished(1, tuple(lost))
    raise explain_engine_end(
        finished,
        ready=completion is not None,
        log=log,
        last_error=last_error,
        killer=memory_pressure.describe_killer(kills),
    )


def _check_all(monitors: Sequence[Monitor]) -> None:
    for monitor in monitors:
        monitor.check()


def _first_completion(
    engine: Process,
    answered: Callable[[], str | None],
    model: str,
    limit_s: float,
    monitors: Sequence[Monitor],
) -> str | None:
    """Return the first completion, or None when the engine ended instead."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if engine.wait(_CHECK_EVERY_S) is not None:
            return None
        _check_all(monitors)
        try:
            completion = answered()
        except Problem:
            # A dying engine breaks the connection first; then its own last error says more.
            if engine.wait(_END_LIMIT_S) is not None:
                return None
            raise
        if completion is not None:
            return completion
    raise Problem(
        f"{model} is not ready after {limit_s:g} s",
        cause=(list(engine.last) or ["the engine printed nothing"])[-1][:300],
        fix=f"allow more time: --timeout {max(1800, limit_s * 2):.0f}",
    )


def _memory() -> Memory:
    return next(memory_pressure.read_memory())


def _require_memory(before: int, say: Callable[[str], None]) -> None:
    """Wait for the bytes that were available before; raise a Problem if less than half come back."""
    if (left := _memory()).available >= before * _BACK:
        return
    say(f"{left.available / GIB:.1f} of {before / GIB:.1f} GiB are free; wait for the rest")
    process.wait_until(lambda: _memory().available >= before * _BACK, _BACK_LIMIT_S, every_s=1)
    if (left := _memory()).available < before / 2:
        raise Problem(
            "the memory of the engine that ended did not come back, so it is not restarted",
            cause=f"{left.available / GIB:.1f} GiB are available after {_BACK_LIMIT_S} s, and "
            f"{before / GIB:.1f} GiB were before its first start; page cache: {left.cached / GIB:.1f} GiB",
            fix="find what holds it: ps -eo rss,pid,args --sort=-rss | head; nvidia-smi",
        )


@dataclass
class Restarter:
    """Restarts a server that was ready once, on as many hosts as it ran over."""

    rule: Restart
    listens: Serving
    joined: Membership | None
    output: Output
    here: Callable[[], Topology]
    """This host alone, where it is in no cluster."""
    resumes: bool = True
    """Over as many hosts as before, also after it was cut off; not without Ray."""
    hosts: int | None = field(default=None, init=False)
    """How many it ran over when it was ready; before that it is not restarted."""
    done: int = field(default=0, init=False)
    before: int = field(default_factory=lambda: _memory().available, init=False)
    """Bytes that were available before its first start."""
    ready_since: float | None = field(default=None, init=False)

    def run(self, attempt: Callable[[Topology, Callable[[int], None]], None], site: Topology) -> NoReturn:
        """`attempt` serves on these hosts until that ends; it reports their number once it is ready."""
        problem: Problem | None = None
        while True:
            # Its record stays until the next attempt has one, so that status has no gap.
            with ExitStack() as record:
                if problem:
                    site = self._next_site(problem, record)
                try:
                    attempt(site, self._ready)
                except Problem as another:
                    problem = another

    def _ready(self, hosts: int) -> None:
        self.hosts, self.ready_since = hosts, time.monotonic()
        if self.done:
            events.note("recovery", str(self.listens), f"ready again after restart {self.done}")
        if self.resumes:
            storage.write(_hosts_file(self.listens.port), str(hosts))

    def _next_site(self, problem: Problem, record: ExitStack) -> Topology:
        """Wait until a restart is due, and return its hosts; raise the Problem itself where none is.

        The server is recorded as restarting until `record` ends.
        """
        listens = self.listens
        while True:
            wait_s = self._wait_s(problem)
            state = f"restarting, attempt {self.done}: {problem.what}"
            self.output.say(f"{problem}")
            noted = serving.note_server(listens, state)
            record.enter_context(noted)
            _require_memory(self.before, self.output.say)
            self.output.say(f"{state}; in {wait_s:.0f} s, or when {self.hosts} hosts have joined")
            events.note("restart", str(listens), f"restart {self.done} in {wait_s:.0f} s")
            time.sleep(wait_s)
            if self.joined is None:
                return self.here()
            try:
                return ray_serving.site(self.joined, self.hosts, HOSTS_LIMIT_S, self.output.watch)
            except Problem as another:
                problem = another

    def _wait_s(self, problem: Problem) -> float:
        if self.hosts is None:
            raise problem
        lasted_s = None if self.ready_since is None else time.monotonic() - self.ready_since
        due = self.rule.due(self.done, lasted_s)
        if due is None:
            problem.what += f"; medley gave up after restart {self.done}"
            events.note("end", str(self.listens), f"medley gave up after restart {self.done}")
            raise problem
        self.ready_since, (self.done, wait_s) = None, due
        return wait_s


@contextmanager
def resume_hosts(port: int, say: Callable[[str], None]) -> Iterator[int | None]:
    """Yield the number of hosts that this port's server ran over when it was cut off, or None.

    Wait until there is a cluster again. If somebody ends the body, the number is forgotten.
    """
    file = _hosts_file(port)
    try:
        hosts = int(storage.read_text(file) or 0)
        if hosts and hosts > 1:
            say(f"it ran on {hosts} hosts before, and waits for {hosts} hosts")
            process.wait_until(membership.noted, HOSTS_LIMIT_S, every_s=1)
        yield hosts or None
    except Problem:
        raise
    except BaseException:
        storage.remove_file(file)
        raise


def _hosts_file(port: int) -> Path:
    return serving.folder() / f"{port}.hosts"
