"""Run a server or a script on the hosts of its plan until it ends."""

import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from medley import credentials, engine, explain, serving, storage
from medley.cluster import device_probe, events, membership, model_files, ray_serving, ray_watch
from medley.engine import Serving, find_tls_folder
from medley.engine.launch import ENGINES, Launch
from medley.environment import caddy
from medley.errors import Problem, Terminated
from medley.planner import list_hosts
from medley.planner.topology import Topology
from medley.process import Process
from medley.progress import Output
from medley.serving import metrics, weights
from medley.serving.batch_client import Answering
from medley.serving.drain import Drain
from medley.serving.edge import Edge
from medley.serving.edge_process import running_edge
from medley.serving.live_keys import LiveKeys
from medley.serving.memory_guard import MemoryGuard
from medley.serving.native import meeting
from medley.serving.prepare import Job, Launched, launched, topology
from medley.serving.start_steps import StartSteps
from medley.serving.supervise import supervise
from medley.serving.watchdog import Hosts, Watchdog

_LOOK_EVERY_S = 0.1
_RANKS_EVERY_S = 4
_LAST_ERRORS = 400
_OFTEN = re.compile(r'"GET /(?:metrics)? HTTP/1\.1" (?:200|401)')
"""The watchdog's own requests in the engine's log."""


def run(job: Job, program: "Served | ScriptRun", output: Output, site: Topology | None = None) -> int:
    """Plan a job on the hosts that are there, start it, and return its exit code."""
    made = None if job.by == "mp" else launched(job, site or topology(job, output), output)
    try:
        with nullcontext(made) if made else meeting(job, output) as found, held(found, output) as ranks:
            return program.run(found, ranks, output)
    except KeyboardInterrupt:
        output.say("stopped; nothing of it runs any more")
        raise
    except Problem as problem:
        if isinstance(program, Served):
            events.note("fault", str(job.order.serving), f"{problem.what}: {problem.cause}")
        raise


@dataclass
class Ranks:
    """The ranks of an engine over the cluster's hosts; slots are held for them until they are placed."""

    found: Launched
    output: Output
    start: ExitStack
    """Ends once they have them."""
    addresses: dict[int, str] = field(default_factory=dict)
    """Of each rank, once they are known."""
    next_look: float = 0.0

    def placed(self) -> None:
        """Look where they are once the engine answers; a Problem where the plan has them elsewhere."""
        if not self.found.over_ray:
            return
        self.start.close()
        seen, plan, taken = ray_serving.ranks(self.found.over_ray), self.found.launch.plan, self.found.taken
        if plan.replicas > 1 and taken:
            self.output.say(f"{plan.replicas} replicas, on {', '.join(taken.slots)}")
        else:
            self._note(seen)

    def look(self) -> None:
        """Look for them now and then, for a script, which never says that its engine is ready."""
        joined, taken = self.found.over_ray, self.found.taken
        if not (joined and taken) or self.addresses or time.monotonic() < self.next_look:
            return
        try:
            seen = ray_serving.ranks(joined)
        except Problem:  # the head is busy; it is asked again
            seen = []
        if len(seen) == sum(taken.slots.values()):
            self.start.close()
            self._note(seen)
        self.next_look = time.monotonic() + _RANKS_EVERY_S

    def _note(self, seen: list[tuple[int, int, str]]) -> None:
        if self.found.taken:
            ray_serving.require_order(seen, self.found.taken.slots, self.found.launch.plan.tensor_parallel)
        for rank, (stage, tensor, address) in enumerate(seen):
            self.addresses[rank] = address
            self.output.say(f"stage {stage}, tensor rank {tensor}: {address}")


@contextmanager
def held(found: Launched, output: Output) -> Iterator[Ranks]:
    """Bring what its hosts need, and hold their slots while the body runs it; name a host that is lost."""
    joined, taken, order = found.joined, found.taken, found.order
    name = order.weights.name
    if joined and taken and found.over_ray:
        weights.fetch_on_all(joined, taken.slots, name, weights.wanted(order), output.watch)
    elif not found.meeting:
        weights.fetch(name, weights.wanted(order), output.watch)
    with ExitStack() as around:
        start = ExitStack()
        ranks = Ranks(found, output, start)
        if found.meeting:
            around.enter_context(found.meeting.blamed())
        elif joined and taken and found.over_ray:
            engine.write_hidden_names(found.launch.annotated_command)
            folder = Path(found.order.serving.target)
            if folder.is_absolute():
                ray_serving.require_weights(joined, folder)
            model_files.bring_files(joined, found.launch.model_extras, output.watch)
            around.enter_context(ray_watch.explain_host_loss(joined, ranks.addresses))
            around.enter_context(start)
            start.enter_context(membership.held(joined, taken.spare))
        elif joined and taken:
            around.enter_context(membership.held(joined, taken.slots))
        yield ranks


