"""Build Ray's command lines and variables, and read its nodes, ranks and slots.

Flags and variables as of Ray 2.60.0 (`ray start --help`).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from medley.command import AnnotatedCommand, Flag, Variable, keep_last_values
from medley.network.ports import RayPorts
from medley.values import Value

# Every process of medley's cluster inherits it, so that `ray-stop` ends no other Ray.
MARK_VARIABLE = "MEDLEY_RAY"
# vLLM keeps weights and KV cache outside of the object store, whose default is 30 % of the host's memory; on
# unified memory that is the GPU's too.
_OBJECT_STORE_BYTES = 1 << 30


# Ray's defaults are 5000, 3000, 10000 and 5, which notice a lost host only after up to a minute.
_HEALTH_CHECK = {"initial_delay_ms": 5000, "period_ms": 2000, "timeout_ms": 3000, "failure_threshold": 4}
# On a worker: a node without its head ends its ranks, and itself. With Ray's defaults (300 s, 120 s and
# 60 s) it took 3 minutes, with these half of one.
_CUT_OFF_LIMITS = {
    "grpc_client_keepalive_time_ms": 5000,
    "grpc_client_keepalive_timeout_ms": 5000,
    "gcs_rpc_server_reconnect_timeout_s": 15,
}


class Node(Value):
    """A host of a Ray cluster, and its Ray's program and files."""

    address: str
    """The address of this host on the cluster network."""
    slots: int
    """GPUs that Ray may give to ranks; 1 on a host without a GPU, for its CPU."""
    threads: int
    memory_bytes: int
    program: Path
    temporary_folder: Path
    token_file: Path


def build_head_command(
    node: Node, *, dashboard: bool, extra_variables: Iterable[Variable]
) -> AnnotatedCommand:
    """Return the `ray start --head` of this host; `extra_variables` go to its processes."""
    role_flags: tuple[Flag, ...] = (
        Flag(("--head",), None, "the other hosts join it"),
        Flag(("--port",), str(RayPorts.gcs), "the port where they join"),
        Flag(("--ray-client-server-port",), str(RayPorts.first + 7), "in the same range"),
    )
    if dashboard:
        role_flags += (
            Flag(("--include-dashboard",), "true", "as asked"),
            Flag(("--dashboard-host",), "127.0.0.1", "anyone who reaches it can run code here"),
            Flag(("--dashboard-port",), str(RayPorts.dashboard), "in the same range"),
        )
    else:
        role_flags += (
            Flag(("--include-dashboard",), "false", "medley does not need it, and it is a way in"),
        )
    # `ray start` has no flags for these, and they listen on every address.
    autoscaler, dashboard_metrics = RayPorts.head_metrics
    metrics = (
        Variable("AUTOSCALER_METRIC_PORT", str(autoscaler), "in the same range; 44217 otherwise"),
        Variable("DASHBOARD_METRIC_PORT", str(dashboard_metrics), "in the same range; 44227 otherwise"),
    )
    return _build_start_command(node, role_flags, (*metrics, *extra_variables))


def build_worker_command(
    node: Node, *, head_address: str, extra_variables: Iterable[Variable]
) -> AnnotatedCommand:
    """Return the `ray start` that joins the cluster whose head listens at `head_address`, HOST:PORT."""
    return _build_start_command(node, (Flag(("--address",), head_address, "the head"),), extra_variables)


def _build_start_command(
    node: Node, role_flags: tuple[Flag, ...], extra_variables: Iterable[Variable]
) -> AnnotatedCommand:
    flags = (
        *role_flags,
        Flag(("--node-ip-address",), node.address, "this host's address on the cluster network"),
        Flag(("--num-gpus",), str(node.slots), "slots: each runs one rank of a model"),
        Flag(("--num-cpus",), str(max(2, node.threads)), "for Ray's own tasks; ranks ask for none"),
        Flag(
            ("--object-store-memory",),
            str(compute_object_store_bytes(node.memory_bytes)),
            "vLLM keeps nothing there; Ray would take 30 % of the memory",
        ),
        Flag(("--temp-dir",), str(node.temporary_folder), "Ray's logs and sockets"),
        Flag(("--disable-usage-stats",), None, "Ray reports usage to its makers by default"),
        *RayPorts.list_flags(),
    )
    env = keep_last_values(
        (*list_client_variables(node.token_file), *_list_node_variables(node), *extra_variables)
    )
    return AnnotatedCommand((str(node.program), "start"), flags, env)


def compute_object_store_bytes(memory_bytes: int) -> int:
    """Return 1 GiB, or a sixteenth of a small host's memory; Ray refuses less than 75 MiB."""
    return max(80 << 20, min(_OBJECT_STORE_BYTES, memory_bytes // 16))


def list_client_variables(token: Path) -> Iterator[Variable]:
    """Yield the variables of every process that connects to a cluster."""
    yield Variable("RAY_AUTH_MODE", "token", "without the token no one can join or run code")
    yield Variable("RAY_AUTH_TOKEN_PATH", str(token), "a file of its owner, never an argument")
    yield Variable("RAY_USAGE_STATS_ENABLED", "0", "Ray reports usage to its makers by default")


def _list_node_variables(node: Node) -> Iterator[Variable]:
    yield Variable(MARK_VARIABLE, str(node.temporary_folder), "ray-stop finds medley's processes by it")
    yield Variable("VLLM_HOST_IP", node.address, "ranks find each other at the address registered with Ray")
    yield Variable("RAY_memory_monitor_refresh_ms", "0", "on unified memory it kills ranks for their weights")
    yield Variable("OMP_NUM_THREADS", str(max(1, node.threads // node.slots)), "Ray would make it 1")
    for name, value in _HEALTH_CHECK.items():
        yield Variable(
            f"RAY_health_check_{name}", str(value), "a host that is cut off is declared dead within 20 s"
        )
    for name, value in _CUT_OFF_LIMITS.items():
        yield Variable(f"RAY_{name}", str(value), "a host that is cut off ends its ranks within a minute")
    yield Variable("RAY_num_prestart_python_workers", "0", "idle workers hold memory that the model needs")


def sort_by_rank_order(nodes: Iterable[Mapping[str, Any]], head: str) -> list[Mapping[str, Any]]:
    """Return living nodes with a free slot in vLLM 0.32.0's order (get_bundles_sorted_by_node)."""
    alive = [node for node in nodes if node["alive"] and node["free"] > 0]
    return sorted(alive, key=lambda node: (node["address"] != head, node["id"]))


def parse_ranks(actors: Iterable[Mapping[str, str]]) -> list[tuple[int, int, str]]:
    """Return pipeline stage, tensor rank and address of each rank, from the actors' names."""

    def find_number(part: str, name: str) -> int:
        return int(match[1]) if (match := re.search(rf"(?i)_{part}(\d+)(?:_|$)", name)) else 0

    return sorted(
        (find_number("PP", actor["name"]), find_number("TP", actor["name"]), actor["address"])
        for actor in actors
    )


def parse_slot_metrics(metrics: str) -> dict[str, float]:
    """Return how many of a node's slots are AVAILABLE and USED, from its metrics."""
    counts = {}
    for line in metrics.splitlines():
        if line.startswith("ray_resources{") and (state := re.search(r'Name="GPU".*State="(\w+)"', line)):
            counts[state[1]] = float(line.rsplit(None, 1)[1])
    return counts
