"""Detect a stalled engine, which makes no progress although its processes run; report its ranks.

*Progress* is tokens in or out, another use of the KV cache, another count of requests, or the answer to a
request of one token, which is sent after a while without any. *Activity* is CPU time or GPU power; it only
delays the alarm, because a rank that waits for a lost one may spin forever. The times: stall_rule.py.
"""

import platform
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, cast

import httpx

from medley import explain, json_shape, process, storage
from medley.command import Command
from medley.environment import payload
from medley.environment.payload import process_stacks
from medley.environment.payload.process_stacks import HostReport, ProcessRow
from medley.errors import Problem
from medley.network import http_client
from medley.process import Process
from medley.serving import metrics, server_records
from medley.serving.stall_rule import SPINNING_LIMIT_FACTOR, ProgressClock
from medley.unusable_file import skip_unusable_file
from medley.values import Value

_THIS_HOST, _OTHERS = "this host", "others"
_ACTIVE_CORES, _SPINNING_CORES = 0.1, 0.5
_QUERY_PAUSE_FACTOR = 4
"""The pause after a query, in durations of it, because each query starts processes on every host."""
_SAMPLE_INTERVAL_S = 3.0
_CONTAINER_EXEC_LIMIT_S, _GPU_LIMIT_S, _REPORT_LIMIT_S = 15, 3, 90
_PROGRESS_FIGURES = ("generated_tokens_total", "prompt_tokens_total", "kv_cache", "running", "waiting")
_BUSY_POWER_RATIO, _BUSY_POWER_W = 1.3, 5
_MAX_REPORTS, _MAX_LAST_LINES = 5, 100
_POWER_COMMAND = ("nvidia-smi", "--query-gpu=power.draw", "--format=csv,noheader,nounits")


class HostQuery(Protocol):
    """A function that returns the processes of ranks on other hosts, by host; None for a silent host."""

    def __call__(self, *, is_final: bool) -> Mapping[str, HostReport | None]:
        """Return the processes; the final query reports their stacks too, and over Ray kills stopped ones."""


class ProcessSample(Value):
    """The processes of an engine at one time, by host."""

    at_s: float
    """The time when all hosts had answered, by time.monotonic()."""
    processes_by_host: Mapping[str, HostReport | None]
    """The report of each host; None for a silent host."""

    def list_rows(self) -> Iterator[tuple[str, ProcessRow]]:
        for host, report in self.processes_by_host.items():
            if report:
                yield from ((host, row) for row in report["processes"])

    @property
    def silent_hosts(self) -> list[str]:
        return [host for host, report in self.processes_by_host.items() if report is None]

    def list_stopped_processes(self) -> list[str]:
        """Return the stopped processes in words; while one is stopped, the others can only wait."""
        return [_describe_process(host, row) for host, row in self.list_rows() if row["state"] == "T"]

    def compute_used_cores(self, before: "ProcessSample") -> dict[str, float]:
        """Return the mean number of cores that each process used since the earlier sample, by process."""
        cpu_seconds = {(host, row["pid"]): row["cpu_s"] for host, row in before.list_rows()}
        return {
            _describe_process(host, row): (row["cpu_s"] - cpu_seconds[host, row["pid"]])
            / max(self.times_s[host] - before.times_s[host], 0.01)
            for host, row in self.list_rows()
            if (host, row["pid"]) in cpu_seconds
        }

    @property
    def times_s(self) -> dict[str, float]:
        """The times by the hosts' own clocks: a busy host may answer long after its sample."""
        return {host: report["at_s"] for host, report in self.processes_by_host.items() if report}

    def is_active_since(self, before: "ProcessSample") -> bool:
        """Return whether a process used CPU time since then, or waited for a core both times."""
        are_waiting = all(
            any(row["state"] == "R" for _, row in sample.list_rows()) for sample in (before, self)
        )
        return are_waiting or any(
            cores >= _ACTIVE_CORES for cores in self.compute_used_cores(before).values()
        )


def _describe_process(host: str, row: ProcessRow) -> str:
    return f"{row['name']} (process {row['pid']}) on {_describe_host(host)}"


def _describe_host(host: str) -> str:
    return f"{platform.node()} (this host)" if host == _THIS_HOST else host


def _format_stacks_fix(file: Path) -> str:
    return f"what each rank does, by host: less {file}"


