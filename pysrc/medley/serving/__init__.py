"""Record the servers of this host, and end them."""

import json
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from medley import credentials, process_identity, storage
from medley.cluster import units
from medley.cluster.remote import Server
from medley.cluster.unit_file import SERVER_UNIT_PREFIX
from medley.engine import ServerSpec
from medley.engine.launch import Launch, Order
from medley.errors import Problem
from medley.planner import Layout
from medley.progress import Progress
from medley.schema import EngineName
from medley.unusable_file import skip_unusable_file

_END_LIMIT_S = 40
_PROGRESS_INTERVAL_S, _POLL_INTERVAL_S = 2, 0.1
_API_KEY_FLAGS, _KEY_PLACEHOLDER = {"--api-key", "--admin-api-key"}, "API-KEY"


@dataclass(frozen=True)
class Description:
    """The model, command and plan of a server; stored next to its record."""

    engine: EngineName
    model: str
    """The model's name on the command line."""
    target: str
    """The folder or repository of its weights."""
    argv: tuple[str, ...]
    env: dict[str, str]
    plan: dict[str, Any]
    layout: Layout | None = None

    @property
    def programs_folder(self) -> Path:
        """The folder of the command's program, in an engine environment, or of docker or podman."""
        return Path(self.argv[0]).parent


def format_url(listen: ServerSpec) -> str:
    """Return the server's URL for this host itself."""
    local_addresses = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - compared, not bound
    scheme = "https" if listen.tls else "http"
    return f"{scheme}://{local_addresses.get(listen.address, listen.address)}:{listen.port}/v1"


@contextmanager
def record_server(
    listen: ServerSpec,
    state: str = "starting",
    *,
    drain_s: int = 0,
    hosts: str = "",
) -> Iterator[Callable[[str], None]]:
    """Write the server's record while the body runs; yield a function that records its state."""
    if listen.key and listen.key != credentials.find_key_folder():
        credentials.remember_secret(listen.key)

    def report(state: str) -> None:
        identity, key_file = process_identity.read_current_identity(), str(listen.key) if listen.key else None
        server = Server(
            format_url(listen),
            listen.name,
            identity.pid,
            identity.started,
            identity.boot,
            key_file,
            state,
            time.time(),
            drain_s,
            hosts,
            str(listen.socket_folder or ""),
        )
        with skip_unusable_file():  # on a full disk the server goes on, and its record keeps the old state
            storage.write_text(_find_record_file(listen.port), json.dumps(asdict(server)))

    report(state)
    try:
        yield report
    finally:
        with skip_unusable_file():
            storage.remove_file(_find_record_file(listen.port))


def require_unused_port(port: int) -> None:
    """Raise a Problem if another `medley serve` uses this port, even before it listens."""
    if server := find_server(port):
        raise _port_in_use_problem(port, f"process {server.pid} serves {server.model} there, or will soon")


@contextmanager
def claim_port(model: str, address: str, port: int) -> Iterator[None]:
    """Reserve a port while the body plans, starts and runs a server there, and record it as preparing.

    The port has a lock, because two starts at the same time would both find no record.
    """
    require_unused_port(port)
    listen = ServerSpec("", model, address, port)
    with storage.lock_file(get_records_folder() / f"{port}.lock") as is_locked:
        if not is_locked:
            raise _port_in_use_problem(port, "another process starts or ends a server there")
        with record_server(listen, "preparing"):
            yield


def _port_in_use_problem(port: int, cause: str) -> Problem:
    return Problem(
        f"port {port} is in use by another medley serve",
        cause=cause,
        fix=f"end it: medley stop --port {port}; or use another port: --port {port + 1}",
    )


def find_newest_server() -> Server | None:
    """Return the newest running server."""
    return next(iter(list_servers()), None)


def is_ready(port: int) -> bool:
    server = find_server(port)
    return server is not None and server.state == "ready"


def find_server(port: int) -> Server | None:
    return _read_server(_find_record_file(port))


def end_servers(port: int | None, progress: Progress, *, is_immediate: bool = False) -> int:
    """End all servers of this host, or the one on this port; return their number.

    Requests that run are answered, up to each server's own limit, unless `is_immediate`.
    """
    states = (state.name for state in units.list_states())
    names = {
        name
        for name in states
        if (name == f"{SERVER_UNIT_PREFIX}{port}" if port else name.startswith(SERVER_UNIT_PREFIX))
    }
    _remove_stale_records(port, progress)
    running = [server for server in list_servers() if port is None or server.port == port]
    own_servers = [server for server in running if server.identity.is_of_user]
    deadlines = {
        server: time.monotonic() + _END_LIMIT_S + server.drain_s * (not is_immediate)
        for server in own_servers
    }
    titles = ", ".join(f"{server.model} on port {server.port}" for server in own_servers)
    with progress.stage(f"end {titles}") if own_servers else nullcontext():
        for server in own_servers:
            # Only SIGTERM waits for running requests. A server that `&` in a script began ignores SIGINT.
            immediate_signal = signal.SIGHUP if server.identity.ignores(signal.SIGINT) else signal.SIGINT
            server.identity.signal(immediate_signal if is_immediate else signal.SIGTERM)
        _wait_for_ends(deadlines, progress)
    for name in names:
        units.stop_unit(name)
    if foreign_servers := [server for server in running if server not in own_servers]:
        raise _foreign_servers_problem(foreign_servers)
    return len(names | {f"{SERVER_UNIT_PREFIX}{server.port}" for server in own_servers})


