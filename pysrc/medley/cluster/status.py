"""Compare the running cluster with cluster.toml."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from medley.cluster.cluster_file import Cluster
from medley.errors import Problem
from medley.host.facts import GIB

Answer = Mapping[str, Any]
HEADINGS = ("HOST", "ROLE", "STATE", "NETWORK", "SLOTS", "MEMORY FREE", "SERVES")


NOT_STARTED = "not started"


class HostStatus(NamedTuple):
    """A row of the table that `medley status` prints."""

    host: str
    role: str
    state: str
    network: str
    slots: str
    memory: str
    models: str


def list_host_statuses(
    cluster: Cluster, answers: Mapping[str, Answer], failed: Mapping[str, Problem]
) -> Iterator[HostStatus]:
    """Yield the status of each host, from its answer or its Problem in `failed`."""
    nodes = _index_nodes(answers.get(cluster.head))
    for name in cluster.hosts:
        role = "head" if name == cluster.head else "worker"
        if name in failed or name not in answers:
            yield HostStatus(name, role, "does not answer", "-", "-", "-", "-")
            continue
        answer = answers[name]
        membership, memory = answer["membership"], answer["memory"]
        node = nodes.get(membership["address"]) if membership else None
        yield HostStatus(
            host=name,
            role=role,
            state=_describe_state(role, answer, node, nodes),
            network=_format_network(membership, answer["wire"]),
            slots=f"{node['slots'] - node['free']} of {node['slots']} taken" if node else "-",
            memory=f"{memory['available_bytes'] / GIB:.1f} of {memory['total_bytes'] / GIB:.1f} GiB",
            models=", ".join(_list_served_models(answer, nodes)) or "-",
        )


def list_lost_workers(statuses: Iterable[HostStatus], answers: Mapping[str, Answer]) -> list[str]:
    """Return the workers that answer, but are not up in the head's view."""
    missing = (status.host for status in statuses if status.state != "up" and status.role == "worker")
    return [host for host in missing if answers.get(host)]


def list_findings(
    statuses: Iterable[HostStatus], answers: Mapping[str, Answer], closed: Mapping[str, str], head: str
) -> Iterator[str]:
    """Yield differences from cluster.toml with fixes; `closed`: why a host cannot reach the head."""
    is_ray_up = bool(_index_nodes(answers.get(head)))
    rows = list(statuses)
    if any(status.state == NOT_STARTED for status in rows):
        yield "the cluster is not started: medley up"
    for status in rows:
        if status.state in {"up", NOT_STARTED}:
            continue
        if status.host in closed and is_ray_up:
            yield (
                f"{status.host}: it cannot reach {head} ({closed[status.host]}), and {head} runs: "
                f"on {status.host}: ip -br link; it rejoins once that is fixed"
            )
        elif status.host == head and head in answers:
            yield f"{head}: {status.state}; the host answers, so only Ray ended: medley up"
        elif status.host not in answers:
            yield f"{status.host}: it is off or unreachable: medley up once it is back"
        else:
            yield f"{status.host}: {status.state}: medley up; medley logs {status.host}"
    hosts_by_text: dict[str, list[str]] = {}
    for name, answer in answers.items():
        for text in (*answer["low"], *answer.get("slow", ())):
            hosts_by_text.setdefault(text, []).append(name)
    yield from (f"{', '.join(names)}: {text}" for text, names in hosts_by_text.items())


def _describe_state(role: str, answer: Answer, node: Answer | None, nodes: Mapping[str, Answer]) -> str:
    membership = answer["membership"]
    unit = next((unit for unit in answer["units"] if unit["name"] == "medley-ray"), None)
    if unit and not unit["running"]:
        return _describe_stopped_unit(unit)
    if not membership:  # the unit runs without a process of Ray for a moment while Ray starts or ends
        if unit:
            return "Ray starts or ended"
        return "not in the cluster" if nodes else NOT_STARTED
    if membership["role"] != role:
        return f"is {membership['role']} of the cluster at {membership['head']}"
    if not nodes:
        return "Ray does not answer" if role == "head" else "up, head unknown"
    return _describe_listed_node(node)


def _describe_stopped_unit(unit: Answer) -> str:
    output_lines = (unit["said"] or "").strip().splitlines()
    last_output = f" ({output_lines[-1].strip()[:80]})" if output_lines else ""
    if unit["next_s"] is None:
        return f"Ray ended{last_output}"
    return f"Ray restarts, {unit['restarts']} times in a row{last_output}"


def _describe_listed_node(node: Answer | None) -> str:
    """Return the state of a node as the head lists it."""
    if not node:
        return "not listed by the head"
    return "up" if node["alive"] else "the head reports it dead"


def _index_nodes(head_answer: Answer | None) -> dict[str, Answer]:
    """Return the head's nodes by address; of two with one address, the living one."""
    nodes = head_answer["nodes"] if head_answer else None
    if not isinstance(nodes, list):
        return {}
    return {node["address"]: node for node in sorted(nodes, key=lambda node: bool(node["alive"]))}


def _format_network(membership: Answer | None, link: Answer | None) -> str:
    if not membership or not link:
        return "-"
    speed = f", {link['mbit'] / 1000:g} Gbit/s" if link["mbit"] else ""
    return f"{membership['address']} ({link['interface']}{speed}{'' if link['up'] else ', DOWN'})"


def _list_served_models(answer: Answer, nodes: Mapping[str, Answer]) -> Iterator[str]:
    dead_addresses = {address for address, node in nodes.items() if not node["alive"]}
    for server in answer["servers"]:
        dead_hosts = ", ".join(dead_addresses.intersection(server.get("hosts", "").split()))
        is_lost = dead_hosts and server["state"] == "ready"
        state = f"lost: the head reports {dead_hosts} dead" if is_lost else server["state"]
        yield f"{server['model']} at {server['url']} ({state})"
    server_urls = {server["url"] for server in answer["servers"]}
    for unit in answer["units"]:
        if unit["name"].startswith("medley-serve-") and not unit["running"] and not server_urls:
            yield f"{unit['name']} exited with {unit['status']}"
