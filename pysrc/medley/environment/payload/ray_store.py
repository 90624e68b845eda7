"""Store what hosts report with a Ray cluster's head, or files on its hosts; run in an engine's Python.

    python ray_store.py gather HOST:PORT FILE        store FILE's host facts with the head, and wait for hosts
    python ray_store.py put HOST:PORT OWN JSON       {"FILE": "needs/ABC/NAME"…}: which go where in its cache
    python ray_store.py python HOST:PORT OWN FOLDER  the SHA-256 of every Python file there

It prints one JSON object: of `gather` the nodes, and which are missing; else the result of each living host
that has a slot, this one too. FILE has the head's `note`, what is `told` by address, and the addresses of the
hosts `wanted`. `gather` is run each time the head starts, before that is up: until something listens there it
does not even import Ray, whose own start needs the processor.
"""

import hashlib
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

GATHER_LIMIT_S = 60
FILES_LIMIT_S = 25
LARGEST_BYTES = 16 << 20


def main(verb: str, address: str, *rest: str) -> dict[str, Any]:
    deadline = time.monotonic() + GATHER_LIMIT_S
    if verb == "gather":
        await_listener(address, deadline)
    import ray_state

    try:
        if verb == "gather":
            return gather(ray_state, address, *rest, deadline=deadline)
        return files(ray_state, verb, address, *rest)
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


def gather(cluster: Any, address: str, file: str, *, deadline: float) -> dict[str, Any]:  # noqa: ANN401 - ray_state
    table, client = json.loads(Path(file).read_text()), connected_client(cluster, address, deadline)
    cluster.put(client, cluster.KEY, json.dumps(table["note"]))
    for own, text in table["told"].items():
        cluster.put(client, cluster.HOST + own.encode(), text)
    while True:
        found = client.get_all_node_info(timeout=cluster.LIMIT_S).values()
        missing = set(table["wanted"]) - {node.node_manager_address for node in found if node.state == 0}
        if not missing or time.monotonic() > deadline:
            return {"nodes": cluster.nodes(client, address), "missing": sorted(missing)}
        time.sleep(0.1)


def connected_client(cluster: Any, address: str, deadline: float) -> Any:  # noqa: ANN401 - the same
    """Connect to the head's store as soon as it answers."""
    while True:
        try:
            return cluster.GcsClient(address=address)
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def files(cluster: Any, verb: str, address: str, own: str, what: str) -> dict[str, Any]:  # noqa: ANN401 - the same
    """Run on all hosts at once; the results by NAME (ADDRESS), or an error after the limit."""
    asked = [
        node
        for node in cluster.nodes(cluster.GcsClient(address=address), address)
        if node["alive"] and node["slots"]
    ]
    cluster.connect(address, own)
    function: Any = put if verb == "put" else python
    given = cluster.ray.put(contents(json.loads(what)) if verb == "put" else what)
    tasks = [cluster.on(node, function).remote(given) for node in asked]
    results = cluster.ray.get(tasks, timeout=FILES_LIMIT_S)
    return {
        "hosts": {
            f"{node['name']} ({node['address']})": each for node, each in zip(asked, results, strict=True)
        }
    }


def contents(files: dict[str, str]) -> dict[str, bytes]:
    found = {name: Path(file).read_bytes() for file, name in files.items()}
    if any(len(each) > LARGEST_BYTES for each in found.values()):
        raise ValueError(f"no file may have more than {LARGEST_BYTES >> 20} MiB")
    return found


def put(files: dict[str, bytes]) -> dict[str, Any]:
    """Write changed files below the cache folder, chosen as medley.storage does; report path and SHA-256."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    usual = (Path(base) if base.startswith("/") else Path.home() / ".cache") / "medley"
    cache = Path(os.environ["MEDLEY_CACHE"]).absolute() if os.environ.get("MEDLEY_CACHE") else usual
    result: dict[str, Any] = {}
    for name, content in files.items():
        path = cache / name
        wanted = hashlib.sha256(content).hexdigest()
        try:
            have = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
            if have != wanted:
                path.parent.mkdir(parents=True, exist_ok=True)
                part = path.with_name(f".{path.name}.{os.getpid()}")
                part.write_bytes(content)
                part.replace(path)
            found = hashlib.sha256(path.read_bytes()).hexdigest()
            result[name] = {"path": str(path), "sha256": found, "written": have != wanted}
        except OSError as error:
            result[name] = {"path": str(path), "error": str(error)}
    return result


def python(folder: str) -> dict[str, Any]:
    """Hash a host's files; name links to folders, because Python would import through them."""
    found = {}
    for where, folders, names in os.walk(folder):
        for name in folders:
            if (path := Path(where) / name).is_symlink():
                found[path.relative_to(folder).as_posix()] = f"none: a link to {path.readlink()}"
        for name in names:
            if name.endswith(".py") and (path := Path(where) / name).is_file():
                found[path.relative_to(folder).as_posix()] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
