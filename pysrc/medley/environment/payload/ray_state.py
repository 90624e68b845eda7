"""Read and write the state of a Ray cluster's head; run in an engine's Python, prints one JSON object.

    python ray_state.py read HOST:PORT             the head's note, the nodes, what hosts reported
    python ray_state.py tell HOST:PORT ADDRESS FILE    keep there what a host reports of itself
    python ray_state.py note HOST:PORT ADDRESS FILE JSON   the same, and the head's note
    python ray_state.py ranks HOST:PORT            where a model's ranks are
    python ray_state.py lacking HOST:PORT OWN FILE     the hosts with a slot that have no such file
    python ray_state.py hold HOST:PORT OWN HOST=N…     keep so many slots from others until it is ended
    python ray_state.py look HOST:PORT OWN [stacks]    what the ranks on each host do; then kills stopped ones
    python ray_state.py reach HOST:PORT OWN LAST PORT… whether the head and this host reach each other's ports

It uses the head's own store, so that nothing of medley needs to listen.
"""

import json
import os
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import process_stacks
import ray
from ray._private.state import GlobalState
from ray._raylet import GcsClient, GcsClientOptions

KEY, HOST = b"medley", b"host "
LIMIT_S = 8
CONNECT_LIMIT_S = 1.5
TASK_LIMIT_S = 10
TASK_TRIES = 3
WORKERS = 100  # ports to try, of 900
LACKING_LIMIT_S = 20
HOLD_LIMIT_S = 20
CONNECT_TO_RAY_LIMIT_S = 40  # 15 s with all that follows were too few beside a load of 16 on 2 cores
REACH_LIMIT_S = 30
LOOK_LIMIT_S = 15
RANK_NICENESS = 15  # Ray's own, RAY_worker_niceness

# A worker on another host has no such module.
ray.cloudpickle.register_pickle_by_value(process_stacks)


def main(verb: str, address: str, *rest: str) -> dict[str, Any]:
    try:
        client = GcsClient(address=address)
        if verb in {"note", "tell"}:
            keep(client, *rest)
        if verb == "ranks":
            return {"ranks": ranks(address)}
        if verb == "lacking":
            return {"lacking": lacking(client, address, *rest)}
        if verb == "reach":
            return reach(client, address, *rest)
        if verb == "look":
            return look(client, address, *rest)
        if verb == "hold":
            hold(address, *rest)
        note = client.internal_kv_get(KEY, KEY, LIMIT_S)
        found = nodes(client, address)
        return {"note": json.loads(note) if note else None, "nodes": found, "told": told(client, found)}
    except Exception as error:  # noqa: BLE001 - whatever it is, our side turns it into a Problem
        return {"error": type(error).__name__, "said": str(error)[:400] or type(error).__name__}


def keep(client: Any, address: str, file: str, note: str | None = None) -> None:  # noqa: ANN401 - the same
    put(client, HOST + address.encode(), Path(file).read_text(encoding="utf-8"))
    if note:
        put(client, KEY, note)


def put(client: Any, key: bytes, text: str) -> None:  # noqa: ANN401 - the same
    client.internal_kv_put(key, text.encode(), overwrite=True, namespace=KEY, timeout=LIMIT_S)


def told(client: Any, nodes: list[dict[str, Any]]) -> dict[str, str]:  # noqa: ANN401 - the same
    """Read each living host's report, by address."""
    living = {node["address"] for node in nodes if node["alive"]}
    texts = {each: client.internal_kv_get(HOST + each.encode(), KEY, LIMIT_S) for each in living}
    return {address: text.decode() for address, text in texts.items() if text}


def nodes(client: Any, address: str) -> list[dict[str, Any]]:  # noqa: ANN401 - Ray's own client has no types
    found = client.get_all_node_info(timeout=LIMIT_S).values()
    free = state(address).available_resources_per_node()
    return [
        {
            "id": node.node_id.hex(),
            "address": node.node_manager_address,
            "name": node.node_manager_hostname,
            "alive": node.state == 0,
            "head": "node:__internal_head__" in node.resources_total,
            "slots": int(node.resources_total.get("GPU", 0)),
            "free": int(free.get(node.node_id.hex(), {}).get("GPU", 0)),
        }
        for node in found
    ]


def ranks(address: str) -> list[dict[str, Any]]:
    """List living ranks by name, such as vllm_Worker_ID_TP0_PP1."""
    found = state(address).actor_table(None).values()
    return [
        {"name": actor["Name"], "address": actor["Address"]["IPAddress"]}
        for actor in found
        if actor["Name"].startswith(("vllm_Worker_", "sglang_scheduler_")) and actor["State"] == "ALIVE"
    ]


def state(address: str) -> GlobalState:
    """Read the state as `ray list` does, but without the dashboard."""
    found = GlobalState()
    options = GcsClientOptions.create(address, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False)
    found._initialize_global_state(options)  # noqa: SLF001 - there is no public way
    return found


