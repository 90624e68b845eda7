"""Read and write the state of a Ray cluster's head; run in an engine's Python, prints one JSON object.

    python ray_state.py read HOST:PORT             the head's note, the nodes, what hosts reported
    python ray_state.py tell HOST:PORT ADDRESS FILE    store the report of a host there
    python ray_state.py note HOST:PORT ADDRESS FILE JSON   the same, and the head's note
    python ray_state.py ranks HOST:PORT            where a model's ranks are
    python ray_state.py lacking HOST:PORT OWN FILE     the hosts with a slot that have no such file
    python ray_state.py hold HOST:PORT OWN HOST=N…     reserve so many slots until it is ended
    python ray_state.py look HOST:PORT OWN [stacks]    what the ranks on each host do; then kills stopped ones
    python ray_state.py reach HOST:PORT OWN LAST PORT… whether the head and this host reach each other's ports

It uses the store of Ray's head, so that medley needs no server of its own.
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

import ray
from ray._private.state import GlobalState
from ray._raylet import GcsClient, GcsClientOptions

sys.path.insert(0, str(Path(__file__).parent))  # not there with PYTHONSAFEPATH
import process_stacks

NOTE_KEY, HOST_KEY_PREFIX = b"medley", b"host "
STORE_LIMIT_S = 8
CONNECT_LIMIT_S = 1.5
TASK_LIMIT_S = 10
MAX_TASK_TRIES = 3
WORKER_PORTS = 100  # ports to try, of 900
FILE_LIMIT_S = 20
HOLD_LIMIT_S = 20
CONNECT_TO_RAY_LIMIT_S = 40  # 15 s, with the steps after it, were too few at a load of 16 on 2 cores
REACH_LIMIT_S = 30
LOOK_LIMIT_S = 15
RANK_NICENESS = 15  # Ray's own, RAY_worker_niceness

# A worker on another host has no such module.
ray.cloudpickle.register_pickle_by_value(process_stacks)


def main(verb: str, address: str, *rest: str) -> dict[str, Any]:
    try:
        client = GcsClient(address=address)
        if verb in {"note", "tell"}:
            store_report(client, *rest)
        if verb == "ranks":
            return {"ranks": list_ranks(address)}
        if verb == "lacking":
            return {"lacking": find_hosts_without_file(client, address, *rest)}
        if verb == "reach":
            return check_reach(client, address, *rest)
        if verb == "look":
            return describe_ranks(client, address, *rest)
        if verb == "hold":
            hold_slots(address, *rest)
        note = client.internal_kv_get(NOTE_KEY, NOTE_KEY, STORE_LIMIT_S)
        nodes = list_nodes(client, address)
        return {
            "note": json.loads(note) if note else None,
            "nodes": nodes,
            "told": read_host_reports(client, nodes),
        }
    except Exception as error:  # noqa: BLE001 - medley turns any error into a Problem
        return {"error": type(error).__name__, "said": str(error)[:400] or type(error).__name__}


def store_report(client: Any, address: str, file: str, note: str | None = None) -> None:  # noqa: ANN401 - Ray's client has no types
    put_text(client, HOST_KEY_PREFIX + address.encode(), Path(file).read_text(encoding="utf-8"))
    if note:
        put_text(client, NOTE_KEY, note)


def put_text(client: Any, key: bytes, text: str) -> None:  # noqa: ANN401 - Ray's client has no types
    client.internal_kv_put(key, text.encode(), overwrite=True, namespace=NOTE_KEY, timeout=STORE_LIMIT_S)


def read_host_reports(client: Any, nodes: list[dict[str, Any]]) -> dict[str, str]:  # noqa: ANN401 - Ray's client has no types
    """Return each living host's report, by address."""
    addresses = {node["address"] for node in nodes if node["alive"]}
    texts = {
        address: client.internal_kv_get(HOST_KEY_PREFIX + address.encode(), NOTE_KEY, STORE_LIMIT_S)
        for address in addresses
    }
    return {address: text.decode() for address, text in texts.items() if text}


def list_nodes(client: Any, address: str) -> list[dict[str, Any]]:  # noqa: ANN401 - Ray's client has no types
    node_infos = client.get_all_node_info(timeout=STORE_LIMIT_S).values()
    free_resources = read_state(address).available_resources_per_node()
    return [
        {
            "id": node.node_id.hex(),
            "address": node.node_manager_address,
            "name": node.node_manager_hostname,
            "alive": node.state == 0,
            "head": "node:__internal_head__" in node.resources_total,
            "slots": int(node.resources_total.get("GPU", 0)),
            "free": int(free_resources.get(node.node_id.hex(), {}).get("GPU", 0)),
        }
        for node in node_infos
    ]


def list_ranks(address: str) -> list[dict[str, Any]]:
    """Return name and address of living ranks; a name is such as vllm_Worker_ID_TP0_PP1."""
    actors = read_state(address).actor_table(None).values()
    return [
        {"name": actor["Name"], "address": actor["Address"]["IPAddress"]}
        for actor in actors
        if actor["Name"].startswith(("vllm_Worker_", "sglang_scheduler_")) and actor["State"] == "ALIVE"
    ]


def read_state(address: str) -> GlobalState:
    """Return the cluster's state as `ray list` reads it, but without the dashboard."""
    global_state = GlobalState()
    options = GcsClientOptions.create(address, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False)
    global_state._initialize_global_state(options)  # noqa: SLF001 - there is no public way
    return global_state


