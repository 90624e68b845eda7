"""URLs of servers that listen on a socket in a folder, in the form of nginx: unix:/run/engine.sock:/v1."""

from pathlib import Path

SCHEME = "unix"


def write_socket_url(socket: Path, path: str = "/v1") -> str:
    """Return the URL of a server on this socket."""
    return f"{SCHEME}:{socket}:{path}"


def read_socket_url(url: str) -> tuple[Path, str] | None:
    """Return the socket and the path of such a URL; None for the URL of a host."""
    scheme, _, rest = url.partition(":")
    socket, colon, path = rest.rpartition(":")
    return (Path(socket), path) if scheme == SCHEME and colon else None
