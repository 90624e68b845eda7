"""Record the servers of this host, and end them."""

import json
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from medley import credentials, process_identity, storage
from medley.cluster import units
from medley.cluster.remote import Server
from medley.cluster.unit_file import UNIT
from medley.engine import Serving
from medley.engine.launch import Launch, Order
from medley.errors import Problem
from medley.planner import Layout
from medley.progress import Progress
from medley.schema import EngineName
from medley.unusable_file import optional

_END_LIMIT_S = 40
_NOTE_EVERY_S, _LOOK_EVERY_S = 2, 0.1
_KEY_FLAGS, _HIDDEN = {"--api-key", "--admin-api-key"}, "API-KEY"


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
    def programs(self) -> Path:
        """The folder of the engine environment's programs; with an image that of docker or podman."""
        return Path(self.argv[0]).parent


def url(listens: Serving) -> str:
    """Return the server's URL for this host itself."""
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - compared, not bound
    scheme = "https" if listens.tls else "http"
    return f"{scheme}://{everywhere.get(listens.address, listens.address)}:{listens.port}/v1"


@contextmanager
def note_server(
    listens: Serving,
    state: str = "starting",
    *,
    drain_s: int = 0,
    hosts: str = "",
) -> Iterator[Callable[[str], None]]:
    """Keep the server's record while the body runs; yields a function that reports its state."""
    if listens.key and listens.key != credentials.key_folder():
        credentials.remember_secret(listens.key)

    def report(state: str) -> None:
        us, key = process_identity.own_identity(), str(listens.key) if listens.key else None
        found = Server(
            url(listens),
            listens.name,
            us.pid,
            us.started,
            us.boot,
            key,
            state,
            time.time(),
            drain_s,
            hosts,
            str(listens.socket_folder or ""),
        )
        with optional():  # as where the disk is full: the server goes on, and is shown as it was
            storage.write(_note(listens.port), json.dumps(asdict(found)))

    report(state)
    try:
        yield report
    finally:
        with optional():
            storage.remove_file(_note(listens.port))


def require_none(port: int) -> None:
    """Raise a Problem where another `medley serve` uses this port, even before it listens."""
    if found := on_port(port):
        raise _in_use(port, f"process {found.pid} serves {found.model} there, or will soon")


@contextmanager
def claim_port(model: str, address: str, port: int) -> Iterator[None]:
    """Have a port while the body plans, starts and runs a server there, and record it as preparing.

    The lock is there because two starts at once would both find no record.
    """
    require_none(port)
    listens = Serving("", model, address, port)
    with storage.lock(folder() / f"{port}.lock") as is_ours:
        if not is_ours:
            raise _in_use(port, "another process starts or ends a server there")
        with note_server(listens, "preparing"):
            yield


def _in_use(port: int, cause: str) -> Problem:
    return Problem(
        f"port {port} is in use by another medley serve",
        cause=cause,
        fix=f"end it: medley stop --port {port}; or use another port: --port {port + 1}",
    )


def newest() -> Server | None:
    """Return the newest running server."""
    return next(iter(servers()), None)


def is_ready(port: int) -> bool:
    found = on_port(port)
    return found is not None and found.state == "ready"


def on_port(port: int) -> Server | None:
    return _read(_note(port))


def end_servers(port: int | None, watch: Progress, *, now: bool = False) -> int:
    """End all servers here, or the one on this port; returns their number.

    Requests that run are answered, up to each server's own limit, unless `now`.
    """
    states = (state.name for state in units.states())
    names = {name for name in states if (name == f"{UNIT}{port}" if port else name.startswith(UNIT))}
    _remove_stale_records(port, watch)
    running = [server for server in servers() if port is None or server.port == port]
    found = [server for server in running if server.identity.is_own]
    left = {server: time.monotonic() + _END_LIMIT_S + server.drain_s * (not now) for server in found}
    shown = ", ".join(f"{server.model} on port {server.port}" for server in found)
    with watch.stage(f"end {shown}") if found else nullcontext():
        for server in found:
            # Only SIGTERM waits for running requests. A server that `&` in a script began ignores SIGINT.
            at_once = signal.SIGHUP if server.identity.ignores(signal.SIGINT) else signal.SIGINT
            server.identity.signal(at_once if now else signal.SIGTERM)
        _await_ends(left, watch)
    for name in names:
        units.stop(name)
    if others := [server for server in running if server not in found]:
        raise _not_own(others)
    return len(names | {f"{UNIT}{server.port}" for server in found})


