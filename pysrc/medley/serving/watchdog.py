"""Notice an engine that works no more although its processes run, and keep a report of what it does instead.

*Progress* is tokens in or out, another use of the KV cache, another count of requests, or the answer to a
request of one token, which is sent after a while without any. *Activity* is CPU time or GPU power; it only
delays the alarm, because a rank that waits for a lost one may spin for ever.
"""

import platform
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import httpx

from medley import explain, json_shape, process, serving, storage
from medley.command import Command
from medley.environment import payload
from medley.environment.payload import process_stacks
from medley.errors import Problem
from medley.network import http_client
from medley.process import Process
from medley.serving import metrics
from medley.unusable_file import optional

_HERE = "this host"
_ACTIVE_CORES = 0.1
_SPINS = 5
"""Limits that an engine may be active without progress."""
_UNKNOWN = 2
"""Limits that it may be idle while a host does not say what its ranks do."""
_REST = 4
"""Times that a look at other hosts took, until the next: each look starts processes on every host."""
_ASK_AFTER_S, _SAMPLE_S = 30.0, 3.0
_EXEC_LIMIT_S, _GPU_LIMIT_S, _REPORT_LIMIT_S = 15, 3, 90
_FIGURES = ("generated_tokens_total", "prompt_tokens_total", "kv_cache", "running", "waiting")
_IDLE_SHARE, _IDLE_W = 1.3, 5
_KEPT, _LAST_LINES = 5, 100
_POWER = ("nvidia-smi", "--query-gpu=power.draw", "--format=csv,noheader,nounits")


class HostQuery(Protocol):
    """What ranks on other hosts do, by host; None of one that does not answer."""

    def __call__(self, *, stacks: bool) -> Mapping[str, Any]:
        """`stacks`: with their stacks, and those that are stopped are killed."""


@dataclass
class Clock:
    """When it made progress last, and was active last, by time.monotonic()."""

    limit_s: float
    progress_at: float
    active_at: float = float("-inf")

    def suspects(self, now: float) -> bool:
        """Whether it is time to send a request and to look at the processes."""
        return now - self.progress_at >= min(self.limit_s / 4, _ASK_AFTER_S)

    def stuck(self, now: float, *, known: bool) -> bool:
        """`known`: all ranks were looked at since it was active; else twice the limit is enough."""
        idle_s = now - max(self.progress_at, self.active_at)
        spins = now - self.progress_at >= self.limit_s * _SPINS
        return spins or idle_s >= self.limit_s * (1 if known else _UNKNOWN)