@dataclass
class Watchdog:
    """Detects that one engine is stalled; `query_hosts` samples its processes on other hosts."""

    url: str
    model: str
    port: int
    limit_s: float
    log: Path
    query_hosts: HostQuery = lambda **_: {}
    on_stall: Callable[[str], None] = lambda _: None
    _ended: threading.Event = field(default_factory=threading.Event)
    _is_reporting: bool = False
    _problem: Problem | None = None
    _requested_at_s: float | None = None
    _is_answered: bool = False
    """Whether the request of one token was answered since the last check."""
    _figures: Mapping[str, float] = field(default_factory=dict)
    _samples: dict[str, list[ProcessSample]] = field(default_factory=dict)
    """The last two samples of this host, and of the others."""
    _next_query_at_s: float = 0
    _query_thread: threading.Thread | None = None
    _idle_power_w: float = float("inf")
    _power_w: float | None = None

    @contextmanager
    def watch(self, engine: Process) -> Iterator[None]:
        """Watch the engine during the body; the Problem of a stalled engine replaces the body's own."""
        thread = threading.Thread(target=self._run, args=(engine,), daemon=True)
        if self.limit_s:
            thread.start()
        try:
            yield
            self._raise_problem(thread)
        except Problem:
            self._raise_problem(thread)
            raise
        finally:
            self._ended.set()

    def check(self) -> None:
        """Raise the Problem of an engine that is stalled; call it often."""
        if self._problem:
            raise self._problem

    def _raise_problem(self, thread: threading.Thread) -> None:
        if self._is_reporting and self._problem is None:
            thread.join(_REPORT_LIMIT_S)
        if self._problem:
            raise self._problem

    def _run(self, engine: Process) -> None:
        clock = ProgressClock(self.limit_s, time.monotonic())
        while not self._ended.wait(min(self.limit_s / 20, _SAMPLE_INTERVAL_S)):
            self._check_progress(clock, engine)
            has_samples = self._has_samples_since(clock.active_at_s)
            if clock.is_stalled(time.monotonic(), has_samples=has_samples) and not self._ended.is_set():
                self._is_reporting = True
                self._problem = self._report_stuck_engine(clock, engine)
                return

    def _check_progress(self, clock: ProgressClock, engine: Process) -> None:
        now_s, engine_figures = time.monotonic(), metrics.read_figures(self.url)
        figures = {name: engine_figures[name] for name in _PROGRESS_FIGURES if name in engine_figures}
        if (figures and figures != self._figures) or self._is_answered:
            self._record_progress(clock, now_s, figures)
        if not clock.is_suspect(now_s):
            return
        if self._requested_at_s is None:
            self._idle_power_w = min(self._idle_power_w, _read_power_w() or self._idle_power_w)
            self._requested_at_s = now_s
            threading.Thread(target=self._send_request, args=(now_s,), daemon=True).start()
        self._store_sample(_THIS_HOST, ProcessSample(now_s, {_THIS_HOST: _sample_this_host(engine)}))
        can_query = now_s >= max(self._next_query_at_s, clock.progress_at_s + self.limit_s / 2)
        if can_query and not (self._query_thread and self._query_thread.is_alive()):
            self._query_thread = threading.Thread(target=self._query_hosts, daemon=True)
            self._query_thread.start()
        clock.active_at_s = max(clock.active_at_s, self._find_active_at(now_s))

    def _record_progress(self, clock: ProgressClock, now_s: float, figures: Mapping[str, float]) -> None:
        """Begin a new period without progress: no request is open, and no processes are sampled yet."""
        clock.progress_at_s = now_s
        self._figures = figures or self._figures
        self._is_answered = False
        self._requested_at_s = None
        self._samples = {}
        self._next_query_at_s = 0

    def _send_request(self, requested_at_s: float) -> None:
        """Send a completion of one token; any answer is a sign of life."""
        body = {"model": self.model, "prompt": "Hello", "max_tokens": 1, "temperature": 0}
        with suppress(httpx.HTTPError, Problem):
            limit_s = self.limit_s * (SPINNING_LIMIT_FACTOR + 1)
            http_client.send_request(
                "POST", f"{self.url}/completions", body=body, limit_s=limit_s, connect_s=2
            )
            if self._requested_at_s == requested_at_s:
                self._is_answered = True
                return
        if self._requested_at_s == requested_at_s and not self._ended.wait(1):
            self._requested_at_s = None  # the request was refused, and is sent again

    def _query_hosts(self) -> None:
        started_s = time.monotonic()
        with suppress(Problem):
            hosts = self.query_hosts(is_final=False)
            # The time is that after the answers, because a busy host answers late.
            self._store_sample(_OTHERS, ProcessSample(time.monotonic(), hosts))
        now_s, has_two_samples = time.monotonic(), len(self._samples.get(_OTHERS, [])) > 1
        if has_two_samples:  # otherwise a second sample is needed to see what the ranks do
            self._next_query_at_s = now_s + min(_QUERY_PAUSE_FACTOR * (now_s - started_s), self.limit_s / 2)

    def _has_samples_since(self, active_at_s: float) -> bool:
        """Return whether a rank is stopped, or all other hosts answered twice, the second time since then."""
        has_stopped = any(
            sample.list_stopped_processes() for samples in self._samples.values() for sample in samples
        )
        complete_samples = [sample for sample in self._samples.get(_OTHERS, []) if not sample.silent_hosts]
        return has_stopped or (len(complete_samples) > 1 and complete_samples[-1].at_s > active_at_s)

    def _store_sample(self, group: str, sample: ProcessSample) -> None:
        self._samples[group] = [*self._samples.get(group, [])[-1:], sample]

    def _find_active_at(self, now_s: float) -> float:
        """Return the time of its last activity; none counts while a rank is stopped, which blocks all."""
        samples_of_groups, never_s = list(self._samples.values()), float("-inf")
        if any(samples[-1].list_stopped_processes() for samples in samples_of_groups):
            return never_s
        active_times_s = [
            last.at_s for first, *rest in samples_of_groups for last in rest if last.is_active_since(first)
        ]
        if not active_times_s:
            self._power_w = _read_power_w()
        return max([*active_times_s, *([now_s] if self._is_gpu_busy else [])], default=never_s)

    @property
    def _is_gpu_busy(self) -> bool:
        return (
            self._power_w is not None
            and self._power_w > self._idle_power_w * _BUSY_POWER_RATIO + _BUSY_POWER_W
        )

    def _report_stuck_engine(self, clock: ProgressClock, engine: Process) -> Problem:
        """Query the hosts for the last time, write the report, and return the Problem with its file."""
        now_s, waited_s = time.monotonic(), time.monotonic() - (self._requested_at_s or clock.progress_at_s)
        quiet_s, refusal = now_s - clock.progress_at_s, ""
        title = (
            f"the engine of {self.model} on port {self.port} is stuck: "
            f"a request for one token is unanswered after {waited_s:.0f} s"
        )
        self.on_stall(f"{title}; its ranks' stacks are collected")
        hosts: dict[str, HostReport] = {_THIS_HOST: _sample_this_host(engine, stacks=True)}
        last_lines = _read_last_lines(self.log)  # before lines about ranks that the next step kills
        self._store_sample(_THIS_HOST, ProcessSample(now_s, hosts))
        try:
            other_hosts = self.query_hosts(is_final=True)
            sample = ProcessSample(time.monotonic(), other_hosts)
            self._store_sample(_OTHERS, sample)
            hosts |= {host: report for host, report in sample.processes_by_host.items() if report}
            refusal = f"{', '.join(sample.silent_hosts)} did not answer" if sample.silent_hosts else ""
        except Problem as problem_of_hosts:
            refusal = f"the other hosts could not be asked: {problem_of_hosts.cause}"
        observations = [*self._list_observations(quiet_s), *filter(None, [refusal])]
        cause = "; ".join(observations)
        self.on_stall(cause)  # now, because all hosts' ranks end before the Problem is shown
        file = write_report(self.port, observations, hosts, last_lines)
        problem = Problem(title, cause=cause, fix="\n".join(self._list_fixes(file)))
        explained = explain.explain_problem(problem, file)
        if explained.cause == cause:
            return problem
        first_fix = explained.fix.partition("\n")[0].replace(
            "medley serve MODEL", f"medley serve {shlex.quote(self.model)}"
        )
        return Problem(
            title, cause=f"{cause}; {explained.cause}", fix=f"{first_fix}\n{_format_stacks_fix(file)}"
        )

    def _list_fixes(self, file: Path) -> Iterator[str]:
        """Yield the commands for a failure that is not known, for the hosts at fault first."""
        for sample in (samples[-1] for samples in self._samples.values()):
            for host in sample.silent_hosts:
                target = shlex.quote(host.partition(" (")[0])  # a host that joined is NAME (ADDRESS)
                yield f"look at {host}, which did not answer: ssh {target} uptime"
            sleeping = {
                _describe_host(host): row["pid"] for host, row in sample.list_rows() if row["state"] == "D"
            }
            yield from (f"on {host}, see what it waits for: sudo dmesg | tail -50" for host in sleeping)
        yield f"start it again, and by itself from then on: medley serve {shlex.quote(self.model)} --restart"
        yield _format_stacks_fix(file)

    def _list_observations(self, quiet_s: float) -> Iterator[str]:
        figures = ", ".join(f"{name} {value:g}" for name, value in self._figures.items())
        yield f"nothing changed for {quiet_s:.0f} s: {figures or 'it has no metrics'}"
        for samples in self._samples.values():
            yield from (
                f"{process_title} is stopped" for process_title in samples[-1].list_stopped_processes()
            )
            yield from (
                f"{_describe_process(host, row)} is in uninterruptible sleep "
                f"in {row['wchan'] or 'the kernel'}"
                for host, row in samples[-1].list_rows()
                if row["state"] == "D"
            )
            cores = samples[-1].compute_used_cores(samples[0])
            yield from (
                f"{name} spins at {core_count:.1f} cores"
                for name, core_count in cores.items()
                if core_count >= _SPINNING_CORES
            )
        if self._power_w is not None:
            power, idle_power = f"its GPUs draw {self._power_w:.0f} W", f"{self._idle_power_w:.0f} W"
            unchanged = f"as without a request ({idle_power})"
            yield f"{power}, {f'and {idle_power} without a request' if self._is_gpu_busy else unchanged}"