def _not_own(found: list[Server]) -> Problem:
    named = ", ".join(f"{server.model} on port {server.port}" for server in found)
    pids = " ".join(str(server.pid) for server in found)
    return Problem(
        f"you cannot end {named}",
        cause=f"another user started it: process {pids}, as after sudo -E medley serve",
        fix=f"sudo kill {pids}",
    )


def _await_ends(left: dict[Server, float], watch: Progress) -> None:
    """Wait for servers to end, each until its time of the monotonic clock; then kill it."""
    next_look = time.monotonic() + _NOTE_EVERY_S
    while left:
        for server in list(left):
            if _has_ended(server, left[server], watch):
                del left[server]
                units.stop(f"{UNIT}{server.port}")  # before it starts the server again
                if on_port(server.port) is None:  # it was killed, and so did not remove its record
                    storage.remove_file(_note(server.port))
        if left and time.monotonic() > next_look:
            next_look += _NOTE_EVERY_S
            watch.line(", ".join(map(_open_requests, left)))


def _remove_stale_records(port: int | None, watch: Progress) -> None:
    for file in storage.list_folder(folder(), "*.json"):
        with optional():
            if (port is None or file.stem == str(port)) and _read(file) is None:
                storage.remove_file(file)
                watch.note(f"removed {file.name}: its server is gone, as after a power cut")


def _has_ended(server: Server, limit: float, watch: Progress) -> bool:
    """Wait a moment for its end; kill it where it is past its limit."""
    if time.monotonic() > limit:
        watch.note(f"killed process {server.pid}, which served {server.model}: it did not end in time")
        process_identity.kill_processes([server.identity])
    return server.identity.ends_within(_LOOK_EVERY_S)


def _open_requests(server: Server) -> str:
    from medley.serving.edge_process import count_open_requests  # noqa: PLC0415 - httpx: a fifth of a second

    if server.state == "ready":
        with suppress(Exception):  # the server ends at any time, whatever is asked
            return f"{server.port}: open requests: {count_open_requests(server.control)}"
    return f"{server.port}: its engine ends"


def servers() -> list[Server]:
    """Return all running servers, the newest first."""
    notes = sorted(storage.list_folder(folder(), "*.json"), key=storage.modified_s, reverse=True)
    return list(_readable(notes))


def _readable(notes: Iterable[Path]) -> Iterator[Server]:
    for note in notes:
        with optional():
            if server := _read(note):
                yield server


def _read(path: Path) -> Server | None:
    server = storage.read_record(path, Server)
    return server if server and server.port and server.identity.alive else None


def _note(port: int) -> Path:
    return folder() / f"{port}.json"


def folder() -> Path:
    return storage.state() / "serving"


def log_file(name: str) -> Path:
    """Return the log of `serve-PORT` or `run-SCRIPT`."""
    return storage.state() / "logs" / f"{name}.log"


def description(order: Order, launch: Launch, layout: Layout | None) -> Description:
    command = launch.command
    return Description(
        order.placement.engine,
        order.weights.name,
        order.serving.target,
        tuple(_without_keys(command.argv)),
        dict(command.env),
        json.loads(json.dumps(asdict(launch.plan))),
        layout,
    )


@contextmanager
def keep_description(port: int, found: Description) -> Iterator[None]:
    """Store the description next to its server's record while that runs."""
    file = folder() / f"{port}.what"
    with optional():
        storage.write(file, json.dumps(asdict(found)))
    try:
        yield
    finally:
        with optional():
            storage.remove_file(file)


def description_of(port: int) -> Description | None:
    """Return the description of this port's server; None without one of this version."""
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - a tenth of a second

    try:
        found = TypeAdapter(Description).validate_python(storage.read_table(folder() / f"{port}.what"))
    except ValidationError:
        return None
    return found if found.argv else None


def _without_keys(argv: tuple[str, ...]) -> Iterator[str]:
    """Hide a user's own --api-key, which local users can read, from other outputs."""
    before = ""
    for word in argv:
        name, equals, _ = word.partition("=")
        if before in _KEY_FLAGS:
            yield _HIDDEN
        elif name in _KEY_FLAGS and equals:
            yield f"{name}={_HIDDEN}"
        else:
            yield word
        before = word
