"""Examine hosts: from transcripts, this host or a cluster; apply a fix on one of its hosts."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypedDict

from medley import config, process, storage, transcript, user
from medley.cluster import checks, cluster_file, self_command
from medley.cluster.cluster_file import ClusterHost
from medley.cluster.fleet import Fleet, format_host_count
from medley.cluster.remote import ConnectionLost, NotAnswering
from medley.command import Command
from medley.doctor.checks import ALL_HOSTS_NAME, Examination, ExaminedHost, Fix
from medley.engine.launch import LaunchOrder
from medley.engine.server_spec import ServerSpec
from medley.environment import engine_source
from medley.errors import Problem
from medley.host import facts
from medley.host.health import QUESTIONS, read_health
from medley.host.health.software import USER_ENVIRONMENT_VARIABLE
from medley.host.kind import SiteHost, find_kind
from medley.model.resolve import resolve_weights
from medley.model.shape import find_shape
from medley.network.fabric.choice import Endpoint, Fabric, NetworkOptions
from medley.network.fabric.choose import choose_fabric
from medley.planner import describe_layout
from medley.planner.fit import format_gib
from medley.planner.placement import PlacementOptions
from medley.planner.site import Site
from medley.progress import Progress
from medley.serving.alternatives import plan_order
from medley.transcript import Transcript

_MIN_NETWORK_HOSTS = 2
_EXAMINE_LIMIT_S = 15
"""A hub that does not answer and a driver that wakes up take seconds each; neither justifies a retry."""
_FLEET_LIMIT_S = 30
_REACH_LIMIT_S = 10
FIX_COMMAND_LIMIT_S = 60
FIX_LIMIT_S = FIX_COMMAND_LIMIT_S + 15


class FixRequest(TypedDict):
    """The request `mend` to the agent of a host."""

    words: list[str]
    """The command."""
    unasked: list[str]
    """The arguments that make it ask nothing, because the user has consented."""
    root: bool
    """Whether it needs root."""


def examine_transcripts(answers: Mapping[str, Transcript]) -> Examination:
    return build_examination(
        {name: examine_host(name, host_answers) for name, host_answers in answers.items()}
    )


def examine_this_host(name: str) -> Examination:
    return examine_transcripts({name: read_answers(None)})


def examine_cluster(fleet: Fleet, progress: Progress) -> Examination:
    """Ask all hosts in parallel for their answers; then try the connections between those that answered."""
    cluster = fleet.cluster
    with progress.stage(f"check {format_host_count(fleet.answering_hosts)}"):
        replies = fleet.ask("examine", lambda name: {"env": cluster.hosts[name].env}, limit_s=_FLEET_LIMIT_S)
    digest = self_command.compute_source_digest()
    hosts = {}
    for name, reply in replies.items():
        remote, answers = fleet.remotes[name], transcript.parse_transcript(reply["transcript"])
        greeting = {**remote.greeting, "ahead_s": remote.clock_ahead_s}
        hosts[name] = examine_host(name, answers, member=cluster.merge_host(name), greeting=greeting)
    members = {name: (host.kind, cluster.merge_host(name)) for name, host in hosts.items() if host.kind}
    sources = checks.find_engine_sources(members, cluster.engine)
    examination = build_examination(
        hosts,
        cluster.network_options.replace(
            nccl_version=engine_source.find_oldest_nccl(cluster.engine, sources.values())
        ),
        head=cluster.head,
        silent_hosts={name: _explain_silence(fleet, name, digest) for name in fleet.failed},
        digest=digest,
        engine=cluster.engine,
    )
    if examination.fabric is None or len(examination.fabric.endpoints) < _MIN_NETWORK_HOSTS:
        return examination
    with progress.stage("check connections between the hosts"):
        problems = _try_connections(fleet, examination.fabric.endpoints, cluster.head)
    return examination.replace(connection_problems=problems)


def read_answers(env: str | None) -> Transcript:
    """Run the questions about facts and health here; `env` is a virtualenv that cluster.toml names."""
    variables = {USER_ENVIRONMENT_VARIABLE: str(user.expand_home(env))} if env and "/" in env else {}
    return process.ask_host((*facts.QUESTIONS, *QUESTIONS), variables, limit_of_all_s=_EXAMINE_LIMIT_S)


def examine_host(
    name: str,
    answers: Transcript,
    *,
    member: ClusterHost | None = None,
    greeting: Mapping[str, Any] | None = None,
) -> ExaminedHost:
    """Read facts, health and kind from a host's answers; a host of no known kind carries the Problem."""
    host_facts, member = facts.read_facts(answers), member or ClusterHost()
    kind, kind_problem = None, None
    try:
        kind = find_kind(host_facts, member.kind)
    except Problem as problem:
        kind_problem = problem
    return ExaminedHost(
        name, host_facts, read_health(answers), kind, kind_problem, member, greeting or {}, answers
    )


def build_examination(
    hosts: Mapping[str, ExaminedHost],
    network_options: NetworkOptions | None = None,
    **fields: Any,  # noqa: ANN401 - fields of Examination
) -> Examination:
    """Compute the network that the hosts share, for an examination with these further `fields`."""
    network_options = network_options or NetworkOptions()
    linked = {name: host.facts for name, host in hosts.items() if host.facts.net.links}
    shared_fabric, network_problems = _compute_fabric(linked, network_options, fields.get("head"))
    return Examination(hosts, network_options, shared_fabric, network_problems, **fields)