@dataclass(frozen=True)
class Look:
    """The processes of an engine, by host."""

    at: float
    """When all hosts had answered, by time.monotonic()."""
    hosts: Mapping[str, Any]

    def rows(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for host, found in self.hosts.items():
            yield from ((host, row) for row in (found or {"processes": ()})["processes"])

    @property
    def silent(self) -> list[str]:
        return [host for host, found in self.hosts.items() if found is None]

    def stopped(self) -> list[str]:
        """Name those that are stopped; while one is, the others can only wait."""
        return [_named(host, row) for host, row in self.rows() if row["state"] == "T"]

    def cores(self, before: "Look") -> dict[str, float]:
        """Return the cores that each process used since then."""
        last = {(host, row["pid"]): row["cpu_s"] for host, row in before.rows()}
        return {
            _named(host, row): (row["cpu_s"] - last[host, row["pid"]]) / self._passed_s(before, host)
            for host, row in self.rows()
            if (host, row["pid"]) in last
        }

    def _passed_s(self, before: "Look", host: str) -> float:
        """By the host's own clock, because a busy one may answer long after it looked."""
        return float(max(self.hosts[host]["at_s"] - before.hosts[host]["at_s"], 0.01))

    def works(self, before: "Look") -> bool:
        """Whether a process used CPU time since then, or waited for a core both times, as on a busy host."""
        waits = all(any(row["state"] == "R" for _, row in look.rows()) for look in (before, self))
        return waits or any(used >= _ACTIVE_CORES for used in self.cores(before).values())


def _named(host: str, row: Mapping[str, Any]) -> str:
    return f"{row['name']} (process {row['pid']}) on {_place(host)}"


def _place(host: str) -> str:
    return f"{platform.node()} (this host)" if host == _HERE else host


def _stacks(file: Path) -> str:
    return f"what each rank does, by host: less {file}"


@dataclass
class Watchdog:
    """Watches one engine from when it is ready; `hosts` is asked about the others."""

    url: str
    model: str
    port: int
    limit_s: float
    log: Path
    hosts: HostQuery = lambda **_: {}
    say: Callable[[str], None] = lambda _: None
    _ended: threading.Event = field(default_factory=threading.Event)
    _naming: bool = False
    _problem: Problem | None = None
    _asked_at: float | None = None
    _answer: str = ""
    _figures: Mapping[str, float] = field(default_factory=dict)
    _looks: dict[str, list[Look]] = field(default_factory=dict)
    """The last two of this host, and of the others."""
    _rests_until: float = 0
    _asks: threading.Thread | None = None
    _idle_w: float = float("inf")
    _watts: float | None = None

    @contextmanager
    def watching(self, engine: Process) -> Iterator[None]:
        """Watch it during the body, whose own Problem gives way to one that names why it is stuck."""
        thread = threading.Thread(target=self._run, args=(engine,), daemon=True)
        if self.limit_s:
            thread.start()
        try:
            yield
            self._settle(thread)
        except Problem:
            self._settle(thread)
            raise
        finally:
            self._ended.set()

    def check(self) -> None:
        """Raise the Problem of an engine that is stuck; call it often."""
        if self._problem:
            raise self._problem

    def _settle(self, thread: threading.Thread) -> None:
        if self._naming and self._problem is None:
            thread.join(_REPORT_LIMIT_S)
        if self._problem:
            raise self._problem

    def _run(self, engine: Process) -> None:
        clock = Clock(self.limit_s, time.monotonic())
        while not self._ended.wait(min(self.limit_s / 20, _SAMPLE_S)):
            self._sample(clock, engine)
            known = self._known(clock.active_at)
            if clock.stuck(time.monotonic(), known=known) and not self._ended.is_set():
                self._naming = True
                self._problem = self._named(clock, engine)
                return

    def _sample(self, clock: Clock, engine: Process) -> None:
        now, found = time.monotonic(), metrics.figures(self.url)
        figures = {name: found[name] for name in _FIGURES if name in found}
        if (figures and figures != self._figures) or self._answer:
            clock.progress_at, self._answer, self._asked_at = now, "", None
            self._looks, self._figures, self._rests_until = {}, figures or self._figures, 0
        if not clock.suspects(now):
            return
        if self._asked_at is None:
            self._idle_w = min(self._idle_w, _power() or self._idle_w)
            self._asked_at = now
            threading.Thread(target=self._ask, args=(now,), daemon=True).start()
        self._keep(_HERE, Look(now, {_HERE: _here(engine)}))
        asking = now < self._rests_until or (self._asks and self._asks.is_alive())
        if now - clock.progress_at >= self.limit_s / 2 and not asking:
            self._asks = threading.Thread(target=self._ask_hosts, daemon=True)
            self._asks.start()
        clock.active_at = max(clock.active_at, self._active_at(now))

    def _ask(self, asked_at: float) -> None:
        """Send a completion of one token; any answer is a sign of life."""
        body = {"model": self.model, "prompt": "Hello", "max_tokens": 1, "temperature": 0}
        with suppress(httpx.HTTPError, Problem):
            limit_s = self.limit_s * (_SPINS + 1)
            answer = http_client.ask(
                "POST", f"{self.url}/completions", body=body, limit_s=limit_s, connect_s=2
            )
            if self._asked_at == asked_at:
                self._answer = f"{answer.status}"
                return
        if self._asked_at == asked_at and not self._ended.wait(1):
            self._asked_at = None  # it was refused; it is asked again

    def _ask_hosts(self) -> None:
        began = time.monotonic()
        with suppress(Problem):
            found = self.hosts(stacks=False)
            self._keep("others", Look(time.monotonic(), found))  # a busy host takes long to answer
        now, compared = time.monotonic(), len(self._looks.get("others", [])) > 1
        if compared:  # else it takes another to tell what its ranks do
            self._rests_until = now + min(_REST * (now - began), self.limit_s / 2)

    def _known(self, active_at: float) -> bool:
        """Whether a rank is stopped, or all other hosts said twice what each has used: last, since then."""
        stopped = any(each.stopped() for looks in self._looks.values() for each in looks)
        answered = [look for look in self._looks.get("others", []) if not look.silent]
        return stopped or (len(answered) > 1 and answered[-1].at > active_at)

    def _keep(self, where: str, look: Look) -> None:
        self._looks[where] = [*self._looks.get(where, [])[-1:], look]

    def _active_at(self, now: float) -> float:
        """Return when it was active last; a rank that is stopped holds up all, whatever they do."""
        looks, never = list(self._looks.values()), float("-inf")
        if any(found[-1].stopped() for found in looks):
            return never
        busy = [last.at for first, *rest in looks for last in rest if last.works(first)]
        if not busy:
            self._watts = _power()
        return max([*busy, *([now] if self._gpus_work else [])], default=never)

    @property
    def _gpus_work(self) -> bool:
        return self._watts is not None and self._watts > self._idle_w * _IDLE_SHARE + _IDLE_W

    def _named(self, clock: Clock, engine: Process) -> Problem:
        """Write the report, and return the Problem that names it."""
        now, waited_s = time.monotonic(), time.monotonic() - (self._asked_at or clock.progress_at)
        quiet_s, refusal = now - clock.progress_at, ""
        what = (
            f"the engine of {self.model} on port {self.port} is stuck: "
            f"a request for one token is unanswered after {waited_s:.0f} s"
        )
        self.say(f"{what}; its ranks' stacks are collected")
        found: dict[str, Any] = {_HERE: _here(engine, stacks=True)}
        last = _end_of(self.log)  # before it hears of ranks that are killed
        self._keep(_HERE, Look(now, found))
        try:
            there = self.hosts(stacks=True)
            look = Look(time.monotonic(), there)
            self._keep("others", look)
            found |= {host: those for host, those in look.hosts.items() if those}
            refusal = f"{', '.join(look.silent)} did not answer" if look.silent else ""
        except Problem as refused:
            refusal = f"the other hosts could not be asked: {refused.cause}"
        saw = [*self._saw(quiet_s), *filter(None, [refusal])]
        self.say("; ".join(saw))  # all hosts' ranks end before the Problem is seen
        file = write_report(self.port, saw, found, last)
        problem = Problem(what, cause="; ".join(saw), fix="\n".join(self._fixes(file)))
        known = explain.explain_problem(problem, file)
        if known.cause == problem.cause:
            return problem
        first = known.fix.partition("\n")[0].replace("medley serve MODEL", f"medley serve {self.model}")
        return Problem(what, cause=f"{problem.cause}; {known.cause}", fix=f"{first}\n{_stacks(file)}")

    def _fixes(self, file: Path) -> Iterator[str]:
        """Yield what to type where no known failure explains it, the host that is to blame first."""
        for look in (looks[-1] for looks in self._looks.values()):
            yield from (f"look at {host}, which did not answer: ssh {host} uptime" for host in look.silent)
            stuck = {_place(host): row["pid"] for host, row in look.rows() if row["state"] == "D"}
            yield from (f"on {host}, see what it waits for: sudo dmesg | tail -50" for host in stuck)
        yield f"start it again, and by itself from then on: medley serve {self.model} --restart"
        yield _stacks(file)

    def _saw(self, quiet_s: float) -> Iterator[str]:
        figures = ", ".join(f"{name} {value:g}" for name, value in self._figures.items())
        yield f"nothing changed for {quiet_s:.0f} s: {figures or 'it has no metrics'}"
        for looks in self._looks.values():
            yield from (f"{each} is stopped" for each in looks[-1].stopped())
            yield from (
                f"{_named(host, row)} is in uninterruptible sleep in {row['wchan'] or 'the kernel'}"
                for host, row in looks[-1].rows()
                if row["state"] == "D"
            )
            cores = looks[-1].cores(looks[0])
            yield from (f"{name} spins at {used:.1f} cores" for name, used in cores.items() if used >= 0.5)  # noqa: PLR2004 - half a core
        if self._watts is not None:
            now, idle = f"its GPUs draw {self._watts:.0f} W", f"{self._idle_w:.0f} W"
            alike = f"as without a request ({idle})"
            yield f"{now}, {f'and {idle} without a request' if self._gpus_work else alike}"


def _here(engine: Process, *, stacks: bool = False) -> Mapping[str, Any]:
    """Look at an engine on this host, where it has a container from inside."""
    undo = engine.command.undo
    if not undo:
        return process_stacks.describe_processes([engine.pid], stacks=stacks)
    nothing: Mapping[str, Any] = {"at_s": time.monotonic(), "processes": []}
    script, verb = payload.FOLDER / "process_stacks.py", "stacks" if stacks else "look"
    command = Command((undo[0], "exec", undo[-1], "python3", str(script), verb, "all"))
    with suppress(Problem):
        return json_shape.last_table(process.run(command, limit_s=_EXEC_LIMIT_S).lines) or nothing
    return nothing


def _power() -> float | None:
    """Return what this host's GPUs draw, in W; None where the driver does not say."""
    if process.find_program(_POWER[0]) is None:
        return None
    with suppress(Problem, ValueError):
        return sum(map(float, process.run(Command(_POWER), limit_s=_GPU_LIMIT_S).lines)) or None
    return None


def write_report(port: int, saw: Sequence[str], hosts: Mapping[str, Any], last: Sequence[str]) -> Path:
    """Write what was seen, the stacks of each rank, and each host's counters; keep the last few reports.

    The engine's lines come first, because its start among them would end the failures before it.
    """
    file = serving.log_file(f"stuck-{port}")
    for number in range(_KEPT - 1, 0, -1):
        older = file.with_suffix(f".log.{number - 1}") if number > 1 else file
        with suppress(FileNotFoundError):
            older.replace(file.with_suffix(f".log.{number}"))
    lines = ["the engine's last lines:", *last, "", *(f"watchdog: {each}" for each in saw)]
    for host, found in hosts.items():
        for row in found["processes"]:
            where = f" in {row['wchan']}" if row["wchan"] not in {"", "0"} else ""
            lines += [
                "",
                f"{_named(host, row)}: state {row['state']}{where}, {row['cpu_s']:.0f} s of CPU time",
            ]
            lines += row.get("stack", "").splitlines()
        lines += ["", f"counters of {host}:", *(found.get("host") or "").splitlines()]
    with optional():
        storage.write(file, "\n".join([*lines, ""]))
    return file


def _end_of(log: Path) -> list[str]:
    with optional():
        return (storage.read_text(log, errors="replace") or "").splitlines()[-_LAST_LINES:]
    return []
