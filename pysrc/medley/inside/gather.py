"""Gives a head what its hosts told, and waits for them; run by an engine environment's Python.

    python gather.py HOST:PORT FILE

FILE: the head's `note`, what is `told` by address, and the addresses of those `wanted`. Prints one JSON
object: the nodes, and who of them is missing. It is run each time the head starts, before that is up: until
something listens there it does not even import Ray, whose own start needs the processor.
"""

import json
import socket
import sys
import time
from pathlib import Path
from typing import Any

LIMIT_S = 60


def main(address: str, file: str) -> dict[str, Any]:
    table, deadline = json.loads(Path(file).read_text()), time.monotonic() + LIMIT_S
    await_listener(address, deadline)
    import cluster

    try:
        client = client_of(cluster, address, deadline)
        cluster.put(client, cluster.KEY, json.dumps(table["note"]))
        for own, text in table["told"].items():
            cluster.put(client, cluster.HOST + own.encode(), text)
        missing = awaited(cluster, client, set(table["wanted"]), deadline)
        return {"nodes": cluster.nodes(client, address), "missing": sorted(missing)}
    except Exception as error:  # noqa: BLE001 - whatever it is, our side turns it into a Problem
        return {"error": type(error).__name__, "said": str(error)[:400]}


def await_listener(address: str, deadline: float) -> None:
    host, port = address.split(":")
    while time.monotonic() < deadline:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return


def client_of(cluster: Any, address: str, deadline: float) -> Any:  # noqa: ANN401 - our other script, and Ray's
    """The head's store, once it answers."""
    while True:
        try:
            return cluster.GcsClient(address=address)
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def awaited(cluster: Any, client: Any, wanted: set[str], deadline: float) -> set[str]:  # noqa: ANN401 - the same
    """Who of them is not there when all are, or the time is over."""
    while True:
        found = client.get_all_node_info(timeout=cluster.LIMIT_S).values()
        missing = wanted - {node.node_manager_address for node in found if node.state == 0}
        if not missing or time.monotonic() > deadline:
            return missing
        time.sleep(0.1)


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
