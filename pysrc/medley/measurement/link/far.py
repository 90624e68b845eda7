"""Measure the link to another host of cluster.toml, on which medley starts the servers over SSH."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

from medley import process
from medley.cluster.cluster_file import Cluster
from medley.cluster.fleet import connect_host
from medley.errors import Problem
from medley.host.facts import Facts
from medley.measurement.link.measure import measure_link
from medley.measurement.link.result import LinkMeasurement
from medley.process import wait_until
from medley.progress import Progress

_REQUEST_LIMIT_S, _LISTENS_LIMIT_S, _SERVE_MINUTES = 120, 20, 3
_STREAMS, _MAX_ERROR_LINES = 4, 8


def measure_cluster_link(
    cluster: Cluster, name: str, address: str, facts: Facts, *, seconds: int, progress: Progress
) -> LinkMeasurement:
    """Measure the link from this host, with these `facts`, to the host `name` at `address`.

    The servers there end with the measurement. Raise a Problem if they do not start.
    """
    tcp_only = process.find_program("ib_write_bw") is None
    arguments = ["link", "test", "--serve", "--link", address, "--minutes", str(_SERVE_MINUTES)]
    arguments += ["--tcp"] if tcp_only else []
    ready, output = Event(), list[str]()

    def read_line(text: str) -> None:
        output.append(text[1:])
        if "on the other host:" in text:
            ready.set()

    with (
        progress.stage(f"link to {name}"),
        connect_host(cluster, name) as remote,
        ThreadPoolExecutor(1) as pool,
    ):
        remote.read_greeting()
        server = pool.submit(remote.ask, "type", {"words": arguments}, _REQUEST_LIMIT_S, read_line)
        try:
            wait_until(lambda: ready.is_set() or server.done(), _LISTENS_LIMIT_S)
            if not ready.is_set():
                cause = (
                    "\n".join(output[-_MAX_ERROR_LINES:]) or f"it was not ready after {_LISTENS_LIMIT_S} s"
                )
                raise Problem(
                    f"{name} does not serve a link test", cause=cause, fix="medley link test --serve"
                )
            return measure_link(
                address, facts, seconds=seconds, streams=_STREAMS, tcp_only=tcp_only, progress=progress
            )
        finally:
            remote.close()
