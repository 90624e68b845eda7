"""`medley serve`."""

import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from medley import credentials
from medley.cli import Verb, flag, group, switch, terminal
from medley.cli.cluster_options import HeadChoice, drop_medley_switches, run_at_head
from medley.cli.launch_options import (
    TRUST_SWITCHES,
    ContainerOptions,
    HostOptions,
    PlanningOptions,
    read_site,
)
from medley.cli.output import build_dry_run_problem, create_output, print_command, print_result, print_steps
from medley.cli.progress import start_progress
from medley.cluster import events, self_command, unit_file, units
from medley.cluster.restart_rule import KILLED_SERVER_RULE, SERVED_ENGINE_RULE
from medley.cluster.unit_file import Unit
from medley.command import Command, quote_path
from medley.engine.server_spec import ServerSpec
from medley.errors import Problem
from medley.model.trust import Trust
from medley.network import ports, tcp
from medley.network.http_client import format_bearer_pipe
from medley.planner.site import Site
from medley.progress import Output, Progress
from medley.serving import port_claim, server_records
from medley.serving.certificate import choose_tls
from medley.serving.launches import prepare_launch
from medley.serving.prepare import Job, prepare_job
from medley.serving.request import LaunchRequest, ListenOptions
from medley.serving.server_records import format_url
from medley.serving.site import find_site, find_this_host
from medley.serving.stall_rule import STALL_LIMIT_S
from medley.serving.typed_commands import list_hypothetical_steps

if TYPE_CHECKING:  # httpx: a fifth of what a plan takes, and most runs end before it is needed
    from medley.serving.server import ServerRun

_POLL_INTERVAL_S = 0.2
_LAST_LINES = 20
"""Lines of the engine's output that a failure shows."""
_END_HINT = "Ctrl-C ends it"
_HOSTS = switch(
    "--hosts N|KINDS",
    "number of hosts of the cluster, 1 for this host only; with --dry-run also kinds: spark:2,thor:1",
    excludes=["--from"],
)


@dataclass(frozen=True)
class ServeOptions:
    planning: PlanningOptions = group(PlanningOptions)
    trust: Trust = group(Trust, **TRUST_SWITCHES)
    hosting: HostOptions = group(HostOptions, hosts=_HOSTS)
    container: ContainerOptions = group(ContainerOptions)
    port: int = switch("--port PORT", "port of the API", default=ports.API_PORT)
    host: str = switch(
        "--host ADDRESS",
        "address to listen on; 0.0.0.0 opens the server to the network, with an API key",
        default="127.0.0.1",
    )
    api_key: str | None = switch(
        "--api-key FILE",
        "file of the API key that requests need, or none [default: medley's keys if --host opens the server]",
    )
    served_name: str | None = switch("--served-model-name NAME", "model name in requests")
    origins: tuple[str, ...] = switch(
        "--allow-origin ORIGIN",
        "origin of web pages that may ask, such as https://chat.example; requests then need a key",
    )
    tls: bool = flag("--tls", "encrypt the API, with a certificate of medley's own authority")
    tls_certificate: str | None = switch("--tls-cert FILE", "certificate of your own, with its chain")
    tls_key: str | None = switch("--tls-key FILE", "private key of that certificate")
    timeout_s: int | None = switch(
        "--timeout SECONDS",
        "time limit until it is ready [default: 1800, and longer where kernels are compiled first]",
        (1, 86_400),
    )
    replayed: tuple[str, ...] = switch("--from FILE", "transcript of a host to plan for; only with --dry-run")
    dry_run: bool = flag("--dry-run", "print the command with its reasons; start nothing")
    as_json: bool = flag("--json", "one JSON object: the command, or the address once it is ready")

    @property
    def hypothetical_kinds(self) -> str | None:
        """The value of --hosts if it names kinds of hosts, which one need not own."""
        hosts = self.hosting.hosts
        return hosts if hosts is not None and not hosts.isdecimal() else None

    def build_request(
        self, model: str, engine_flags: tuple[str, ...], user_command: tuple[str, ...]
    ) -> LaunchRequest:
        """Return the request of these options; raise a Problem for a second model or hosts elsewhere."""
        if engine_flags and not engine_flags[0].startswith("-"):
            raise _second_model_problem(model, engine_flags[0])
        kinds = self.hypothetical_kinds
        is_elsewhere = bool(self.replayed) or kinds is not None
        if is_elsewhere and not self.dry_run:
            raise build_dry_run_problem("serve MODEL", "--from FILE" if self.replayed else f"--hosts {kinds}")
        tls = choose_tls(self.host, self.tls_certificate, self.tls_key, is_requested=self.tls)
        return self.hosting.build_request(model, self.planning, self.trust, user_command).replace(
            engine_flags=engine_flags,
            image=self.container.build_image_request(),
            nccl=self.container.nccl,
            dry_run=self.dry_run,
            other_site=read_site(self.replayed, kinds, self.hosting.kind) if is_elsewhere else None,
            listen=ListenOptions(self.host, self.port, self.served_name, self.api_key, self.origins, tls),
        )


