"""Build Ray's command lines and variables, and read its nodes, ranks and slots.

Flags and variables as of Ray 2.60.0 (`ray start --help`).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medley.command import AnnotatedCommand, Flag, Variable, merged
from medley.network.ports import RayPorts

# Every process of a cluster of ours inherits it, so that `ray-stop` ends ours and nobody else's.
MARK = "MEDLEY_RAY"
# vLLM keeps weights and KV cache outside of the object store, whose default is 30 % of the host's memory; on
# unified memory that is the GPU's too.
_OBJECT_STORE_BYTES = 1 << 30


# Ray's own are 5000, 3000, 10000 and 5: up to a minute.
_HEALTH_CHECK = {"initial_delay_ms": 5000, "period_ms": 2000, "timeout_ms": 3000, "failure_threshold": 4}
# The other side of it: a node without its head ends its ranks, and itself. With Ray's own (300 s, 120 s and
# 60 s) it took 3 minutes, with these half of one.
_OUT_OF_REACH = {
    "grpc_client_keepalive_time_ms": 5000,
    "grpc_client_keepalive_timeout_ms": 5000,
    "gcs_rpc_server_reconnect_timeout_s": 15,
}


@dataclass(frozen=True)
class Node:
    """What one host brings into a cluster, and where its Ray has its program and its files."""

    address: str
    """Its own, on the wire that the cluster talks over."""
    slots: int
    """GPUs that Ray may give to ranks; on a host without a GPU one, which stands for its CPU."""
    threads: int
    memory_bytes: int
    program: Path
    temporary: Path
    token: Path


def head(node: Node, *, dashboard: bool, more: Iterable[Variable]) -> AnnotatedCommand:
    """Return the `ray start --head` of this host; `more` are further variables of its processes."""
    role: tuple[Flag, ...] = (
        Flag(("--head",), None, "the other hosts join it"),
        Flag(("--port",), str(RayPorts.gcs), "where they join"),
        Flag(("--ray-client-server-port",), str(RayPorts.first + 7), "in the same range"),
    )
    if dashboard:
        role += (
            Flag(("--include-dashboard",), "true", "as asked"),
            Flag(("--dashboard-host",), "127.0.0.1", "whoever reaches it can run code here"),
            Flag(("--dashboard-port",), str(RayPorts.dashboard), "in the same range"),
        )
    else:
        role += (Flag(("--include-dashboard",), "false", "it is a way in, and nothing here needs it"),)
    # `ray start` has no flags for these, and they listen on every address.
    autoscaler, dashboard_metrics = RayPorts.of_metrics
    metrics = (
        Variable("AUTOSCALER_METRIC_PORT", str(autoscaler), "in the same range; 44217 otherwise"),
        Variable("DASHBOARD_METRIC_PORT", str(dashboard_metrics), "in the same range; 44227 otherwise"),
    )
    return _start(node, role, (*metrics, *more))


def worker(node: Node, *, to: str, more: Iterable[Variable]) -> AnnotatedCommand:
    """Return the `ray start` that joins the cluster whose head listens at `to`, as HOST:PORT."""
    return _start(node, (Flag(("--address",), to, "the head"),), more)


def _start(node: Node, role: tuple[Flag, ...], more: Iterable[Variable]) -> AnnotatedCommand:
    flags = (
        *role,
        Flag(("--node-ip-address",), node.address, "this host's on the wire that the cluster talks over"),
        Flag(("--num-gpus",), str(node.slots), "slots: each takes one rank of a model"),
        Flag(("--num-cpus",), str(max(2, node.threads)), "for Ray's own tasks; ranks ask for none"),
        Flag(
            ("--object-store-memory",),
            str(object_store_bytes(node.memory_bytes)),
            "vLLM keeps nothing there; Ray would take 30 % of the memory",
        ),
        Flag(("--temp-dir",), str(node.temporary), "Ray's logs and sockets"),
        Flag(("--disable-usage-stats",), None, "Ray reports usage to its makers unless told not to"),
        *RayPorts.flags(),
    )
    env = merged((*variables(node.token), *_of_node(node), *more))
    return AnnotatedCommand((str(node.program), "start"), flags, env)


def object_store_bytes(memory_bytes: int) -> int:
    """A gibibyte, or a sixteenth of a small host's memory; Ray refuses less than 75 MiB."""
    return max(80 << 20, min(_OBJECT_STORE_BYTES, memory_bytes // 16))


def variables(token: Path) -> Iterator[Variable]:
    """Yield what every process needs that connects to our clusters."""
    yield Variable("RAY_AUTH_MODE", "token", "who has no token can neither join nor run code")
    yield Variable("RAY_AUTH_TOKEN_PATH", str(token), "a file that its owner alone reads, never an argument")
    yield Variable("RAY_USAGE_STATS_ENABLED", "0", "Ray reports usage to its makers unless told not to")


def _of_node(node: Node) -> Iterator[Variable]:
    yield Variable(MARK, str(node.temporary), "what ray-stop knows our processes by")
    yield Variable("VLLM_HOST_IP", node.address, "ranks find each other at the address that Ray knows")
    yield Variable(
        "RAY_memory_monitor_refresh_ms", "0", "on unified memory it takes weights for a leak and kills ranks"
    )
    yield Variable("OMP_NUM_THREADS", str(max(1, node.threads // node.slots)), "Ray would make it 1")
    for name, value in _HEALTH_CHECK.items():
        yield Variable(
            f"RAY_health_check_{name}", str(value), "a host that is cut off is found dead within 20 s"
        )
    for name, value in _OUT_OF_REACH.items():
        yield Variable(f"RAY_{name}", str(value), "a host that is cut off ends its ranks within a minute")
    yield Variable("RAY_num_prestart_python_workers", "0", "idle workers hold memory that the model needs")


def in_order_of_ranks(nodes: Iterable[Mapping[str, Any]], head: str) -> list[Mapping[str, Any]]:
    """Living nodes with a free slot as vLLM gives them ranks: the driver's own first, then by Ray's id.

    As its RayExecutorV2 sorts bundles (`get_bundles_sorted_by_node`, vLLM 0.32.0).
    """
    alive = [node for node in nodes if node["alive"] and node["free"] > 0]
    return sorted(alive, key=lambda node: (node["address"] != head, node["id"]))


def ranks(actors: Iterable[Mapping[str, str]]) -> list[tuple[int, int, str]]:
    """Return pipeline stage, tensor rank and address of each rank, of the actors' names."""

    def number(part: str, name: str) -> int:
        return int(match[1]) if (match := re.search(rf"(?i)_{part}(\d+)(?:_|$)", name)) else 0

    return sorted((number("PP", at["name"]), number("TP", at["name"]), at["address"]) for at in actors)


def slots(metrics: str) -> dict[str, float]:
    """Return how many of a node's slots are AVAILABLE and USED, of its metrics.

    That text is long, so that only the lines that matter are read.
    """
    found = {}
    for line in metrics.splitlines():
        if line.startswith("ray_resources{") and (state := re.search(r'Name="GPU".*State="(\w+)"', line)):
            found[state[1]] = float(line.rsplit(None, 1)[1])
    return found
