"""Record the servers of this host, and find them; `server_end.py` ends them."""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from medley import credentials, process_identity, storage
from medley.cluster.remote import Server
from medley.engine.server_spec import ServerSpec
from medley.unusable_file import skip_unusable_file


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
            storage.write_text(find_record_file(listen.port), json.dumps(server.to_table()))

    report(state)
    try:
        yield report
    finally:
        with skip_unusable_file():
            storage.remove_file(find_record_file(listen.port))


def find_newest_server() -> Server | None:
    """Return the newest running server."""
    return next(iter(list_servers()), None)


def is_ready(port: int) -> bool:
    server = find_server(port)
    return server is not None and server.state == "ready"


def find_server(port: int) -> Server | None:
    return read_server(find_record_file(port))


def list_servers() -> list[Server]:
    """Return all running servers, the newest first."""
    files = sorted(
        storage.list_folder(get_records_folder(), "*.json"), key=storage.read_modified_s, reverse=True
    )
    return list(_list_readable_servers(files))


def _list_readable_servers(files: Iterable[Path]) -> Iterator[Server]:
    for file in files:
        with skip_unusable_file():
            if server := read_server(file):
                yield server


def read_server(path: Path) -> Server | None:
    server = storage.read_record(path, Server)
    return server if server and server.port and server.identity.is_alive else None


def find_record_file(port: int) -> Path:
    return get_records_folder() / f"{port}.json"


def get_records_folder() -> Path:
    return storage.find_state_folder() / "serving"


def get_log_file(name: str) -> Path:
    """Return the log of `serve-PORT` or `run-SCRIPT`."""
    return storage.find_state_folder() / "logs" / f"{name}.log"
