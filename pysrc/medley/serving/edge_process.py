"""Run the edge, Caddy, in front of one server: start it, change what it lets in, count its open requests."""

import json
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

import httpx

from medley import process, storage
from medley.cluster import events
from medley.command import Command
from medley.errors import Problem
from medley.network import http_client
from medley.network.socket_url import write_socket_url
from medley.process import Process
from medley.serving.edge import Edge, EdgeClosure

_START_LIMIT_S, _CONTROL_LIMIT_S, _END_GRACE_S = 20, 10, 5
_MAX_LAST_LINES = 20
_MAX_RESTARTS, _RESTART_WINDOW_S = 5, 60
_RETRY_PAUSE_S = 10
STARTING_CLOSURE = EdgeClosure("the model is loading", has_engine=False)


@dataclass
class EdgeProcess:
    """A running edge, which is Caddy in front of an engine.

    It is started again if it ends: its streams are lost, but the loaded model is not.
    """

    settings: Edge
    program: Path
    print_line: Callable[[str], None]
    _process: Process | None = None
    _closures: dict[str, EdgeClosure] = field(default_factory=dict)
    _start_times_s: list[float] = field(default_factory=list)
    _lines: deque[str] = field(default_factory=lambda: deque(maxlen=_MAX_LAST_LINES))
    _is_configured: bool = True
    """Whether Caddy has the present configuration; `check` sends it again if a busy one did not answer."""
    _retry_at_s: float = 0
    """The earliest time, by the monotonic clock, at which `check` sends it again."""
    _accepted_settings: Edge | None = None
    """The settings that Caddy has."""
    refusal_cause: str | None = None
    """Why Caddy refuses the present configuration; it keeps the one before, and the engine runs on."""

    def refuse(self, reason_name: str, closure: EdgeClosure) -> None:
        """Refuse new requests for a named reason, until `admit` removes it."""
        self._replace_closures({**self._list_other_closures(reason_name), reason_name: closure})

    def admit(self, reason_name: str) -> None:
        """Remove a reason to refuse new requests; without reasons it is open."""
        self._replace_closures(self._list_other_closures(reason_name))

    def _list_other_closures(self, reason_name: str) -> dict[str, EdgeClosure]:
        return {name: closure for name, closure in self._closures.items() if name != reason_name}

    def _replace_closures(self, closures: dict[str, EdgeClosure]) -> None:
        old_closure = self._current_closure
        self._closures = closures
        if self._current_closure != old_closure:
            self._configure()

    def replace_settings(self, settings: Edge) -> None:
        """Use other keys or limits; open streams go on."""
        self.settings = settings
        self._configure()

    def check(self) -> None:
        """Start it again where it has ended; call it often. Raises a Problem if it ends again and again."""
        if self._process is None:
            return
        finished = self._process.poll()
        if finished is None:
            if not self._is_configured and time.monotonic() >= self._retry_at_s:
                self._configure()
            return
        now = time.monotonic()
        self._start_times_s = [
            start_s for start_s in self._start_times_s if now - start_s < _RESTART_WINDOW_S
        ]
        if len(self._start_times_s) > _MAX_RESTARTS:
            raise _edge_problem(self.settings, finished.lines)
        events.record_event(
            "fault",
            str(self.settings.port),
            f"the edge ended with exit code {finished.status}; it is started again",
        )
        self.print_line(f"Caddy, which answers on port {self.settings.port}, ended; it is started again")
        if self.refusal_cause and self._accepted_settings:
            self.settings = self._accepted_settings
        self.start()

    def start(self) -> None:
        """Start it and wait until it listens; raises a Problem with its own reason."""
        self._start_times_s.append(time.monotonic())
        file = self.settings.folder / "caddy.json"
        storage.remove_file(self.settings.control_socket)
        storage.write_text(
            file, json.dumps(self.settings.build_configuration(self._current_closure)), secret=True
        )
        environment = {
            "XDG_DATA_HOME": str(self.settings.folder),
            "XDG_CONFIG_HOME": str(self.settings.folder),
            "GOMEMLIMIT": "512MiB",
        }
        command = Command((str(self.program), "run", "--config", str(file)), environment)
        self._is_configured, self.refusal_cause = True, None
        self._process = started = Process(command, self._lines.append)
        process.wait_until(lambda: started.poll() or self._is_answering(), _START_LIMIT_S)
        if (finished := started.poll()) or not self._is_answering():
            started.stop(_END_GRACE_S)
            raise _edge_problem(self.settings, finished.lines if finished else tuple(started.last_lines))
        self._accepted_settings = self.settings

    def stop(self) -> None:
        if self._process:
            self._process.stop(_END_GRACE_S)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def _current_closure(self) -> EdgeClosure | None:
        return next(reversed(self._closures.values()), None)

    def _is_answering(self) -> bool:
        try:
            return (
                self._request_control("GET", "/config/apps/http/servers/edge/listen").status_code
                == HTTPStatus.OK
            )
        except httpx.HTTPError:
            return False

    def _configure(self) -> None:
        """Change the running configuration; streams go on (18 ms were seen)."""
        if self._process is None:
            return
        self._is_configured, self._retry_at_s = False, 0
        try:
            answer = self._request_control(
                "POST", "/load", self.settings.build_configuration(self._current_closure)
            )
        except httpx.HTTPError:  # it is busy, or it ended: `check` goes on
            return
        if answer.status_code == HTTPStatus.OK:
            if self.refusal_cause:
                self.print_line("Caddy takes the change now")
            self._is_configured, self.refusal_cause, self._accepted_settings = True, None, self.settings
            return
        self._retry_at_s = time.monotonic() + _RETRY_PAUSE_S  # such as a certificate that comes back
        problem = _edge_problem(self.settings, (answer.text[:500],))
        if problem.cause != self.refusal_cause:
            self.refusal_cause = problem.cause
            text = f"Caddy refuses a change, and keeps what it had: {problem.cause}"
            events.record_event("fault", str(self.settings.port), text)
            self.print_line(text)

    def _request_control(self, method: str, path: str, body: object = None) -> httpx.Response:
        return request_control(self.settings.control_socket, method, path, body)


