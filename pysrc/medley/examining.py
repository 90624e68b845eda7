"""Examining is how the doctor comes by a case: from transcripts, this host, or a cluster's at once."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from medley import agreement, cluster, source, transcript
from medley.doctor.cases import case, host
from medley.doctor.shapes import Case, Mend
from medley.errands import examine
from medley.errands import mend as mending
from medley.everyone import Everyone, counted
from medley.fabric import End
from medley.problem import Problem
from medley.recognised import kind_of
from medley.remote import Lost, Silent
from medley.transcript import Transcript
from medley.watch import Watch

_LOOK_LIMIT_S = 30
_REACH_LIMIT_S = 10
MEND_LIMIT_S = mending.LIMIT_S + 15


def of_transcripts(answers: Mapping[str, Transcript]) -> Case:
    return case({name: host(name, said, kind_of) for name, said in answers.items()})


def of_this(name: str) -> Case:
    return case({name: host(name, examine.examined(None), kind_of)})


def of_cluster(everyone: Everyone, watch: Watch) -> Case:
    """All that answer are asked at once, and then whether they reach each other."""
    wanted = everyone.cluster
    with watch.stage(f"look at {counted(everyone.present)}"):
        said = everyone.ask("examine", lambda name: {"env": wanted.hosts[name].env}, limit_s=_LOOK_LIMIT_S)
    ours = source.digest()
    hosts = {
        name: host(
            name,
            transcript.parse(each["transcript"]),
            kind_of,
            member=wanted.member(name),
            told=_greeting(everyone, name),
        )
        for name, each in said.items()
    }
    silent = {name: _why(everyone, name, ours) for name in everyone.failed}
    more = {"head": wanted.head, "silent": silent, "digest": ours, "engine": wanted.engine}
    wishes = wanted.wishes
    found = case(hosts, wishes, **more)
    if found.fabric is None or len(found.fabric.ends) < 2:  # noqa: PLR2004 - two to a connection
        return found
    with watch.stage("reach each other"):
        closed = _closed(everyone, found.fabric.ends, wanted.head)
    return replace(found, closed=closed)


def _greeting(everyone: Everyone, name: str) -> Mapping[str, Any]:
    there = everyone.remotes[name]
    return {**there.greeting, "ahead_s": there.clock_ahead_s}


def _why(everyone: Everyone, name: str, ours: str) -> Problem:
    """Another medley may know no such errand: then that it is another is what there is to say."""
    there = everyone.remotes.get(name)
    if there and there.greeting:
        differs = agreement.differences(name, there.greeting, ours, 0)
        return next(differs, everyone.failed[name])
    return everyone.failed[name]


def _closed(everyone: Everyone, ends: Mapping[str, End], head: str) -> Mapping[str, Problem] | None:
    """As `up` tries it; a host that cannot even listen there is told of by itself."""
    asked: Mapping[str, Any] = {"starts": False, "head": False}
    listening = everyone.ask(
        "listen", lambda name: {"address": ends[name].address, **asked}, limit_s=_REACH_LIMIT_S, among=ends
    )
    places = {
        name: [[name, ends[name].address, port] for port in each["ports"]] for name, each in listening.items()
    }
    said = everyone.ask(
        "connect",
        lambda name: {
            "address": ends[name].address,
            "places": [place for other, each in places.items() if other != name for place in each],
        },
        limit_s=_REACH_LIMIT_S,
        among=places,
    )
    failed = {name: everyone.failed[name] for name in ends if name in everyone.failed}
    for name, problem in failed.items():
        if not isinstance(problem, Lost | Silent):  # it has answered: what else is asked of it may be well
            del everyone.failed[name]
    addresses = {name: end.address for name, end in ends.items()}
    return {**dict(agreement.unreached(said, head, addresses)), **failed}


def mend(found: Mend, everyone: Everyone | None, watch: Watch) -> Problem | None:
    """Make it so; the Problem, where it could not be."""
    asked = {"words": list(found.words), "unasked": list(found.unasked), "root": found.root}
    if everyone is None:
        try:
            mending.run(asked, watch.note)
        except Problem as problem:
            return problem
        return None
    everyone.ask("mend", lambda _: asked, limit_s=MEND_LIMIT_S, among=[found.host])
    return everyone.failed.pop(found.host, None)


def wanted(named: str | None, without: tuple[str, ...]) -> cluster.Cluster | None:
    """The cluster that is meant; None where nobody named one and there is none."""
    if not named and not without and cluster.file() is None:
        return None
    return cluster.only(cluster.read(named), without)