class Ended(Exception):  # noqa: N818 - no error: what it was started for is done
    """The model was served for one thing, and that is done."""


@dataclass(frozen=True)
class Served:
    """A model's server, which runs until it is ended."""

    limit_s: float | None
    """Until it must be ready; None: the plan's."""
    announce: Callable[[Serving, str, float], None]
    """Is told when it is ready, by which completion, and after how many seconds."""
    then: Callable[[Answering], None] | None = None
    """What is to be done once it is ready; then it ends."""
    on_ready: Callable[[int], None] = lambda _: None
    """Is told over how many hosts it runs."""
    drain_s: int = 0
    """How long running requests have when it is ended by SIGTERM."""
    restarts: bool = False
    stall_limit_s: float = 0
    """Without progress; 0: no watchdog."""

    def run(self, found: Launched, ranks: Ranks, output: Output) -> int:
        listens, launch = found.order.serving, found.launch
        engine = ENGINES[found.order.placement.engine]
        log = serving.log_file(f"serve-{listens.port}")
        what = serving.description(found.order, launch, found.layout)
        hosts = " ".join(found.taken.slots) if found.taken else ""
        noted = serving.note_server(listens, drain_s=self.drain_s, hosts=hosts)
        subject = str(listens)
        _announce(launch, output.say, output.detail)
        with (
            ExitStack() as start,
            noted as report,
            serving.keep_description(listens.port, what),
            _kept(log, launch) as keep,
            running_edge(_edge(listens), caddy.ready(output.watch), output.say) as edge,
            _noted(subject, launch),
            ExitStack() as served,
            device_probe.probed_daily(launch.command, lambda: metrics.is_idle(listens.local_url), output.say),
        ):
            drain, keys = Drain(edge, self.drain_s, output.say), LiveKeys(edge, listens.key, output.say)
            memory = MemoryGuard(
                subject, edge, output.say, found.meeting.low if found.meeting else lambda: None
            )
            lost = _check(found)
            start.enter_context(output.watch.stage(f"{engine.TITLE} starts"))
            steps = StartSteps(output.watch)

            def on_line(line: str) -> None:
                steps.line(line)
                if not _OFTEN.search(line):
                    keep(line)
                    output.error(line)

            def on_ready(completion: str, seconds: float) -> None:
                steps.is_over = True
                start.close()
                ranks.placed()
                edge.close("start", None)
                if self.then:
                    self.then(Answering(listens.local_url, listens.name, None))
                    raise Ended
                self.on_ready(len(list_hosts(found.layout)))
                if self.restarts and found.meeting:
                    found.meeting.will_restart()
                report("ready")
                served.enter_context(drain.on_sigterm())
                memory.ready = True
                events.note("ready", subject, f"after {seconds:.0f} s")
                self.announce(listens, completion, seconds)

            def stuck(text: str) -> None:
                report("lost: the engine is stuck")
                output.say(text)

            def check() -> None:
                steps.look()
                lost()
                memory.look()
                keys.look()
                edge.look()
                drain.look()

            supervise(
                launch.command,
                url=listens.local_url,
                model=listens.name,
                limit_s=self.limit_s or launch.plan.start_limit_s,
                log=log,
                on_line=on_line,
                on_ready=on_ready,
                last_error=engine.find_last_error,
                fatal=engine.is_fatal,
                check=check,
                watchdog=Watchdog(
                    listens.local_url,
                    listens.name,
                    listens.port,
                    self.stall_limit_s,
                    log,
                    hosts=_hosts(found),
                    say=stuck,
                ),
                on_lost=lambda why: report(f"lost: {why}"),
            )


def _edge(listens: Serving) -> Edge:
    storage.make_private(listens.socket.parent.parent)
    folder = storage.make_private(listens.socket.parent)
    if listens.tls:
        storage.make_private(find_tls_folder())
    storage.remove_file(listens.socket)  # a killed engine's: vLLM 0.32.0 does not replace it
    keys = credentials.read_keys(listens.key) if listens.key else None
    loopback = not credentials.is_open(listens.address)
    return Edge(
        listens.address,
        listens.port,
        listens.socket,
        folder,
        keys,
        loopback=loopback,
        tls=listens.tls,
        origins=listens.origins,
    )


