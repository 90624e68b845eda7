"""Run a server or a script on the hosts of its plan until it ends."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, Protocol

from medley import credentials, storage
from medley.cluster import device_probe, events, ray_watch
from medley.engine.launch import ENGINES, Launch
from medley.engine.server_spec import ServerSpec, find_tls_folder
from medley.environment import caddy
from medley.errors import Problem, Terminated
from medley.planner import list_hosts
from medley.planner.site import Site
from medley.progress import Output
from medley.serving import metrics, server_description, server_records
from medley.serving.batch_client import BatchServer
from medley.serving.drain import Drain
from medley.serving.edge import Edge
from medley.serving.edge_process import run_edge
from medley.serving.launch_log import log_launch, print_launch
from medley.serving.launches import PreparedLaunch, prepare_launch
from medley.serving.live_keys import LiveKeys
from medley.serving.memory_guard import MemoryGuard
from medley.serving.native import launch_on_joined_hosts
from medley.serving.prepare import Job
from medley.serving.rank_monitor import RankMonitor, reserve_slots
from medley.serving.run_monitors import Monitor
from medley.serving.site import find_site
from medley.serving.start_steps import StartSteps
from medley.serving.supervise import EngineRun, supervise
from medley.serving.watchdog import HostQuery, Watchdog
from medley.values import Value

_MEDLEY_REQUEST_PATTERN = re.compile(r'"GET /(?:metrics)? HTTP/1\.1" (?:200|401)')
"""The watchdog's own requests in the engine's log."""


class Program(Protocol):
    """The program on the hosts of a launch: a server or a script."""

    def run(self, prepared: PreparedLaunch, ranks: RankMonitor, output: Output) -> int:
        """Run it to its end; return the exit code."""


def run_job(job: Job, program: Program, output: Output, site: Site | None = None) -> int:
    """Plan a job on `site`, or on the hosts of its cluster, start it, and return its exit code."""
    prepared = None
    if job.launcher != "mp":
        prepared = prepare_launch(job, site or find_site(job, output), output)
    try:
        with (
            nullcontext(prepared) if prepared else launch_on_joined_hosts(job, output) as job_launch,
            reserve_slots(job_launch, output) as ranks,
        ):
            return program.run(job_launch, ranks, output)
    except KeyboardInterrupt:
        output.say("stopped; nothing of it runs any more")
        raise
    except Problem as problem:
        if isinstance(program, ServerRun):
            events.record_event("fault", str(job.order.serving), f"{problem.what}: {problem.cause}")
        raise


class WorkDone(Exception):  # noqa: N818 - no error: what it was started for is done
    """Raised to end a server that was started for one task, once the task is done."""


class ServerRun(Value):
    """A model's server, which runs until it is ended."""

    start_limit_s: float | None
    """Seconds until it must be ready; None: the plan's limit."""
    announce: Callable[[ServerSpec, str, float], None]
    """Gets the server once it is ready, its first completion, and the seconds that the start took."""
    work: Callable[[BatchServer], None] | None = None
    """The task that the server is started for; it ends after it. None: it serves until it is ended."""
    on_ready: Callable[[int], None] = lambda _: None
    """Gets the number of hosts once it is ready."""
    drain_s: int = 0
    """Seconds that running requests have when it is ended by SIGTERM."""
    is_restarting: bool = False
    stall_limit_s: float = 0
    """Seconds without progress before it is stalled; 0: no watchdog."""

    def run(self, prepared: PreparedLaunch, ranks: RankMonitor, output: Output) -> int:
        """Serve until the engine ends, which is always a Problem; Ctrl-C or a signal leaves it too."""
        server, launch = prepared.order.serving, prepared.launch
        engine, subject = ENGINES[prepared.order.engine], str(server)
        log = server_records.get_log_file(f"serve-{server.port}")
        description = server_description.build_description(prepared.order, launch, prepared.layout)
        hosts = " ".join(prepared.slots.used) if prepared.slots else ""
        record = server_records.record_server(server, drain_s=self.drain_s, hosts=hosts)
        print_launch(launch, output.say, output.detail)
        with (
            ExitStack() as start,
            record as report,
            server_description.store_description(server.port, description),
            log_launch(log, launch) as write_line,
            run_edge(_build_edge(server), caddy.prepare_caddy(output.progress), output.say) as edge,
            _record_start_and_end(subject, launch),
            ExitStack() as ready_server,
            device_probe.probe_daily(launch.command, lambda: metrics.is_idle(server.local_url), output.say),
        ):
            drain, steps = Drain(edge, self.drain_s, output.say), StartSteps(output.progress)
            memory = MemoryGuard(subject, edge, output.say, _get_low_memory_query(prepared))
            start.enter_context(output.progress.stage(f"{engine.TITLE} starts"))

            def on_line(line: str) -> None:
                steps.show_line(line)
                if not _MEDLEY_REQUEST_PATTERN.search(line):
                    write_line(line)
                    output.error(line)

            def on_ready(completion: str, seconds: float) -> None:
                steps.is_over = True
                start.close()
                ranks.require_placement()
                edge.admit("start")
                if self.work:
                    self.work(BatchServer(server.local_url, server.name, None))
                    raise WorkDone
                self.on_ready(len(list_hosts(prepared.layout)))
                if self.is_restarting and prepared.rendezvous:
                    prepared.rendezvous.announce_restart()
                report("ready")
                ready_server.enter_context(drain.drain_on_sigterm())
                memory.is_ready = True
                events.record_event("ready", subject, f"after {seconds:.0f} s")
                self.announce(server, completion, seconds)

            def on_stall(text: str) -> None:
                report("lost: the engine is stuck")
                output.say(text)

            monitors: list[Monitor] = [
                steps,
                *_list_host_monitors(prepared),
                memory,
                LiveKeys(edge, server.key, output.say),
                edge,
                drain,
            ]
            engine_run = EngineRun(
                launch.command,
                url=server.local_url,
                model=server.name,
                limit_s=self.start_limit_s or launch.plan.start_limit_s,
                log=log,
                on_line=on_line,
                find_last_error=engine.find_last_error,
                is_fatal=engine.is_fatal,
            )
            supervise(  # which never returns
                engine_run,
                on_ready=on_ready,
                on_lost=lambda why: report(f"lost: {why}"),
                monitors=monitors,
                watchdog=Watchdog(
                    server.local_url,
                    server.name,
                    server.port,
                    self.stall_limit_s,
                    log,
                    query_hosts=_build_host_query(prepared),
                    on_stall=on_stall,
                ),
            )


