"""Store host reports with a Ray cluster's head, or files on its hosts; run in an engine's Python.

    python ray_store.py gather HOST:PORT FILE        store FILE's host facts with the head, and wait for hosts
    python ray_store.py put HOST:PORT OWN JSON       {"FILE": "needs/ABC/NAME"…}: which go where in its cache
    python ray_store.py python HOST:PORT OWN FOLDER  the SHA-256 of every Python file there

It prints one JSON object: for `gather` the nodes and the missing addresses, else the result of each living
host with a slot, this one included. FILE has the head's `note`, the reports of hosts by address (`told`), and
the addresses of the hosts to wait for (`wanted`). `gather` starts before the head listens. Until then it does
not import Ray, because Ray's own start needs the processor.
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
MAX_FILE_BYTES = 16 << 20


def main(verb: str, address: str, *rest: str) -> dict[str, Any]:
    deadline = time.monotonic() + GATHER_LIMIT_S
    if verb == "gather":
        wait_for_listener(address, deadline)
    sys.path.insert(0, str(Path(__file__).parent))  # not there with PYTHONSAFEPATH
    import ray_state

    try:
        if verb == "gather":
            return gather_hosts(ray_state, address, *rest, deadline=deadline)
        return run_on_hosts(ray_state, verb, address, *rest)
    except Exception as error:  # noqa: BLE001 - medley turns any error into a Problem
        return {"error": type(error).__name__, "said": str(error)[:400]}


def wait_for_listener(address: str, deadline: float) -> None:
    host, port = address.split(":")
    while time.monotonic() < deadline:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return


def gather_hosts(cluster: Any, address: str, table_file: str, *, deadline: float) -> dict[str, Any]:  # noqa: ANN401 - ray_state
    table, client = json.loads(Path(table_file).read_text()), connect_client(cluster, address, deadline)
    cluster.put_text(client, cluster.NOTE_KEY, json.dumps(table["note"]))
    for address_of_host, text in table["told"].items():
        cluster.put_text(client, cluster.HOST_KEY_PREFIX + address_of_host.encode(), text)
    while True:
        node_infos = client.get_all_node_info(timeout=cluster.STORE_LIMIT_S).values()
        missing = set(table["wanted"]) - {node.node_manager_address for node in node_infos if node.state == 0}
        if not missing or time.monotonic() > deadline:
            return {"nodes": cluster.list_nodes(client, address), "missing": sorted(missing)}
        time.sleep(0.1)


def connect_client(cluster: Any, address: str, deadline: float) -> Any:  # noqa: ANN401 - ray_state, and Ray's client
    """Return a client of the head's store as soon as it answers; raise its error after the deadline."""
    while True:
        try:
            return cluster.GcsClient(address=address)
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def run_on_hosts(cluster: Any, verb: str, address: str, own_address: str, argument: str) -> dict[str, Any]:  # noqa: ANN401 - ray_state
    """Run on all hosts at once; return results by NAME (ADDRESS), raise an error after the limit."""
    nodes = [
        node
        for node in cluster.list_nodes(cluster.GcsClient(address=address), address)
        if node["alive"] and node["slots"]
    ]
    cluster.connect_ray(address, own_address)
    function: Any = write_files if verb == "put" else hash_python_files
    shared_argument = cluster.ray.put(read_files(json.loads(argument)) if verb == "put" else argument)
    tasks = [cluster.pin_task(node, function).remote(shared_argument) for node in nodes]
    results = cluster.ray.get(tasks, timeout=FILES_LIMIT_S)
    return {
        "hosts": {
            f"{node['name']} ({node['address']})": result for node, result in zip(nodes, results, strict=True)
        }
    }


def read_files(files: dict[str, str]) -> dict[str, bytes]:
    contents = {name: Path(file).read_bytes() for file, name in files.items()}
    if any(len(content) > MAX_FILE_BYTES for content in contents.values()):
        raise ValueError(f"no file may have more than {MAX_FILE_BYTES >> 20} MiB")
    return contents


def write_files(files: dict[str, bytes]) -> dict[str, Any]:
    """Write changed files below the cache folder of medley.storage; return path and SHA-256 of each."""
    cache_home = os.environ.get("XDG_CACHE_HOME", "")
    usual = (Path(cache_home) if cache_home.startswith("/") else Path.home() / ".cache") / "medley"
    cache = Path(os.environ["MEDLEY_CACHE"]).absolute() if os.environ.get("MEDLEY_CACHE") else usual
    result: dict[str, Any] = {}
    for name, content in files.items():
        path = cache / name
        sha256 = hashlib.sha256(content).hexdigest()
        try:
            old_sha256 = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
            if old_sha256 != sha256:
                path.parent.mkdir(parents=True, exist_ok=True)
                draft = path.with_name(f".{path.name}.{os.getpid()}")
                draft.write_bytes(content)
                draft.replace(path)
            new_sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
            result[name] = {"path": str(path), "sha256": new_sha256, "written": old_sha256 != sha256}
        except OSError as error:
            result[name] = {"path": str(path), "error": str(error)}
    return result


def hash_python_files(folder: str) -> dict[str, Any]:
    """Return the SHA-256 of each Python file; name links to folders: Python imports through them."""
    hashes = {}
    for parent, folders, names in os.walk(folder):
        for name in folders:
            if (path := Path(parent) / name).is_symlink():
                hashes[path.relative_to(folder).as_posix()] = f"none: a link to {path.readlink()}"
        for name in names:
            if name.endswith(".py") and (path := Path(parent) / name).is_file():
                hashes[path.relative_to(folder).as_posix()] = hashlib.sha256(path.read_bytes()).hexdigest()
    return hashes


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