@contextmanager
def _noted(subject: str, launch: Launch) -> Iterator[None]:
    """Keep its start, and an end that somebody asked for, as events."""
    events.note("start", subject, "; ".join(launch.plan.why[:1]))
    try:
        yield
    except Problem:
        raise
    except KeyboardInterrupt:
        events.note("end", subject, "by Ctrl-C, or medley stop --now")
        raise
    except Ended:
        events.note("end", subject, "its work is done")
        raise
    except Terminated as ended:
        events.note("end", subject, str(ended))
        raise


def _check(found: Launched) -> Callable[[], None]:
    """Return what raises a Problem once its hosts or their Ray are gone."""
    if found.meeting:
        return found.meeting.require_all
    return ray_watch.RayWatch(found.over_ray).look if found.over_ray else lambda: None


def _hosts(found: Launched) -> Hosts:
    """Return what asks the other hosts what their ranks do."""
    if found.meeting:
        return found.meeting.look
    joined = found.over_ray
    if joined is None:
        return lambda **_: {}

    def look(*, stacks: bool) -> Mapping[str, Any]:
        found = joined.ask("look", joined.address, *(["stacks"] if stacks else []))
        return {**found["hosts"], **dict.fromkeys(found["silent"])}

    return look


@dataclass(frozen=True)
class ScriptRun:
    """A script; on several hosts it is done when it is done on all."""

    script: Path

    def run(self, found: Launched, ranks: Ranks, output: Output) -> int:
        met = found.meeting
        self._run_here(found, met.require_all if met else ranks.look, output)
        while met and not all(each.done for each in met.members):
            met.require_all()
            time.sleep(_LOOK_EVERY_S)
        return 0

    def _run_here(self, found: Launched, look: Callable[[], None], output: Output) -> None:
        launch, engine = found.launch, ENGINES[found.order.placement.engine]
        keep_files(launch)
        _announce(launch, output.say, output.say)
        log = serving.log_file(f"run-{self.script.stem}")
        lost, errors = list[str](), deque[str](maxlen=_LAST_ERRORS)
        with _kept(log, launch) as keep:

            def on_line(line: str) -> None:
                keep(line)
                output.out(line)

            def on_error(line: str) -> None:
                keep(line)
                errors.append(line)
                if engine.is_fatal(line):
                    lost.append(line)
                output.error(line)

            process = Process(launch.command, on_line, on_error)
            try:
                while process.wait(_LOOK_EVERY_S) is None and not lost:
                    look()
            finally:
                process.stop()
        finished = process.poll()
        status = 1 if lost or not finished else finished.status
        if status:
            # Stdout and stderr arrive in no order of their own, so its last word is that of stderr.
            lines = lost or list(process.last)
            raise self._failed(status, engine.find_last_error(lines), (*lines, *errors), log)

    def _failed(self, status: int, error: str | None, lines: Iterable[str], log: Path) -> Problem:
        printed = [each for each in lines if each.strip()]
        problem = Problem(
            f"{self.script.name} ended with exit code {status}",
            cause=(error or (printed[-1] if printed else "")).strip()[:1000] or "it printed nothing",
            fix=f"read its whole output: less {log}",
            status=status,
        )
        return explain.explain_problem(problem, log)


def keep_files(launch: Launch) -> None:
    """Write what the command reads; what is there already is the same, or the script itself."""
    for name, text in launch.files.items():
        if not storage.exists(Path(name)):
            storage.write(Path(name), text)


def _announce(launch: Launch, say: Callable[[str], None], detail: Callable[[str], None]) -> None:
    """Say the plan's first reason and what may be unwelcome; the rest is for `detail`."""
    first, others = launch.plan.why[:1], launch.plan.why[1:]
    for shown, lines in (say, first), (detail, others), (say, launch.model_extras.why()):
        for line in lines:
            shown(line)
    detail(f"$ {launch.command}")


@contextmanager
def _kept(log: Path, launch: Launch) -> Iterator[Callable[[str], object]]:
    """Keep lines in a new log, which begins with the command and its reasons."""
    with storage.log(log) as keep:
        for line in (*(f"medley: {reason}" for reason in launch.plan.why), f"$ {launch.command}"):
            keep(line)
        yield keep