def _second_model_problem(model: str, word: str) -> Problem:
    fix = f"medley serve {model} --port {word}" if word.isdigit() else f"medley serve {model}"
    return Problem(
        f"serve takes one model: {word!r} is a second",
        cause="switches of serve begin with --, and the engine's flags come after --",
        fix=fix,
    )


def show_dry_run(request: LaunchRequest, *, as_json: bool) -> None:
    """Print what would be started, and why."""
    output = create_output()
    job = prepare_job(request, output)
    site = find_site(job, output)
    if len(site.hosts) > 1 and not job.cluster:
        print_steps(list_hypothetical_steps(job, site, output), as_json=as_json)
    else:
        launch = prepare_launch(job, site, output).launch
        print_command(launch.command, launch.list_reasons(), as_json=as_json)


class ServeVerb(Verb):
    USAGE = "    {progname} [OPTIONS] MODEL [-- ENGINE FLAGS]\n"
    HINT = "flags of the engine come after --: medley serve MODEL -- --max-model-len 8192"

    options: ServeOptions = group(ServeOptions)
    head_choice: HeadChoice = group(HeadChoice)
    detach: bool = flag("--detach", "run it in the background; return once it is ready; medley stop ends it")
    replace: bool = flag(
        "--replace", "take the place of the detached server on this port; if this one fails, start that again"
    )
    restart: bool = flag("--restart", "start it again when it is lost, once the hosts it needs are back")
    on_event: str | None = switch(
        "--on-event COMMAND|FILE",
        "shell command to run on each fault and recovery, or its file; it has the event in JSON on stdin",
    )
    drain_s: int = switch(
        "--drain SECONDS",
        "time for running requests when it is stopped, 0 for none",
        (0, 86_400),
        default=30,
    )
    stall_limit_s: int = switch(
        "--stall-limit SECONDS",
        "longest time without progress before it counts as stuck; 0 for no watchdog",
        (0, 86_400),
        default=STALL_LIMIT_S,
    )
    verbose: bool = flag("-v, --verbose", "print every reason, the command and the engine's output")

    def main(self, model: str, *flags: str) -> int:
        options = self.options
        is_for_this_host = bool(
            options.dry_run or options.replayed or options.hosting.hosts == "1" or options.hosting.launcher
        )
        on_event = (
            self.on_event or os.environ.get(events.COMMAND_VARIABLE) or self.head_choice.read_on_event()
        )
        if not is_for_this_host and (head := self.head_choice.find_remote_head()):
            return run_at_head(head, on_event)
        if options.dry_run:
            show_dry_run(options.build_request(model, flags, self.typed_words), as_json=options.as_json)
            return 0
        if on_event:  # the unit's supervisor and whatever notes an event here reads it
            os.environ[events.COMMAND_VARIABLE] = str(events.write_command_file(on_event))
        if self.replace:
            request = options.build_request(model, flags, self.typed_words)
            return replace_detached(request, restart=self.restart, drain_s=self.drain_s)
        if self.detach:
            return serve_detached(options.port, restart=self.restart, drain_s=self.drain_s)
        with nullcontext(create_output()) if self.verbose else hide_engine_output() as output:
            return self._serve(options.build_request(model, flags, self.typed_words), output)

    def _serve(self, request: LaunchRequest, output: Output) -> int:
        from medley.serving.restarter import REJOIN_LIMIT_S, recall_host_count

        listen = request.listen
        with (
            port_claim.claim_port(listen.name or request.model, listen.address, listen.port),
            recall_host_count(listen.port, output.say) if self.restart else nullcontext() as host_count,
        ):
            if host_count and request.hosts is None:  # as many as it ran over before it was cut off
                request = request.replace(hosts=str(host_count), wait_s=REJOIN_LIMIT_S)
            job = prepare_job(request, output)
            from medley.serving.server import ServerRun, run_job

            announce = partial(announce_server, as_json=self.options.as_json)
            server = ServerRun(
                self.options.timeout_s, announce, drain_s=self.drain_s, stall_limit_s=self.stall_limit_s
            )
            if self.restart:
                _run_restarting(job, server, output)
            return run_job(job, server, output)


