"""Collect a case from transcripts, this host or a cluster; make a fix on one of its hosts."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from medley import cluster, config, process, storage, transcript
from medley.cluster import ClusterHost, checks, self_command
from medley.cluster.fleet import Fleet, counted
from medley.cluster.remote import ConnectionLost, NotAnswering
from medley.command import Command
from medley.doctor.checks import GROUP, Case, ExaminedHost, Mend
from medley.engine import Serving
from medley.engine.launch import Order
from medley.environment import engine_source
from medley.errors import Problem
from medley.host import facts
from medley.host.health import QUESTIONS, health
from medley.host.health.software import OWN_VARIABLE
from medley.host.kind import kind_of
from medley.model.resolve import weights
from medley.network.fabric import fabric
from medley.network.fabric.types import Endpoint, Fabric, NetworkOptions
from medley.planner import named
from medley.planner.fit import gib
from medley.planner.placement import PlacementOptions
from medley.planner.topology import Topology
from medley.progress import Progress
from medley.serving.alternatives import placed
from medley.serving.prepare import shape_of
from medley.transcript import Transcript

_PAIR = 2
_EXAMINE_LIMIT_S = 15
"""A hub that does not answer and a driver that wakes up take seconds each, and are no reason to ask anew."""
_LOOK_LIMIT_S = 30
_REACH_LIMIT_S = 10
MEND_COMMAND_LIMIT_S = 60
MEND_LIMIT_S = MEND_COMMAND_LIMIT_S + 15


def of_transcripts(answers: Mapping[str, Transcript]) -> Case:
    return case({name: host(name, said) for name, said in answers.items()})


def of_this(name: str) -> Case:
    return of_transcripts({name: examined(None)})


def of_cluster(fleet: Fleet, progress: Progress) -> Case:
    """All that answer are asked at once, and then whether they reach each other."""
    wanted = fleet.cluster
    with progress.stage(f"check {counted(fleet.present)}"):
        said = fleet.ask("examine", lambda name: {"env": wanted.hosts[name].env}, limit_s=_LOOK_LIMIT_S)
    digest = self_command.source_digest()
    hosts = {}
    for name, each in said.items():
        there, answers = fleet.remotes[name], transcript.parse(each["transcript"])
        greeting = {**there.greeting, "ahead_s": there.clock_ahead_s}
        hosts[name] = host(name, answers, member=wanted.member(name), greeting=greeting)
    members = {name: (each.kind, wanted.member(name)) for name, each in hosts.items() if each.kind}
    sources = checks.sources_of_members(members, wanted.engine)
    found = case(
        hosts,
        replace(wanted.wishes, nccl=engine_source.nccl(wanted.engine, sources.values())),
        head=wanted.head,
        silent={name: _silence(fleet, name, digest) for name in fleet.failed},
        digest=digest,
        engine=wanted.engine,
    )
    if found.fabric is None or len(found.fabric.ends) < _PAIR:
        return found
    with progress.stage("check connections between the hosts"):
        return replace(found, closed=_closed(fleet, found.fabric.ends, wanted.head))


def examined(env: str | None) -> Transcript:
    """The answers of this host; `env` is a virtualenv that cluster.toml names."""
    own = {OWN_VARIABLE: str(Path(env).expanduser())} if env and "/" in env else {}
    return process.ask((*facts.QUESTIONS, *QUESTIONS), own, limit_of_all_s=_EXAMINE_LIMIT_S)


def host(
    name: str,
    answers: Transcript,
    *,
    member: ClusterHost | None = None,
    greeting: Mapping[str, Any] | None = None,
) -> ExaminedHost:
    found, member = facts.facts(answers), member or ClusterHost()
    kind, problem = None, None
    try:
        kind = kind_of(found, member.kind)
    except Problem as why:
        problem = why
    return ExaminedHost(name, found, health(answers), kind, problem, member, greeting or {}, answers)


def case(hosts: Mapping[str, ExaminedHost], wishes: NetworkOptions | None = None, **more: Any) -> Case:  # noqa: ANN401 - the case's own
    """With the wire of those that share one; without which the others would, is named."""
    wishes = wishes or NetworkOptions()
    linked = {name: each.facts for name, each in hosts.items() if each.facts.net.links}
    found, apart = _fabric(linked, wishes, more.get("head"))
    return Case(hosts, wishes, found, apart, **more)


def _fabric(
    hosts: Mapping[str, facts.Facts], wishes: NetworkOptions, head: str | None
) -> tuple[Fabric | None, dict[str, Problem]]:
    """Of all hosts, or of all but one; and why there is none of all."""
    if len(hosts) < _PAIR:
        return None, {}
    try:
        return fabric(hosts, wishes), {}
    except Problem as problem:
        for name in hosts:
            rest = {other: each for other, each in hosts.items() if other != name}
            if name != head and len(rest) >= _PAIR:
                with suppress(Problem):
                    return fabric(rest, wishes), {name: problem}
        return None, {GROUP: problem}


def _silence(fleet: Fleet, name: str, digest: str) -> Problem:
    """Another medley may know no such request: then that it is another is what there is to say."""
    there = fleet.remotes.get(name)
    differs = there and there.greeting and checks.other_medley(name, there.greeting["medley"], digest)
    return differs or fleet.failed[name]


def _closed(fleet: Fleet, ends: Mapping[str, Endpoint], head: str) -> Mapping[str, Problem]:
    """As `up` tries it; a host that cannot even listen there is told of by itself."""
    addresses = {name: end.address for name, end in ends.items()}
    said = fleet.reach(addresses, lambda _: {"starts": False, "head": False}, _REACH_LIMIT_S)
    failed = {name: fleet.failed[name] for name in ends if name in fleet.failed}
    for name, problem in failed.items():
        # A host that has answered: what else is asked of it may be well.
        if not isinstance(problem, ConnectionLost | NotAnswering):
            del fleet.failed[name]
    return {**dict(checks.unreached(said, head, addresses)), **failed}


def wanted(named: str | None, without: tuple[str, ...]) -> cluster.Cluster | None:
    """The cluster that is meant; None where nobody named one and there is none."""
    if not named and not without and cluster.file() is None:
        return None
    return cluster.only(cluster.read(named), without)


def mend(found: Mend, fleet: Fleet | None, progress: Progress) -> Problem | None:
    """Make it so; the Problem, where it could not be."""
    asked = {"words": list(found.words), "unasked": list(found.unasked), "root": found.root}
    if fleet is not None:
        fleet.ask("mend", lambda _: asked, limit_s=MEND_LIMIT_S, among=[found.host])
        return fleet.failed.pop(found.host, None)
    try:
        apply_fix(asked, progress.note)
    except Problem as problem:
        return problem
    return None


def apply_fix(asked: Mapping[str, Any], note: Callable[[str], None]) -> Mapping[str, Any]:
    """`words` of the command, `unasked` more of them, and whether it needs `root`."""
    words, shown = tuple(asked["words"]), " ".join(asked["words"])
    if words[0] == "medley":
        words = (*self_command.own_command(), *words[1:])
    sudo = ("sudo", "-n") if asked["root"] and os.geteuid() != 0 else ()
    command = Command((*sudo, *words, *asked["unasked"]))
    finished = process.run(command, limit_s=MEND_COMMAND_LIMIT_S, on_line=note)
    if finished.status:
        raise Problem(
            f"the change failed: {shown}",
            cause="\n".join(finished.lines[-4:]) or f"it ended with {finished.status}",
            fix=f"run it on that host, where sudo can ask for its password: {'sudo ' if sudo else ''}{shown}",
        )
    return {}


def fits_model(
    model: str, case: Case, typed: tuple[str, ...], files: tuple[str, ...], watch: Progress
) -> tuple[str, Problem | None]:
    """On the hosts whose kind is known; `typed` was what asks, of the hosts of these files, if any."""
    hosts = {name: (host.facts, host.kind) for name, host in case.hosts.items() if host.kind}
    if not hosts:
        return "", Problem(
            "the model's layout cannot be planned",
            cause="the kind of every host is unknown",
            fix="medley doctor  # fix the errors above first",
        )
    try:
        found = weights(model, config.models(), storage.cache(), typed)
        wanted = PlacementOptions(wishes=case.wishes, engine=case.engine)
        plan = ("medley", "plan", model, *(("--from", *files) if files else ()))
        order = Order(found, Serving(found.target, found.name), wanted, typed=plan)
        pinned = all(host.pinned for host in case.hosts.values())
        own = any(host.member.env or host.member.image for host in case.hosts.values())
        chosen = placed(order, shape_of(found, watch), Topology(hosts, own=own, pinned=pinned))
    except Problem as problem:
        return "", problem
    free = min(rank.free_bytes for rank in chosen.fit.ranks)
    return f"{found.name} fits: {named(chosen.layout)}; {gib(free)} GiB to spare", None
