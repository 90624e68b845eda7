"""A trial is one run of collectives over the hosts of a cluster, each step with its limit."""

import contextlib
import json
import os
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from medley import facts, machine, membership, shaped, spreading, store, transcript, wiring
from medley.collective import Member, Result, folded
from medley.fabric import Wishes
from medley.fabric.variables import NOT_CARRIED
from medley.membership import Membership
from medley.problem import Problem
from medley.watch import Watch

CONNECT_LIMIT_S = 40
# Besides that of each size: start, group, sums, twice for the pairs, once more where hosts start anew.
_STEPS = 6
_END_LIMIT_S = 5


def cluster() -> Membership:
    """The one that this host is in, as its head or not."""
    found = membership.noted()
    if found is None:
        raise Problem(
            "this host is in no cluster",
            cause="an all-reduce is made over the hosts of one",
            fix="medley ray-head, then medley ray-worker on each other host",
        )
    return found


def nodes(found: Membership, wanted: int | None, watch: Watch, *, least: int = 2) -> list[Mapping[str, Any]]:
    """The hosts that take part, this one first: `wanted`, or all there are, and `least` at least."""
    said = membership.ask(spreading.environment(found), Path(found.token), "read", found.head)
    living = sorted(
        (node for node in said["nodes"] if node["alive"]),
        key=lambda node: (node["address"] != found.address, node["id"]),
    )
    here = {node["address"] for node in living}
    for gone in {
        f"{node['name']} ({node['address']})" for node in said["nodes"] if node["address"] not in here
    }:
        watch.note(f"{gone} is gone, and takes no part")
    if len(living) < (wanted or least):
        raise Problem(
            f"{wanted or least} hosts are needed, and {len(living)} are here",
            cause=f"the cluster at {found.head} has {', '.join(node['name'] for node in living)}",
            fix="on each host that is missing: medley ray-worker HEAD; medley status shows who is there",
        )
    return [{**node, "told": said["told"].get(node["address"])} for node in living[:wanted]]


def variables(chosen: Sequence[Mapping[str, Any]], environ: Mapping[str, str]) -> dict[str, str]:
    """What is the group's, as `serve` has it; nothing where a host has told nothing of itself."""
    named = {f"{node['name']} ({node['address']})": node for node in chosen}
    if not all(node["told"] for node in chosen):
        return {}
    hosts = {host: facts.facts(transcript.parse(node["told"])) for host, node in named.items()}
    addresses = {host: node["address"] for host, node in named.items()}
    _, wired = wiring.of_all(hosts, addresses, next(iter(hosts)), Wishes(), environ)
    return {each.name: each.value for each in wired if each.everywhere or each.name not in NOT_CARRIED}


def result(
    found: Membership, chosen: Sequence[Mapping[str, Any]], sizes: Sequence[int], limit_s: float, watch: Watch
) -> Result:
    """What came of it; whatever happens, no rank is left on any host."""
    task = {
        "nodes": [{key: node[key] for key in ("id", "address", "free")} for node in chosen],
        "env": variables(chosen, os.environ),
        "sizes": list(sizes),
        "limit_s": limit_s,
        "life_s": CONNECT_LIMIT_S + limit_s * (_STEPS + len(sizes)),
        "script": transcript.script(facts.QUESTIONS),
    }
    made = Result({node["address"]: Member(node["address"], node["name"]) for node in chosen})
    with closing(said("collective.py", found, task, watch)) as events:
        for event in events:
            made = folded(made, event)
    return made


def said(
    script: str, found: Membership, task: Mapping[str, Any], watch: Watch
) -> Generator[Mapping[str, Any]]:
    """The events of a script of inside/ that works on the hosts of a cluster, to its end."""
    words, ended = (found.head, found.address, json.dumps(task)), False
    command = membership.asked(spreading.environment(found), Path(found.token), script, *words)
    process = machine.Process(command, (lines := SimpleQueue[str]()).put)
    try:
        for event in _events(process, lines, task["life_s"], watch):
            ended = ended or "done" in event
            yield event
        if not ended:
            raise _lost(process, task["life_s"])
        process.wait(_END_LIMIT_S)
    finally:
        process.stop(_END_LIMIT_S)


def keep(table: Mapping[str, Any], found: Membership) -> Path:
    """Note it on this host, for whoever plans over this cluster later."""
    path = store.state() / "collective.json"
    about = {"when": now(), "head": found.head}
    store.write(path, json.dumps({**about, **table}, indent=1))
    return path


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _events(
    process: machine.Process, lines: "SimpleQueue[str]", limit_s: float, watch: Watch
) -> Iterator[Mapping[str, Any]]:
    """What it says, until it is done, is gone, or its time is over; its steps are the watch's stages."""
    deadline = time.monotonic() + limit_s
    with contextlib.ExitStack() as stage:
        while time.monotonic() < deadline:
            try:
                line = lines.get(timeout=0.2)
            except Empty:
                if process.poll() and lines.empty():
                    return
                continue
            event = (shaped.table(line) if line.startswith("{") else None) or {}
            if step := event.get("step"):
                stage.close()
                stage.enter_context(watch.stage(step))
            yield event
            if "done" in event:
                return


def _lost(process: machine.Process, limit_s: float) -> Problem:
    finished = process.poll()
    return Problem(
        "the trial came to no end",
        cause="\n".join(finished.lines[-3:]) if finished else f"it has taken more than {limit_s:.0f} s",
        fix="medley status shows whether the cluster lives",
    )