def _compute_fabric(
    hosts: Mapping[str, facts.Facts], network_options: NetworkOptions, head: str | None
) -> tuple[Fabric | None, dict[str, Problem]]:
    """Return the fabric of all hosts, or of all but one; and why the excluded host or the group has none."""
    if len(hosts) < _MIN_NETWORK_HOSTS:
        return None, {}
    try:
        return choose_fabric(hosts, network_options), {}
    except Problem as problem:
        for excluded in hosts:
            remaining = {name: host_facts for name, host_facts in hosts.items() if name != excluded}
            if excluded != head and len(remaining) >= _MIN_NETWORK_HOSTS:
                with suppress(Problem):
                    return choose_fabric(remaining, network_options), {excluded: problem}
        return None, {ALL_HOSTS_NAME: problem}


def _explain_silence(fleet: Fleet, name: str, digest: str) -> Problem:
    """Return the version difference, if there is one: another medley may not know the request."""
    remote = fleet.remotes.get(name)
    version_problem = (
        remote and remote.greeting and checks.other_version_problem(name, remote.greeting["medley"], digest)
    )
    return version_problem or fleet.failed[name]


def _try_connections(fleet: Fleet, ends: Mapping[str, Endpoint], head: str) -> Mapping[str, Problem]:
    """Try the connections that `up` needs; a host that cannot listen there has its own Problem."""
    addresses = {name: end.address for name, end in ends.items()}
    replies = fleet.test_ports(addresses, lambda _: {"starts": False, "head": False}, _REACH_LIMIT_S)
    failures = {name: fleet.failed[name] for name in ends if name in fleet.failed}
    for name, problem in failures.items():
        # This host answered, so other requests to it may succeed.
        if not isinstance(problem, ConnectionLost | NotAnswering):
            del fleet.failed[name]
    return {**dict(checks.list_unreached_hosts(replies, head, addresses)), **failures}


def read_cluster(name: str | None, without: tuple[str, ...]) -> cluster_file.Cluster | None:
    """Read the cluster of that name or file; None if no option asks for one and there is no cluster.toml."""
    if not name and not without and cluster_file.find_cluster_file() is None:
        return None
    return cluster_file.leave_out_hosts(cluster_file.read_cluster(name), without)


def apply_fix_on_host(fix: Fix, fleet: Fleet | None, progress: Progress) -> Problem | None:
    """Apply the fix on its host of the fleet, or here; return the Problem if it failed."""
    request = FixRequest(words=list(fix.arguments), unasked=list(fix.consent_arguments), root=fix.needs_root)
    if fleet is not None:
        fleet.ask("mend", lambda _: request, limit_s=FIX_LIMIT_S, hosts=[fix.host])
        return fleet.failed.pop(fix.host, None)
    try:
        apply_fix(request, progress.note)
    except Problem as problem:
        return problem
    return None


def apply_fix(request: FixRequest, note: Callable[[str], None]) -> None:
    """Run a fix on this host, or raise a Problem with its last lines."""
    arguments, command_text = tuple(request["words"]), " ".join(request["words"])
    if arguments[0] == "medley":
        arguments = (*self_command.get_own_command(), *arguments[1:])
    sudo, prefix = (("sudo", "-n"), "sudo ") if request["root"] and os.geteuid() != 0 else ((), "")
    command = Command((*sudo, *arguments, *request["unasked"]))
    finished = process.run(command, limit_s=FIX_COMMAND_LIMIT_S, on_line=note)
    if finished.status:
        raise Problem(
            f"the change failed: {command_text}",
            cause="\n".join(finished.lines[-4:]) or f"it ended with {finished.status}",
            fix=f"run it on that host, where sudo can ask for its password: {prefix}{command_text}",
        )


def fit_model(
    model: str, examination: Examination, typed: tuple[str, ...], files: tuple[str, ...], progress: Progress
) -> tuple[str, Problem | None]:
    """Plan the model on the hosts of known kind; return its layout in words, or why it does not fit.

    `typed` is the doctor's command line; `files` are the transcripts that it reads, for the fix to paste.
    """
    hosts = {name: SiteHost(host.facts, host.kind) for name, host in examination.hosts.items() if host.kind}
    if not hosts:
        return "", Problem(
            "the model's layout cannot be planned",
            cause="the kind of every host is unknown",
            fix="medley doctor  # fix the errors above first",
        )
    try:
        model_files = resolve_weights(model, config.load_models(), storage.find_cache_folder(), typed)
        options = PlacementOptions(network=examination.network_options, engine=examination.engine)
        plan = ("medley", "plan", model, *(("--from", *files) if files else ()))
        serving = ServerSpec(model_files.target, model_files.name)
        order = LaunchOrder(model_files, serving, options, user_command=plan)
        has_nix_toolkit = all(host.has_nix_toolkit for host in examination.hosts.values())
        has_user_engine = any(host.member.env or host.member.image for host in examination.hosts.values())
        topology = Site(hosts, has_user_engine=has_user_engine, has_nix_toolkit=has_nix_toolkit)
        choice = plan_order(order, find_shape(model_files, progress), topology)
    except Problem as problem:
        return "", problem
    free_gib = format_gib(min(rank.free_bytes for rank in choice.fit.ranks))
    return f"{model_files.name} fits: {describe_layout(choice.layout)}; {free_gib} GiB to spare", None
