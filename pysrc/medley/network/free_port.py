"""Find a free port of this host, or refuse one that another program uses.

`serving/port_claim.py` refuses the port of another `medley serve`, which may not listen yet.
"""

import errno
import socket

from medley.errors import Problem, describe_error
from medley.network.ports import API_PORT
from medley.network.tcp import list_listeners

_LAST_PORT = 65_535


def find_free_port() -> int:
    """Return a port of the loopback that no program uses now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def require_free_port(address: str, port: int) -> None:
    """Raise a Problem unless a server could listen there now."""
    if not 0 < port <= _LAST_PORT:
        raise Problem(
            f"port {port} does not exist", cause=f"ports are 1 to {_LAST_PORT}", fix=f"--port {API_PORT}"
        )
    try:
        family, kind, protocol, _, socket_address = socket.getaddrinfo(
            address, port, type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(socket_address)
    except (OSError, UnicodeError) as error:
        cause = describe_error(error)
        # UnicodeError: a part of a name is empty or longer than 63 letters
        if isinstance(error, socket.gaierror | UnicodeError):
            what, fix = f"{address} is not an address", "--host 127.0.0.1, or 0.0.0.0 for every interface"
        elif error.errno == errno.EADDRINUSE:
            what, cause = f"port {port} is in use", _describe_holder(port) or "another process listens there"
            fix = f"end it, or use another port: --port {port + 1 if port < _LAST_PORT else API_PORT}"
        elif error.errno == errno.EADDRNOTAVAIL:
            what = f"this host has no address {address}"
            fix = "ip -brief address  # give one of these as --host, or 0.0.0.0 for all"
        else:
            what, fix = (
                f"port {port} of {address} cannot be used",
                f"--port {API_PORT}, or another above 1023",
            )
        raise Problem(what, cause=cause, fix=fix) from error


def _describe_holder(port: int) -> str | None:
    """Name the process that listens on the port; None where the kernel hides it from this user."""
    for used_port, pid, words in list_listeners():
        if used_port == port and pid:
            return f"process {pid} listens there: {words}"
    return None
