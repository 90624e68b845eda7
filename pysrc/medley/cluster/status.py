"""Compare the running cluster with cluster.toml."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from medley.cluster import Cluster
from medley.errors import Problem
from medley.host.facts import GIB

Told = Mapping[str, Any]
HEADINGS = ("HOST", "ROLE", "STATE", "NETWORK", "SLOTS", "MEMORY FREE", "SERVES")


NOT_STARTED = "not started"


class HostStatus(NamedTuple):
    """A row of the table that `medley status` prints."""

    host: str
    role: str
    state: str
    wire: str
    slots: str
    memory: str
    served: str


def host_statuses(
    cluster: Cluster, told: Mapping[str, Told], failed: Mapping[str, Problem]
) -> Iterator[HostStatus]:
    """Yield the status of each host, from its answer in `told` or its Problem in `failed`."""
    nodes = _nodes(told.get(cluster.head))
    for name in cluster.hosts:
        role = "head" if name == cluster.head else "worker"
        if name in failed or name not in told:
            yield HostStatus(name, role, "does not answer", "-", "-", "-", "-")
            continue
        each = told[name]
        part, memory = each["membership"], each["memory"]
        node = nodes.get(part["address"]) if part else None
        yield HostStatus(
            host=name,
            role=role,
            state=_state(role, each, node, nodes),
            wire=_wire(part, each["wire"]),
            slots=f"{node['slots'] - node['free']} of {node['slots']} taken" if node else "-",
            memory=f"{memory['available_bytes'] / GIB:.1f} of {memory['total_bytes'] / GIB:.1f} GiB",
            served=", ".join(_served(each, nodes)) or "-",
        )


def lost(found: Iterable[HostStatus], told: Mapping[str, Told]) -> list[str]:
    """Return the workers that answer, but are not up in the head's view."""
    missing = (each.host for each in found if each.state != "up" and each.role == "worker")
    return [host for host in missing if told.get(host)]


def findings(
    found: Iterable[HostStatus], told: Mapping[str, Told], closed: Mapping[str, str], head: str
) -> Iterator[str]:
    """Yield differences from cluster.toml with fixes; `closed`: why a host cannot reach the head."""
    ray = bool(_nodes(told.get(head)))
    rows = list(found)
    if any(each.state == NOT_STARTED for each in rows):
        yield "the cluster is not started: medley up"
    for each in rows:
        if each.state in {"up", NOT_STARTED}:
            continue
        if each.host in closed and ray:
            yield (
                f"{each.host}: it cannot reach {head} ({closed[each.host]}), and {head} runs: "
                f"on {each.host}: ip -br link; it rejoins once that is fixed"
            )
        elif each.host == head and head in told:
            yield f"{head}: {each.state}; the host answers, so only Ray ended: medley up"
        elif each.host not in told:
            yield f"{each.host}: it is off or unreachable: medley up once it is back"
        else:
            yield f"{each.host}: {each.state}: medley up; medley logs {each.host}"
    same: dict[str, list[str]] = {}
    for name, said in told.items():
        for text in (*said["low"], *said.get("slow", ())):
            same.setdefault(text, []).append(name)
    yield from (f"{', '.join(names)}: {text}" for text, names in same.items())


def _state(role: str, each: Told, node: Told | None, nodes: Mapping[str, Told]) -> str:
    part = each["membership"]
    unit = next((unit for unit in each["units"] if unit["name"] == "medley-ray"), None)
    if unit and not unit["running"]:
        last = (unit["said"] or "").strip().splitlines()
        said = f" ({last[-1].strip()[:80]})" if last else ""
        if unit["next_s"] is None:
            return f"Ray ended{said}"
        return f"Ray restarts, {unit['restarts']} times in a row{said}"
    if not part:  # the unit runs without a process of Ray for a moment while Ray starts or ends
        return "Ray starts or ended" if unit else "not in the cluster" if nodes else NOT_STARTED
    if part["role"] != role:
        return f"is {part['role']} of the cluster at {part['head']}"
    if not nodes:
        return "Ray does not answer" if role == "head" else "up, head unknown"
    seen = node and node["alive"]
    return "up" if seen else "the head reports it dead" if node else "not listed by the head"


def _nodes(head: Told | None) -> dict[str, Told]:
    """Return the head's nodes by address; of two with one address, the living one."""
    found = head["nodes"] if head else None
    if not isinstance(found, list):
        return {}
    return {node["address"]: node for node in sorted(found, key=lambda node: bool(node["alive"]))}


def _wire(part: Told | None, wire: Told | None) -> str:
    if not part or not wire:
        return "-"
    speed = f", {wire['mbit'] / 1000:g} Gbit/s" if wire["mbit"] else ""
    return f"{part['address']} ({wire['interface']}{speed}{'' if wire['up'] else ', DOWN'})"


def _served(each: Told, nodes: Mapping[str, Told]) -> Iterator[str]:
    gone = {address for address, node in nodes.items() if not node["alive"]}
    for server in each["servers"]:
        lost = ", ".join(gone.intersection(server.get("hosts", "").split()))
        dead = lost and server["state"] == "ready"
        state = f"lost: the head reports {lost} dead" if dead else server["state"]
        yield f"{server['model']} at {server['url']} ({state})"
    named = {server["url"] for server in each["servers"]}
    for unit in each["units"]:
        if unit["name"].startswith("medley-serve-") and not unit["running"] and not named:
            yield f"{unit['name']} exited with {unit['status']}"
