"""Claim a port for a server before it listens; refuse one where another `medley serve` is."""

from collections.abc import Iterator
from contextlib import contextmanager

from medley import storage
from medley.engine.server_spec import ServerSpec
from medley.errors import Problem
from medley.serving.server_records import find_server, get_records_folder, record_server


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