def request_control(
    control_socket: Path, method: str, path: str, body: object = None, *, limit_s: float | None = None
) -> httpx.Response:
    """Send a request to Caddy's control socket. Raises httpx.HTTPError."""
    url, options = http_client.resolve_target(write_socket_url(control_socket, path))
    with httpx.Client(timeout=limit_s or _CONTROL_LIMIT_S, **options) as client:
        return client.request(method, url, json=body)


def count_open_requests(control_socket: Path) -> int:
    """Return how many requests are inside the engine. Raises httpx.HTTPError.

    Caddy 2.11.7 lists an upstream once for each handler that has it, each time with all of its requests.
    """
    upstreams = request_control(control_socket, "GET", "/reverse_proxy/upstreams").json()
    return max((upstream["num_requests"] for upstream in upstreams or ()), default=0)


@contextmanager
def run_edge(edge: Edge, program: Path, print_line: Callable[[str], None]) -> Iterator[EdgeProcess]:
    """Run the edge during the body, closed because the model is loading; the body opens it."""
    edge_process = EdgeProcess(edge, program, print_line)
    edge_process.refuse("start", STARTING_CLOSURE)
    try:
        edge_process.start()
        yield edge_process
    finally:
        edge_process.stop()
        shutil.rmtree(edge.folder, ignore_errors=True)


def _edge_problem(edge: Edge, lines: tuple[str, ...]) -> Problem:
    text = next((line for line in reversed(lines) if line.strip()), "it printed nothing")
    for key in (edge.keys or {}).values():
        text = text.replace(key, "KEY")
    if "address already in use" in text:
        return Problem(
            f"port {edge.port} is in use by another program",
            cause=text[-300:],
            fix=f"find it: ss -ltnp 'sport = :{edge.port}'; or use another port: --port {edge.port + 1}",
        )
    return Problem(
        f"Caddy does not answer on port {edge.port}",
        cause=text[-500:],
        fix=f"use another port: --port {edge.port + 1}; or report it: medley explain --report report.txt",
    )