def _build_edge(server: ServerSpec) -> Edge:
    """Return the edge of a server, and make its folders private."""
    folder = server.socket.parent
    storage.make_private_folder(folder.parent)
    storage.make_private_folder(folder)
    if server.tls:
        storage.make_private_folder(find_tls_folder())
    storage.remove_file(server.socket)  # a killed engine's: vLLM 0.32.0 does not replace it
    return Edge(
        server.address,
        server.port,
        server.socket,
        folder,
        credentials.read_keys(server.key) if server.key else None,
        is_loopback=not credentials.is_reachable_address(server.address),
        tls=server.tls,
        origins=server.origins,
    )


@contextmanager
def _record_start_and_end(subject: str, launch: Launch) -> Iterator[None]:
    """Record the server's start as an event, and its end if it was requested."""
    events.record_event("start", subject, "; ".join(launch.plan.why[:1]))
    try:
        yield
    except KeyboardInterrupt:
        events.record_event("end", subject, "by Ctrl-C, or medley stop --now")
        raise
    except WorkDone:
        events.record_event("end", subject, "its work is done")
        raise
    except Terminated as signal:
        events.record_event("end", subject, str(signal))
        raise


def _get_low_memory_query(prepared: PreparedLaunch) -> Callable[[], str | None]:
    """Return a function that names another host whose memory is low."""
    return prepared.rendezvous.find_low_memory if prepared.rendezvous else lambda: None


def _list_host_monitors(prepared: PreparedLaunch) -> Iterator[Monitor]:
    """Yield the monitors that raise a Problem once other hosts or their Ray are gone."""
    if prepared.rendezvous:
        yield prepared.rendezvous
    elif prepared.ray_cluster:
        yield ray_watch.RayWatch(prepared.ray_cluster)


def _build_host_query(prepared: PreparedLaunch) -> HostQuery:
    """Return a function that requests the processes of the ranks on other hosts."""
    cluster = prepared.ray_cluster
    if prepared.rendezvous:
        return prepared.rendezvous.ask_hosts
    if cluster is None:
        return lambda **_: {}

    def ask_hosts(*, is_final: bool) -> Mapping[str, Any]:
        answer = cluster.ask("look", cluster.address, *(["stacks"] if is_final else []))
        return {**answer["hosts"], **dict.fromkeys(answer["silent"])}

    return ask_hosts
