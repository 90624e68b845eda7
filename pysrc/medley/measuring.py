"""Measuring is putting devices to work, each by itself: those of a cluster's hosts, or this host's own."""

import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from importlib.resources import as_file, files
from typing import Any

from medley import (
    config,
    facts,
    libcuda,
    machine,
    prove,
    recognised,
    speeds,
    survey,
    toolkit,
    tools,
    transcript,
    trial,
    venv,
)
from medley.kind import kind
from medley.membership import Membership
from medley.problem import Problem
from medley.speeds import Measurable, Speeds, Unit
from medley.watch import Watch

# To start, to measure three times, and one to spare.
_STEPS = 5
_LIMIT_S = 300
_HERE = "here"  # as inside/meter.py calls its host


def of_cluster(
    found: Membership, chosen: Sequence[Mapping[str, Any]], limit_s: float, watch: Watch
) -> Speeds:
    """What the devices of these hosts reach, all at the same time."""
    task = {
        "nodes": [{key: node[key] for key in ("id", "address", "free", "slots")} for node in chosen],
        "limit_s": limit_s,
        "life_s": trial.CONNECT_LIMIT_S + limit_s * _STEPS,
    }
    hosts, when, made = measurable(chosen), trial.now(), Speeds()
    with closing(trial.said("speed.py", found, task, watch)) as events:
        for event in events:
            made = speeds.folded(made, event, hosts, when)
    return made


def of_this_host(watch: Watch) -> Speeds:
    """What this host's devices reach, where it is in no cluster."""
    said, sort = recognised.recognised()
    chain = libcuda.given(toolkit.find(sort.name, watch=watch), sort.host)
    where = venv.ready(tools.environment(sort, None), chain, driver=sort.host.driver, watch=watch)
    host, when, made = Measurable(platform.node(), tuple(survey.units(said, sort))), trial.now(), Speeds()
    with as_file(files("medley") / "inside" / "meter.py") as meter, watch.stage("measure this host"):
        command = prove.command(where, chain, sort.host.device, str(meter), os.environ.get("PATH", ""))
        finished = machine.run(command, limit_s=_LIMIT_S)
    for line in finished.lines:
        if line.startswith("{"):
            made = speeds.folded(made, json.loads(line), {_HERE: host}, when)
    if finished.status or not made.devices:
        event = {"failed": _HERE, "said": "\n".join(finished.lines[-3:])}
        made = speeds.folded(made, event, {_HERE: host}, when)
    return made


def measurable(chosen: Iterable[Mapping[str, Any]]) -> dict[str, Measurable]:
    """By address: the hosts, with the devices that their facts have."""
    return {
        node["address"]: Measurable(f"{node['name']} ({node['address']})", _units(node["told"]))
        for node in chosen
    }


def _units(told: str | None) -> tuple[Unit, ...]:
    """None where a host told nothing, or nothing that makes it one of our kinds."""
    try:
        host = facts.facts(transcript.parse(told or ""))
        return tuple(survey.units(host, kind(host, config.hosts())))
    except Problem:
        return ()