def hold_slots(address: str, own_address: str, *slots: str) -> NoReturn:
    """Reserve the slots `HOST=N`, and print them once reserved; Ray frees them when this process ends."""
    connect_ray(address, own_address)
    counts = [slot.split("=") for slot in slots]
    bundles = [{"GPU": int(count), f"node:{host}": 0.001} for host, count in counts]
    ray.get(ray.util.placement_group(bundles).ready(), timeout=HOLD_LIMIT_S)
    print(json.dumps({"held": slots}), flush=True)
    while True:
        time.sleep(60)


def connect_ray(address: str, own_address: str) -> None:
    os.chdir("/")  # Ray puts the working folder first in the sys.path of each worker
    ray.init(address=address, _node_ip_address=own_address, log_to_driver=False, logging_level="ERROR")


def pin_task(node: dict[str, Any], function: Any) -> Any:  # noqa: ANN401 - Ray's client has no types
    """Return the function as a task that Ray runs on that node only."""
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node["id"], soft=False)
    return ray.remote(num_cpus=0, scheduling_strategy=strategy, max_retries=0)(function)


def find_hosts_without_file(client: Any, address: str, own_address: str, path: str) -> list[str]:  # noqa: ANN401 - Ray's client has no types
    candidates = [node for node in list_nodes(client, address) if node["alive"] and node["slots"]]
    connect_ray(address, own_address)
    calls = [pin_task(node, lambda: Path(path).is_file()).remote() for node in candidates]
    results = zip(candidates, ray.get(calls, timeout=FILE_LIMIT_S), strict=True)
    return [f"{node['name']} ({node['address']})" for node, has_file in results if not has_file]


def describe_ranks(client: Any, address: str, own_address: str, *stacks: str) -> dict[str, Any]:  # noqa: ANN401 - Ray's client has no types
    """Return the ranks on each host; the key `silent` has the hosts that do not answer."""
    if not stacks:
        os.nice(RANK_NICENESS)  # otherwise this task takes cores from the ranks it describes
    living_nodes = [node for node in list_nodes(client, address) if node["alive"]]
    connect_ray(address, own_address)
    arguments = {"stacks": bool(stacks), "ends_stopped": bool(stacks)}
    calls = {
        pin_task(node, process_stacks.describe_ranks).remote(
            **arguments
        ): f"{node['name']} ({node['address']})"
        for node in living_nodes
    }
    done, late = ray.wait(list(calls), num_returns=len(calls), timeout=LOOK_LIMIT_S)
    return {"hosts": {calls[call]: ray.get(call) for call in done}, "silent": [calls[call] for call in late]}


def check_reach(
    client: Any,  # noqa: ANN401 - Ray's client has no types
    address: str,
    own_address: str,
    last_worker_port: str,
    *ports: str,
) -> dict[str, Any]:
    """Try Ray's `ports`, a worker's and a free one, between this host and the head.

    Return `closed`, the ports of this host that the head cannot reach; `ahead`, the ports of the head that
    this host cannot reach; and `back`, whether a task on the head returned its result to this host.
    `last_worker_port`: the highest port of Ray's worker range.
    """
    (head,) = (node for node in list_nodes(client, address) if node["head"] and node["alive"])
    signal.alarm(CONNECT_TO_RAY_LIMIT_S)
    connect_ray(address, own_address)
    signal.alarm(REACH_LIMIT_S)  # Ray waits half a minute for a node that the head has given up
    head_task = pin_task(head, check_from_head)
    with (
        socket.create_server((own_address, 0)) as free_listener,
        listen_on_worker_port(own_address, int(last_worker_port)) as worker_listener,
    ):
        endpoints = [(own_address, int(port)) for port in ports]
        endpoints += [server.getsockname() for server in (free_listener, worker_listener)]
        answer = run_task(head_task, head["address"], endpoints)
    if answer is None:
        return {"back": False, "closed": [], "ahead": []}
    closed, port = answer
    return {"back": True, "closed": closed, "ahead": find_unreachable([(head["address"], port)])}


def run_task(task: Any, *arguments: Any) -> tuple[list[str], int] | None:  # noqa: ANN401 - Ray's client has no types
    """Return the task's result; None if the task does not return, or its process ends each time.

    Behind a firewall Ray 2.60 may end the process of a slow task, because it cannot reach the task's owner.
    """
    for _ in range(MAX_TASK_TRIES):
        try:
            closed, port = ray.get(task.remote(*arguments), timeout=TASK_LIMIT_S)
        except ray.exceptions.GetTimeoutError:
            return None
        except ray.exceptions.WorkerCrashedError:
            continue
        return closed, port
    return None


def listen_on_worker_port(own_address: str, last_port: int) -> socket.socket:
    """Return a listener at a free port of Ray's worker range; raise OSError without one."""
    for port in range(last_port, last_port - WORKER_PORTS, -1):
        try:
            return socket.create_server((own_address, port))
        except OSError:
            continue
    raise OSError(f"{own_address} has no free port from {last_port - WORKER_PORTS} to {last_port}")


def check_from_head(head_address: str, endpoints: list[tuple[str, int]]) -> tuple[list[str], int]:
    """Try the endpoints from the head; return unreachable ones, and a port that listens for TASK_LIMIT_S."""
    server = socket.create_server((head_address, 0))
    threading.Timer(TASK_LIMIT_S, server.close).start()
    return find_unreachable(endpoints), server.getsockname()[1]


def find_unreachable(endpoints: list[tuple[str, int]]) -> list[str]:
    def find_refusal(endpoint: tuple[str, int]) -> str | None:
        try:
            socket.create_connection(endpoint, timeout=CONNECT_LIMIT_S).close()
        except OSError as error:
            return f"{endpoint[0]}:{endpoint[1]} ({error})"
        return None

    with ThreadPoolExecutor(len(endpoints)) as pool:
        return list(filter(None, pool.map(find_refusal, endpoints)))


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