def hold(address: str, own: str, *slots: str) -> NoReturn:
    """Print it once they are held; Ray frees them when this process ends."""
    connect(address, own)
    wanted = [slot.split("=") for slot in slots]
    bundles = [{"GPU": int(count), f"node:{host}": 0.001} for host, count in wanted]
    ray.get(ray.util.placement_group(bundles).ready(), timeout=HOLD_LIMIT_S)
    print(json.dumps({"held": slots}), flush=True)
    while True:
        time.sleep(60)


def connect(address: str, own: str) -> None:
    ray.init(address=address, _node_ip_address=own, log_to_driver=False, logging_level="ERROR")


def on(node: dict[str, Any], function: Any) -> Any:  # noqa: ANN401 - the same
    """Make the function a task that runs on that node only."""
    there = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node["id"], soft=False)
    return ray.remote(num_cpus=0, scheduling_strategy=there, max_retries=0)(function)


def lacking(client: Any, address: str, own: str, path: str) -> list[str]:  # noqa: ANN401 - the same
    asked = [node for node in nodes(client, address) if node["alive"] and node["slots"]]
    connect(address, own)
    calls = [on(node, lambda: Path(path).is_file()).remote() for node in asked]
    there = zip(asked, ray.get(calls, timeout=LACKING_LIMIT_S), strict=True)
    return [f"{node['name']} ({node['address']})" for node, found in there if not found]


def look(client: Any, address: str, own: str, *stacks: str) -> dict[str, Any]:  # noqa: ANN401 - the same
    """Look at the ranks on each host; `silent` are the hosts that do not answer."""
    if not stacks:
        os.nice(RANK_NICENESS)  # else what looks takes the cores of what it looks at
    living = [node for node in nodes(client, address) if node["alive"]]
    connect(address, own)
    words = {"stacks": bool(stacks), "end": bool(stacks)}
    calls = {
        on(node, process_stacks.of_raylet).remote(**words): f"{node['name']} ({node['address']})"
        for node in living
    }
    done, late = ray.wait(list(calls), num_returns=len(calls), timeout=LOOK_LIMIT_S)
    return {"hosts": {calls[each]: ray.get(each) for each in done}, "silent": [calls[each] for each in late]}


def reach(client: Any, address: str, own: str, last: str, *ports: str) -> dict[str, Any]:  # noqa: ANN401 - the same
    """Try Ray's `ports`, a worker's (`last` or below) and a free one, between this host and the head.

    `closed`: ports here, `ahead`: ports there, `back`: false if no task on the head returns.
    """
    (head,) = (node for node in nodes(client, address) if node["head"] and node["alive"])
    signal.alarm(CONNECT_TO_RAY_LIMIT_S)
    connect(address, own)
    signal.alarm(REACH_LIMIT_S)  # Ray's own waiting for a node that the head gave up on takes half a minute
    task = on(head, from_head)
    with socket.create_server((own, 0)) as picked, of_workers(own, int(last)) as workers:
        places = [(own, int(port)) for port in ports]
        places += [server.getsockname() for server in (picked, workers)]
        returned = from_task(task, head["address"], places)
    if returned is None:
        return {"back": False, "closed": [], "ahead": []}
    closed, port = returned
    return {"back": True, "closed": closed, "ahead": unreachable([(head["address"], port)])}


def from_task(task: Any, *words: Any) -> tuple[list[str], int] | None:  # noqa: ANN401 - the same
    """Return what the task returns; None if it does not come back, or its process ends each time.

    Behind a firewall Ray 2.60 may end the process of a slow task: it cannot reach the one that asked.
    """
    for _ in range(TASK_TRIES):
        try:
            closed, port = ray.get(task.remote(*words), timeout=TASK_LIMIT_S)
        except ray.exceptions.GetTimeoutError:
            return None
        except ray.exceptions.WorkerCrashedError:
            continue
        return closed, port
    return None


def of_workers(own: str, last: int) -> socket.socket:
    """Listen at a free port of Ray's worker range."""
    for port in range(last, last - WORKERS, -1):
        try:
            return socket.create_server((own, port))
        except OSError:
            continue
    raise OSError(f"{own} has no free port from {last - WORKERS} to {last}")


def from_head(own: str, places: list[tuple[str, int]]) -> tuple[list[str], int]:
    """Try `places` from the head; return those unreachable, and a port that listens for a while."""
    server = socket.create_server((own, 0))
    threading.Timer(TASK_LIMIT_S, server.close).start()
    return unreachable(places), server.getsockname()[1]


def unreachable(places: list[tuple[str, int]]) -> list[str]:
    def refusal(place: tuple[str, int]) -> str | None:
        try:
            socket.create_connection(place, timeout=CONNECT_LIMIT_S).close()
        except OSError as error:
            return f"{place[0]}:{place[1]} ({error})"
        return None

    with ThreadPoolExecutor(len(places)) as pool:
        return list(filter(None, pool.map(refusal, places)))


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