@contextmanager
def hide_engine_output() -> Iterator[Output]:
    """Yield an output that leaves out the engine's output; a failure shows its last lines."""
    output, last_lines = create_output(), deque[str](maxlen=_LAST_LINES)
    try:
        yield output.replace(detail=lambda _: None, error=last_lines.append)
    except Problem:
        for line in last_lines:
            output.error(f"  | {line}")
        raise


def _run_restarting(job: Job, server: "ServerRun", output: Output) -> NoReturn:
    from medley.serving.restarter import Restarter
    from medley.serving.server import run_job

    def attempt(site: Site, on_ready: Callable[[int], None]) -> None:
        run_job(job, server.replace(on_ready=on_ready, is_restarting=True), output, site)

    find_host = partial(find_this_host, job.request.kind, output.say)
    is_over_ray = job.launcher != "mp"
    site = find_site(job, output) if is_over_ray else find_host()
    restarter = Restarter(
        SERVED_ENGINE_RULE, job.order.serving, job.cluster, output, find_host, has_same_hosts=is_over_ray
    )
    restarter.run(attempt, site)


def announce_server(server: ServerSpec, completion: str, seconds: float, *, as_json: bool) -> None:
    """Print the address of a ready server and how to ask it."""
    url, model = format_url(server), server.name
    key = credentials.choose_client_key_file(server.key) if server.key else None
    table = {"url": url, "model": model, "pid": os.getpid(), "key": str(key) if key else None}
    pipe, header = (format_bearer_pipe(f"$(cat {quote_path(key)})"), " -H @-") if key else ("", "")
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Hello"}]})
    access_lines = ""
    if server.address in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
        access_lines = f"from other hosts: {format_url(server.replace(address=tcp.find_outward_address()))}\n"
    trust_words, authority = "", server.tls and server.tls.authority
    if authority:
        trust_words = f" --cacert {quote_path(authority)}"
        access_lines += f"clients trust it by this file, which other hosts need a copy of: {authority}\n"
    text = (
        f"\nready after {seconds:.0f} s: {model} at {url}, and it answered {completion!r}\n{access_lines}\n"
        f'    medley chat "Hello"\n'
        f"    {pipe}curl{trust_words} {url}/chat/completions"
        f" -H 'Content-Type: application/json'{header} -d '{body}'\n\n"
        f"{_END_HINT}; medley logs shows what the engine prints.\n"
    )
    print_result(table, [text], as_json=as_json)


def serve_detached(port: int, *, restart: bool, drain_s: int) -> int:
    """Run this command without --detach as a unit; return once it is ready.

    Raise a Problem if it ends before. The unit goes on where its terminal is closed or this process ends.
    Only Ctrl-C here ends it.
    """
    port_claim.require_unused_port(port)
    unit = build_server_unit(port, restart=restart, drain_s=drain_s)
    name = unit.name
    progress = start_progress()
    with terminal.survive_hangup():
        with units.claim_start(name):
            units.start_unit(unit)
        try:
            with progress.stage(f"{name}: until it is ready"):
                ready_lines = wait_until_ready(name, port, progress)
        except (KeyboardInterrupt, Problem):
            units.stop_unit(name)
            raise
    return _print_ready(name, ready_lines)