def _sample_this_host(engine: Process, *, stacks: bool = False) -> HostReport:
    """Return the processes of an engine on this host, read inside its container if it has one."""
    removal_words = engine.command.undo  # of a container: its runtime first, its name last
    if not removal_words:
        return process_stacks.describe_processes([engine.pid], stacks=stacks)
    empty: HostReport = {"at_s": time.monotonic(), "processes": []}
    script, verb = payload.FOLDER / "process_stacks.py", "stacks" if stacks else "look"
    command = Command((removal_words[0], "exec", removal_words[-1], "python3", str(script), verb, "all"))
    with suppress(Problem):
        lines = process.run(command, limit_s=_CONTAINER_EXEC_LIMIT_S).lines
        return cast("HostReport", json_shape.parse_last_object(lines) or empty)
    return empty


def _read_power_w() -> float | None:
    """Return the power of this host's GPUs in W; None if the driver does not report it."""
    if process.find_program(_POWER_COMMAND[0]) is None:
        return None
    with suppress(Problem, ValueError):
        return sum(map(float, process.run(Command(_POWER_COMMAND), limit_s=_GPU_LIMIT_S).lines)) or None
    return None


def write_report(
    port: int, observations: Sequence[str], hosts: Mapping[str, HostReport], last_lines: Sequence[str]
) -> Path:
    """Write the observations, the stacks of each rank, and each host's counters; keep the last few reports.

    The watchdog's lines follow the engine's, because those may have a start of the engine, and explain drops
    the failures above a start.
    """
    file = server_records.get_log_file(f"stuck-{port}")
    for number in range(_MAX_REPORTS - 1, 0, -1):
        old_file = file.with_suffix(f".log.{number - 1}") if number > 1 else file
        with suppress(FileNotFoundError):
            old_file.replace(file.with_suffix(f".log.{number}"))
    lines = ["the engine's last lines:", *last_lines, ""]
    lines += [f"watchdog: {observation}" for observation in observations]
    for host, report in hosts.items():
        for row in report["processes"]:
            wait_channel = f" in {row['wchan']}" if row["wchan"] not in {"", "0"} else ""
            used = f"{row['cpu_s']:.0f} s of CPU time"
            lines += ["", f"{_describe_process(host, row)}: state {row['state']}{wait_channel}, {used}"]
            lines += row.get("stack", "").splitlines()
        lines += ["", f"counters of {host}:", *report.get("host", "").splitlines()]
    with skip_unusable_file():
        storage.write_text(file, "\n".join([*lines, ""]))
    return file


def _read_last_lines(log: Path) -> list[str]:
    with skip_unusable_file():
        return (storage.read_text(log, errors="replace") or "").splitlines()[-_MAX_LAST_LINES:]
    return []
