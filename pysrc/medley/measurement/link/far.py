"""Measure the link to another host of cluster.toml, which serves over ssh meanwhile."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

from medley import process
from medley.cluster import Cluster
from medley.cluster.fleet import connection
from medley.errors import Problem
from medley.host.facts import Facts
from medley.measurement.link import LinkMeasurement, measure
from medley.process import wait_until
from medley.progress import Progress

_LIMIT_S, _LISTENS_LIMIT_S, _MINUTES = 120, 20, 3
_STREAMS, _LAST = 4, 8


def measure_far(
    cluster: Cluster, name: str, address: str, facts: Facts, *, seconds: int, progress: Progress
) -> LinkMeasurement:
    """`facts` are of this host, `address` the other's; nothing is left to serve there."""
    tcp_only = process.program("ib_write_bw") is None
    words = ["link", "test", "--serve", "--link", address, "--minutes", str(_MINUTES)]
    words += ["--tcp"] if tcp_only else []
    ready, said = Event(), list[str]()

    def heard(text: str) -> None:
        said.append(text[1:])
        if "on the other host:" in text:
            ready.set()

    with (
        progress.stage(f"link to {name}"),
        connection(cluster, name) as remote,
        ThreadPoolExecutor(1) as pool,
    ):
        remote.greeted()
        serves = pool.submit(remote.ask, "type", {"words": words}, _LIMIT_S, heard)
        try:
            wait_until(lambda: ready.is_set() or serves.done(), _LISTENS_LIMIT_S)
            if not ready.is_set():
                cause = "\n".join(said[-_LAST:]) or f"it was not ready after {_LISTENS_LIMIT_S} s"
                raise Problem(
                    f"{name} does not serve a link test", cause=cause, fix="medley link test --serve"
                )
            return measure(
                address, facts, seconds=seconds, streams=_STREAMS, tcp_only=tcp_only, progress=progress
            )
        finally:
            remote.close()
