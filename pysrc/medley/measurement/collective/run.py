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
from medley.measurement.collective import Participant, Result
from medley.network.fabric import per_host
from medley.network.fabric.types import NetworkOptions
from medley.network.fabric.variables import NOT_CARRIED
from medley.process import Process
from medley.progress import Progress

CONNECT_LIMIT_S = 40
# Besides that of each size: start, group, sums, twice for the pairs, once more where hosts start anew.
_STEPS = 6
_END_LIMIT_S = 5


def current_cluster() -> Membership:
    found = membership.noted()
    if found is None:
        raise Problem(
            "this host is in no cluster",
            cause="an all-reduce is made over the hosts of one",
            fix="medley ray-head, then medley ray-worker on each other host",
        )
    return found


def chosen_nodes(
    found: Membership, wanted: int | None, progress: Progress, *, least: int = 2
) -> list[Mapping[str, Any]]:
    """The hosts that take part, this one first: `wanted`, or all there are, and `least` at least."""
    state = found.ask("read")
    living = sorted(
        (node for node in state["nodes"] if node["alive"]),
        key=lambda node: (node["address"] != found.address, node["id"]),
    )
    here = {node["address"] for node in living}
    for gone in {_name(node) for node in state["nodes"] if node["address"] not in here}:
        progress.note(f"{gone} is gone, and takes no part")
    if len(living) < (wanted or least):
        raise Problem(
            f"{wanted or least} hosts are needed, and {len(living)} are here",
            cause=f"the cluster at {found.head} has {', '.join(node['name'] for node in living)}",
            fix="on each host that is missing: medley ray-worker HEAD; medley status shows who is there",
        )
    return [{**node, "told": state["told"].get(node["address"])} for node in living[:wanted]]


def _name(node: Mapping[str, Any]) -> str:
    return f"{node['name']} ({node['address']})"


def variables(
    chosen: Sequence[Mapping[str, Any]], environ: Mapping[str, str], options: NetworkOptions
) -> dict[str, str]:
    """Return the network variables as in `serve`; none if a host's facts are unknown."""
    if not all(node["told"] for node in chosen):
        return {}
    hosts = {_name(node): facts.facts(transcript.parse(node["told"])) for node in chosen}
    addresses = {_name(node): node["address"] for node in chosen}
    _, found = per_host.running_cluster_network(hosts, addresses, next(iter(hosts)), options, environ)
    return {each.name: each.value for each in found if each.everywhere or each.name not in NOT_CARRIED}


def run_all_reduce(
    found: Membership,
    chosen: Sequence[Mapping[str, Any]],
    sizes: Sequence[int],
    limit_s: float,
    progress: Progress,
) -> Result:
    """Run it; whatever happens, no rank is left on any host."""
    nccl = found.engine_environment().nccl
    options = NetworkOptions(nccl=nccl or engine_source.nccl(ray_serving.engine(found, None)))
    task = {
        "nodes": [{key: node[key] for key in ("id", "address", "free")} for node in chosen],
        "env": variables(chosen, os.environ, options),
        "sizes": list(sizes),
        "limit_s": limit_s,
        "life_s": CONNECT_LIMIT_S + limit_s * (_STEPS + len(sizes)),
        "script": transcript.script(facts.QUESTIONS),
    }
    made = Result({node["address"]: Participant(node["address"], node["name"]) for node in chosen})
    with contextlib.closing(script_events("allreduce.py", found, task, progress)) as events:
        for event in events:
            made = made.having(event)
    return made


def script_events(
    script: str, found: Membership, task: Mapping[str, Any], progress: Progress
) -> Generator[Mapping[str, Any]]:
    """The events of a script of payload/ that works on the hosts of a cluster, until it is done."""
    words, lines = (found.head, found.address, json.dumps(task)), SimpleQueue[str]()
    command = found.asked(script, *words)
    process = Process(command, lines.put)
    try:
        with contextlib.ExitStack() as stage:
            for line in _lines(process, lines, task["life_s"]):
                event = (json_shape.table(line) if line.startswith("{") else None) or {}
                if step := event.get("step"):
                    stage.close()
                    stage.enter_context(progress.stage(step))
                yield event
                if "done" in event:
                    process.wait(_END_LIMIT_S)
                    return
        finished = process.poll()
        raise Problem(
            "the trial came to no end",
            cause="\n".join(finished.lines[-3:])
            if finished
            else f"it has taken more than {task['life_s']:.0f} s",
            fix="medley status shows whether the cluster lives",
        )
    finally:
        process.stop(_END_LIMIT_S)


def _lines(process: Process, lines: "SimpleQueue[str]", limit_s: float) -> Iterator[str]:
    """Yield the lines until the process ends or the time is over."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        try:
            yield lines.get(timeout=0.2)
        except Empty:
            if process.poll() and lines.empty():
                return


def keep_result(table: Mapping[str, Any], found: Membership) -> None:
    about = {"when": now(), "head": found.head}
    storage.write(storage.state() / "collective.json", json.dumps({**about, **table}, indent=1))


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
