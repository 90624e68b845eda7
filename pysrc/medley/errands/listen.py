"""Listen: ports of this host for others to try: one of Ray's range, and one as ranks pick."""

import socket
from collections.abc import Callable, Mapping
from typing import Any

from medley import ray
from medley.problem import Problem

_TRIES = 100
_open: list[socket.socket] = []


def run(asked: Mapping[str, Any], note: Callable[[str], None]) -> Mapping[str, Any]:
    """At `address`. A Problem where another has Ray's ports, if Ray `starts` here."""
    del note
    while _open:
        _open.pop().close()
    own, ports = asked["address"], ray.Ports()
    if asked["starts"]:
        for port in (ports.gcs, *ports.of_raylet) if asked["head"] else ports.of_raylet:
            _require_free(own, port)
    _open.extend((_of_workers(own, ports.last), socket.create_server((own, 0))))
    return {"ports": [server.getsockname()[1] for server in _open]}


def _require_free(own: str, port: int) -> None:
    try:
        socket.create_server((own, port)).close()
    except OSError as error:
        raise Problem(
            f"port {port} is taken",
            cause=f"{own}:{port}: {error.strerror}; another Ray or medley runs here",
            fix=f"see which: sudo ss -ltnp 'sport = :{port}'; a Ray of one's own: ray stop",
        ) from error


def _of_workers(own: str, last: int) -> socket.socket:
    """A port among those of Ray's workers that none of them has."""
    for port in range(last, last - _TRIES, -1):
        try:
            return socket.create_server((own, port))
        except OSError:
            continue
    raise Problem(
        f"no port from {last - _TRIES + 1} to {last} is free",
        cause=f"{own} has a listener at each",
        fix="see which: sudo ss -ltnp",
    )
