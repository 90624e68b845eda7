"""End the servers of this host."""

import signal
import time
from contextlib import nullcontext, suppress

from medley import process_identity, storage
from medley.cluster import units
from medley.cluster.remote import Server
from medley.cluster.unit_file import SERVER_UNIT_PREFIX
from medley.errors import Problem
from medley.progress import Progress
from medley.serving.server_records import (
    find_record_file,
    find_server,
    get_records_folder,
    list_servers,
    read_server,
)
from medley.unusable_file import skip_unusable_file

_END_LIMIT_S = 40
_PROGRESS_INTERVAL_S, _POLL_INTERVAL_S = 2, 0.1


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
                    storage.remove_file(find_record_file(server.port))
        if deadlines and time.monotonic() > next_note:
            next_note += _PROGRESS_INTERVAL_S
            progress.line(", ".join(map(_describe_open_requests, deadlines)))


def _remove_stale_records(port: int | None, progress: Progress) -> None:
    for file in storage.list_folder(get_records_folder(), "*.json"):
        with skip_unusable_file():
            if (port is None or file.stem == str(port)) and read_server(file) is None:
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