def _foreign_servers_problem(foreign_servers: list[Server]) -> Problem:
    titles = ", ".join(f"{server.model} on port {server.port}" for server in foreign_servers)
    pids = " ".join(str(server.pid) for server in foreign_servers)
    return Problem(
        f"you cannot end {titles}",
        cause=f"another user started it: process {pids}, as after sudo -E medley serve",
        fix=f"sudo kill {pids}",
    )


def _wait_for_ends(deadlines: dict[Server, float], progress: Progress) -> None:
    """Wait for servers to end, each until its deadline by time.monotonic(); then kill it."""
    next_note = time.monotonic() + _PROGRESS_INTERVAL_S
    while deadlines:
        for server in list(deadlines):
            if _has_ended(server, deadlines[server], progress):
                del deadlines[server]
                units.stop_unit(f"{SERVER_UNIT_PREFIX}{server.port}")  # before it starts the server again
                if find_server(server.port) is None:  # it was killed, and so did not remove its record
                    storage.remove_file(_find_record_file(server.port))
        if deadlines and time.monotonic() > next_note:
            next_note += _PROGRESS_INTERVAL_S
            progress.line(", ".join(map(_describe_open_requests, deadlines)))


def _remove_stale_records(port: int | None, progress: Progress) -> None:
    for file in storage.list_folder(get_records_folder(), "*.json"):
        with skip_unusable_file():
            if (port is None or file.stem == str(port)) and _read_server(file) is None:
                storage.remove_file(file)
                progress.note(f"removed {file.name}: its server is gone, as after a power cut")


def _has_ended(server: Server, deadline: float, progress: Progress) -> bool:
    """Return whether the server ends within 0.1 s; after its deadline, a time.monotonic() value, kill it."""
    if time.monotonic() > deadline:
        progress.note(f"killed process {server.pid}, which served {server.model}: it did not end in time")
        process_identity.kill_processes([server.identity])
    return server.identity.wait_for_end(_POLL_INTERVAL_S)


def _describe_open_requests(server: Server) -> str:
    from medley.serving.edge_process import count_open_requests  # noqa: PLC0415 - httpx: a fifth of a second

    if server.state == "ready":
        with suppress(Exception):  # the server may end at any time
            return f"{server.port}: open requests: {count_open_requests(server.control_socket)}"
    return f"{server.port}: its engine ends"


def list_servers() -> list[Server]:
    """Return all running servers, the newest first."""
    files = sorted(
        storage.list_folder(get_records_folder(), "*.json"), key=storage.read_modified_s, reverse=True
    )
    return list(_list_readable_servers(files))


def _list_readable_servers(files: Iterable[Path]) -> Iterator[Server]:
    for file in files:
        with skip_unusable_file():
            if server := _read_server(file):
                yield server


def _read_server(path: Path) -> Server | None:
    server = storage.read_record(path, Server)
    return server if server and server.port and server.identity.is_alive else None


def _find_record_file(port: int) -> Path:
    return get_records_folder() / f"{port}.json"


def get_records_folder() -> Path:
    return storage.find_state_folder() / "serving"


def get_log_file(name: str) -> Path:
    """Return the log of `serve-PORT` or `run-SCRIPT`."""
    return storage.find_state_folder() / "logs" / f"{name}.log"


def build_description(order: Order, launch: Launch, layout: Layout | None) -> Description:
    command = launch.command
    return Description(
        order.placement.engine,
        order.weights.name,
        order.serving.target,
        tuple(_replace_keys(command.argv)),
        dict(command.env),
        json.loads(json.dumps(asdict(launch.plan))),
        layout,
    )


@contextmanager
def store_description(port: int, description: Description) -> Iterator[None]:
    """Store the description next to its server's record while that runs."""
    file = get_records_folder() / f"{port}.what"
    with skip_unusable_file():
        storage.write_text(file, json.dumps(asdict(description)))
    try:
        yield
    finally:
        with skip_unusable_file():
            storage.remove_file(file)


def read_description(port: int) -> Description | None:
    """Return the description of this port's server; None without one of this version."""
    try:
        description = msgspec.convert(storage.read_table(get_records_folder() / f"{port}.what"), Description)
    except msgspec.ValidationError:
        return None
    return description if description.argv else None


def _replace_keys(argv: tuple[str, ...]) -> Iterator[str]:
    """Yield the words of a command without the values of the user's own --api-key."""
    previous_word = ""
    for word in argv:
        name, equals, _ = word.partition("=")
        if previous_word in _API_KEY_FLAGS:
            yield _KEY_PLACEHOLDER
        elif name in _API_KEY_FLAGS and equals:
            yield f"{name}={_KEY_PLACEHOLDER}"
        else:
            yield word
        previous_word = word
