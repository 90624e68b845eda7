"""Run an all-reduce, or another script, on the hosts of a Ray cluster, with limits."""

import contextlib
import json
import os
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from typing import Any

from medley import json_shape, storage, transcript
from medley.cluster import membership, ray_serving
from medley.cluster.membership import Membership
from medley.environment import engine_source
from medley.errors import Problem
from medley.host import facts
from medley.measurement.collective.result import AllReduceResult, Participant
from medley.network.fabric import per_host
from medley.network.fabric.choice import NetworkOptions
from medley.network.fabric.variables import NOT_CARRIED_VARIABLES
from medley.process import Process
from medley.progress import Progress
from medley.unusable_file import skip_unusable_file

CONNECT_LIMIT_S = 40
# Steps in addition to one for each size: start, group, sums, twice the pairs, and a restart of ranks.
_STEP_COUNT = 6
_END_LIMIT_S = 5


def require_cluster() -> Membership:
    """Return this host's membership, or raise a Problem if it is in no cluster."""
    member = membership.find_membership()
    if member is None:
        raise Problem(
            "this host is in no cluster",
            cause="an all-reduce is made over the hosts of one",
            fix="medley ray-head, then medley ray-worker on each other host",
        )
    return member


def choose_nodes(
    member: Membership, count: int | None, progress: Progress, *, minimum: int = 2
) -> list[Mapping[str, Any]]:
    """Return Ray's table of each host that takes part, this one first.

    `count` of them take part, or all. Raise a Problem if fewer live, or fewer than `minimum`.
    """
    state = member.ask("read")
    living = sorted(
        (node for node in state["nodes"] if node["alive"]),
        key=lambda node: (node["address"] != member.address, node["id"]),
    )
    addresses = {node["address"] for node in living}
    for name in {_format_node(node) for node in state["nodes"] if node["address"] not in addresses}:
        progress.note(f"{name} is gone, and takes no part")
    if len(living) < (count or minimum):
        raise Problem(
            f"{count or minimum} hosts are needed, and {len(living)} are here",
            cause=f"the cluster at {member.head} has {', '.join(node['name'] for node in living)}",
            fix="on each host that is missing: medley ray-worker HEAD; medley status shows who is there",
        )
    return [{**node, "told": state["told"].get(node["address"])} for node in living[:count]]


def _format_node(node: Mapping[str, Any]) -> str:
    return f"{node['name']} ({node['address']})"


def compute_variables(
    nodes: Sequence[Mapping[str, Any]], environ: Mapping[str, str], options: NetworkOptions
) -> dict[str, str]:
    """Return the network variables as in `serve`; none if a host's facts are unknown."""
    if not all(node["told"] for node in nodes):
        return {}
    hosts = {
        _format_node(node): facts.read_facts(transcript.parse_transcript(node["told"])) for node in nodes
    }
    addresses = {_format_node(node): node["address"] for node in nodes}
    _, settings = per_host.choose_running_cluster_network(
        hosts, addresses, next(iter(hosts)), options, environ
    )
    return {
        variable.name: variable.value
        for variable in settings
        if variable.everywhere or variable.name not in NOT_CARRIED_VARIABLES
    }


def run_all_reduce(
    member: Membership,
    nodes: Sequence[Mapping[str, Any]],
    sizes: Sequence[int],
    limit_s: float,
    progress: Progress,
) -> AllReduceResult:
    """Run an all-reduce of each size on the nodes; no rank is left on any host, even after an error."""
    nccl_version = member.find_engine_environment().nccl_version
    options = NetworkOptions(
        nccl_version=nccl_version or engine_source.find_oldest_nccl(ray_serving.choose_engine(member, None))
    )
    task = {
        "nodes": [{key: node[key] for key in ("id", "address", "free")} for node in nodes],
        "env": compute_variables(nodes, os.environ, options),
        "sizes": list(sizes),
        "limit_s": limit_s,
        "life_s": CONNECT_LIMIT_S + limit_s * (_STEP_COUNT + len(sizes)),
        "script": transcript.build_script(facts.QUESTIONS),
    }
    result = AllReduceResult({node["address"]: Participant(node["address"], node["name"]) for node in nodes})
    with contextlib.closing(run_script("allreduce.py", member, task, progress)) as events:
        for event in events:
            result = result.add_event(event)
    return result


def run_script(
    script: str, member: Membership, task: Mapping[str, Any], progress: Progress
) -> Generator[Mapping[str, Any]]:
    """Run a script of payload/ on the hosts of a cluster, and yield its events until it is done.

    Raise a Problem if it ends early or after `life_s` of its task.
    """
    arguments, lines = (member.head, member.address, json.dumps(task)), SimpleQueue[str]()
    command = member.build_command(script, *arguments)
    process = Process(command, lines.put)
    try:
        with contextlib.ExitStack() as stage:
            for line in _read_lines(process, lines, task["life_s"]):
                event = (json_shape.parse_object(line) if line.startswith("{") else None) or {}
                if step := event.get("step"):
                    stage.close()
                    stage.enter_context(progress.stage(step))
                yield event
                if "done" in event:
                    process.wait(_END_LIMIT_S)
                    return
        finished = process.poll()
        raise Problem(
            "the measurement did not finish",
            cause="\n".join(finished.lines[-3:])
            if finished
            else f"it has taken more than {task['life_s']:.0f} s",
            fix="medley status shows whether the cluster lives",
        )
    finally:
        process.stop(_END_LIMIT_S)


def _read_lines(process: Process, lines: "SimpleQueue[str]", limit_s: float) -> Iterator[str]:
    """Yield the lines until the process ends or the time is over."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        try:
            yield lines.get(timeout=0.2)
        except Empty:
            if process.poll() and lines.empty():
                return


def write_result(table: Mapping[str, Any], member: Membership) -> None:
    """Write the result's table to collective.json in the state folder."""
    origin = {"when": format_now(), "head": member.head}
    with skip_unusable_file():
        storage.write_text(
            storage.find_state_folder() / "collective.json", json.dumps({**origin, **table}, indent=1)
        )


def format_now() -> str:
    """Return the time in UTC to the second, as 2026-11-22T03:00:00+00:00."""
    return datetime.now(UTC).isoformat(timespec="seconds")