def replace_detached(request: LaunchRequest, *, restart: bool, drain_s: int) -> int:
    """Run it as a unit in place of the server on this port, which ends first: there is one memory."""
    from medley.serving import upgrade

    port = request.listen.port
    unit = build_server_unit(port, restart=restart, drain_s=drain_s)
    old_server = upgrade.find_running_server(port)
    upgrade.prepare_host(request, create_output())
    progress = start_progress()
    with terminal.survive_hangup(), progress.stage(f"{unit.name}: until it is replaced"):
        lines, gap_s = upgrade.replace_server(
            old_server, unit, port, partial(wait_until_ready, unit.name, port, progress)
        )
    return _print_ready(f"after {gap_s:.0f} s without an answer {unit.name}", lines)


def build_server_unit(port: int, *, restart: bool, drain_s: int) -> Unit:
    """Return the unit that runs this command without the switches that detach it."""
    dropped = {"--detach": 0, "--replace": 0, "--cluster": 1, "-v": 0, "--verbose": 0, "--on-event": 1}
    verb, *other_words = drop_medley_switches(sys.argv[1:], dropped)
    # A unit can be read: it has the command's file, and not its text.
    on_event = os.environ.get(events.COMMAND_VARIABLE)
    words = [verb, *(("--on-event", on_event) if on_event else ()), *other_words]
    start_here = ("env", f"--chdir={Path.cwd()}")  # a folder may be named from here
    command = Command(
        (*start_here, *self_command.get_own_command(), *words), self_command.list_own_variables()
    )
    restart_rule = KILLED_SERVER_RULE if restart else None
    limit_s = unit_file.STOP_LIMIT_S + drain_s
    return Unit(
        f"{unit_file.SERVER_UNIT_PREFIX}{port}", " ".join(words), command, restart_rule, stop_limit_s=limit_s
    )


def _print_ready(name: str, ready_lines: list[str]) -> int:
    print(
        "\n".join(ready_lines).rstrip()
    )  # without a spinner, which would wrap these lines, that users paste
    print(f"{name} serves; medley logs shows what it says, medley stop ends it")
    return 0


def wait_until_ready(name: str, port: int, progress: Progress) -> list[str]:
    """Wait until the server is ready, and show its lines and downloads; return the lines about it."""
    shown_count = seen_count = 0
    while True:
        state = units.read_state(name)
        is_over = state is None or not state.kept or state.restarts > 0
        # Before its command begins, its log has the words of the one before.
        has_begun = is_over or (state is not None and (state.running or state.status is not None))
        lines = units.read_last_log_lines(name) if has_begun else []
        # The last line waits for a second look: with a cause below it, it is the Problem that is raised here.
        until = len(lines) if is_over or len(lines) == seen_count else max(shown_count, len(lines) - 1)
        for index in range(shown_count, until):
            if not lines[index].startswith("medley: "):
                progress.moved(lines[index])
            elif not lines[index + 1 : index + 2] or not lines[index + 1].startswith("  cause:"):
                print(lines[index], file=sys.stderr)
        shown_count, seen_count = until, len(lines)
        ready_index = next(
            (index for index, line in enumerate(lines) if line.startswith("ready after")), None
        )
        if ready_index is not None and server_records.is_ready(port):
            end = next((index for index, line in enumerate(lines) if line.startswith(_END_HINT)), len(lines))
            return lines[ready_index:end]
        if is_over:
            raise _end_problem(name, units.read_last_log_lines(name))
        time.sleep(_POLL_INTERVAL_S)


def _end_problem(name: str, lines: list[str]) -> Problem:
    """Return the Problem that the unit printed, else one with its last lines."""
    log_fix = f"read its whole output: less {units.get_log_file(name)}"
    cause_index = max(
        (index for index, line in enumerate(lines) if line.startswith("  cause:")), default=None
    )
    if cause_index is None:
        return Problem(f"{name} ended", cause="\n".join(lines[-6:]), fix=log_fix)
    what = lines[cause_index - 1].removeprefix("medley: ") if cause_index else f"{name} ended"
    fixes = [line.removeprefix("  fix:").strip() for line in lines[cause_index:] if line.startswith("  fix:")]
    return Problem(
        what, cause=lines[cause_index].removeprefix("  cause:").strip(), fix="\n".join((*fixes[:1], log_fix))
    )
