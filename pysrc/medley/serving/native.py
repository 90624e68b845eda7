"""Serve a model over several hosts without Ray: the head, and the hosts that join it."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import gethostname
from typing import Any

from medley import config, credentials, storage
from medley.cluster import checks, device_probe, node, rendezvous_worker, unit_secrets
from medley.cluster.model_files import fetch_extra_files
from medley.cluster.rendezvous_head import JoinedHost, Rendezvous
from medley.command import Command, Variable, keep_last_values, quote_path, quote_word
from medley.engine import hidden_variables, refused_flags, unread_variables
from medley.engine.accepted_flags import read_programs_flags
from medley.engine.launch import ENGINES, RANKS_PORT, Launch
from medley.engine.shared_flags import build_stacks_variable
from medley.environment import engine_source, packaged_model, tools, virtualenv
from medley.environment.tools import Tools
from medley.errors import Problem
from medley.host.facts import Facts
from medley.host.kind import Kind, detect_host, load_answers
from medley.model import extra_files, named_models, resolve
from medley.network import secure_channel
from medley.network.fabric import per_host
from medley.network.fabric.choice import NetworkOptions
from medley.network.fabric.choose import choose_fabric
from medley.network.fabric.variables import merge_user_variables
from medley.network.free_port import find_free_port, require_free_port
from medley.network.ports import RENDEZVOUS_PORT
from medley.network.secure_channel import Channel
from medley.planner import Layout
from medley.planner.site import Site
from medley.progress import Output, Progress
from medley.serving import weights
from medley.serving.extras import require_shown_models
from medley.serving.launch_plan import plan_job
from medley.serving.launches import HostPrograms, PreparedLaunch, build_launches
from medley.serving.prepare import Job
from medley.serving.site import build_joined_site
from medley.serving.weights import HubFiles

_HOSTS_LIMIT_S = 300
_TERMS_LIMIT_S = 10
_CHECK_INTERVAL_S = 0.1
_MAX_PORTS_TRIED = 79


@contextmanager
def launch_on_joined_hosts(job: Job, output: Output) -> Iterator[PreparedLaunch]:
    """Wait for the hosts that join, send each its launch, and yield this host's launch; then end them all."""
    request, order, progress = job.request, job.order, output.progress
    head_facts, kind = detect_host(request.kind, load_answers())
    programs = tools.prepare_tools(
        kind,
        request.environment,
        engine=order.engine,
        is_multi_host=True,
        nccl=request.nccl,
        progress=progress,
    )
    packaged_model.build_model(order.weights, programs.program_folder / "python", progress)
    version = virtualenv.read_versions(programs.program_folder.parent, (order.engine,))[order.engine]
    accepted_flags = read_programs_flags(
        order.engine, programs.program_folder, version, can_run=True, progress=progress
    )
    refused_flags.require_known_flags(accepted_flags, (), order.engine_flags)
    unread_variables.require_read_launch_variables(os.environ, order.weights, order.engine, version)
    token_file = credentials.ensure_token()
    head, other_count = gethostname(), (request.host_count or 2) - 1
    hub_files = weights.find_hub_files(order)
    terms = _build_terms(job, programs, hub_files)
    rendezvous = Rendezvous(request.join_port, secure_channel.read_token(token_file), terms, progress)
    try:
        address = per_host.choose_head_network(
            head, head_facts, NetworkOptions(), os.environ
        ).endpoint.address
        _print_join_command(address, request.join_port, token_file, other_count, output)
        wait_s = _HOSTS_LIMIT_S if request.wait_s is None else request.wait_s
        with (
            progress.stage(f"wait for {other_count} more"),
            weights.fetch_in_background(hub_files, progress) as download,
        ):
            members = rendezvous.wait_for_hosts(other_count, wait_s)
            while not download.done():
                rendezvous.check()
                time.sleep(_CHECK_INTERVAL_S)
            download.result()
        host_facts = {head: head_facts, **{member.name: member.facts for member in members}}
        site = _build_site(job, host_facts, kind, programs)
        layout, launches = _build_launches(job, site, programs, output)
        if not request.script:  # a script's flags are torchrun's
            own_flags = launches[head].annotated_command.flags
            refused_flags.require_known_flags(accepted_flags, own_flags, (), table_file=order.table_file)
        for member in members:
            _send_launch(member, launches.get(member.name))
        yield PreparedLaunch(order, launches[head], layout, rendezvous=rendezvous)
    except BaseException as error:
        # An end by the user ends the joined hosts for good.
        rendezvous.is_restarting = rendezvous.is_restarting and isinstance(error, Problem)
        raise
    finally:
        rendezvous.end_hosts()


def _build_terms(job: Job, programs: Tools, hub_files: HubFiles | None) -> dict[str, Any]:
    """Return the versions that joining hosts must share with this one, and the model's files."""
    request, order = job.request, job.order
    return {
        **node.collect_terms(node.find_environment(programs)),
        "engine_name": order.engine,
        "model": order.weights.name,
        "target": order.weights.target,
        "beside": order.model_extras.build_table(),
        "script": request.script.path.name if request.script else None,
        "fetch": hub_files.to_table() if hub_files else None,
    }


def _print_join_command(address: str, port: int, token_file: Path, count: int, output: Output) -> None:
    head = address if port == RENDEZVOUS_PORT else f"{address}:{port}"
    output.say("run on the other host:" if count == 1 else f"run on each of the {count} other hosts:")
    output.say(f"    ssh {address} cat {quote_path(token_file)} | medley join {head} --token-file -")


def _build_site(job: Job, host_facts: Mapping[str, Facts], kind: Kind, programs: Tools) -> Site:
    """Return the site of the hosts that joined, with the address at which each reaches the others."""
    user_nccl = programs.user_nccl.version if programs.user_nccl else None
    nccl_version = user_nccl or node.find_environment(programs).nccl_version
    nccl_version = nccl_version or engine_source.find_oldest_nccl(job.order.engine)
    options = job.order.placement.network.replace(nccl_version=nccl_version)
    endpoints = choose_fabric(host_facts, options).endpoints
    addresses = {host: end.address for host, end in endpoints.items()}
    return build_joined_site(host_facts, kind, addresses, nccl_version)


def _build_launches(
    job: Job, site: Site, programs: Tools, output: Output
) -> tuple[Layout, dict[str, Launch]]:
    """Plan the job on these hosts, the head first, and return the layout and each host's launch."""
    job_plan = plan_job(job, site, output)
    require_shown_models(job.order, job_plan.plan, job.request.trust, is_start=True)
    head, *others = site.hosts
    carried = tuple(list_carried_variables(os.environ))
    host_programs = {name: HostPrograms(Tools(programs.program_folder), {}, carried) for name in others}
    host_programs[head] = HostPrograms(programs, os.environ)
    launches = build_launches(
        job.order,
        job_plan.layout,
        job_plan.plan,
        site,
        build=job.build_launch,
        host_programs=host_programs,
        port=_find_free_port(site.addresses[head]),
    )
    return job_plan.layout, launches


def list_carried_variables(environ: Mapping[str, str]) -> Iterator[Variable]:
    """Yield the user's variables for engine, NCCL and hub that joining hosts get, as Ray would send them.

    No secrets are among them: the channel is not encrypted, and the other host prints its command.
    """
    hidden = set(hidden_variables.list_hidden_names(environ))
    for name, value in sorted(environ.items()):
        if name not in hidden and not unit_secrets.has_secret(name, value):
            yield Variable(name, value, "set by you on the head")


def _send_launch(member: JoinedHost, launch: Launch | None) -> None:
    """Send a joined host its launch; a host without one goes on waiting."""
    if launch and launch.plan.node_process:
        member.rank = launch.plan.node_process.rank
        table = rendezvous_worker.build_command_table(launch.annotated_command)
        member.send({"order": {**table, "files": dict(launch.files)}})


def _find_free_port(address: str) -> int:
    """Return a free port of this address for the ranks' rendezvous, in Ray's range if one is free there."""
    for port in range(RANKS_PORT, RANKS_PORT + _MAX_PORTS_TRIED):
        with suppress(Problem):
            require_free_port(address, port)
            return port
    return find_free_port()


def receive_terms(channel: Channel) -> "Mapping[str, Any]":
    """Return the head's terms; raise a Problem if it does not send them in time."""
    message = channel.receive(_TERMS_LIMIT_S)
    if not message or "terms" not in message:
        raise Problem(
            "the head did not send its terms",
            cause=f"no message within {_TERMS_LIMIT_S} s",
            fix="use the same medley on both: git pull, or the same flake",
        )
    return rendezvous_worker.require_terms(message["terms"])


def run_worker(
    channel: Channel,
    terms: "Mapping[str, Any]",
    kind: Kind,
    environment: str | None,
    *,
    nccl: str | None = None,
    head: str,
    output: Output,
) -> bool:
    """Run this host's ranks of a model of the head at HOST:PORT; return whether the head restarts them."""
    try:
        with rendezvous_worker.send_signs_of_life(channel):
            programs = tools.prepare_tools(
                kind,
                environment,
                engine=terms["engine_name"],
                is_multi_host=True,
                nccl=nccl,
                progress=output.progress,
            )
            _meet_head_terms(programs, terms, head, output.progress)
            own_variables = tuple(programs.list_variables(os.environ.get("PATH", "")))
            values = {
                variable.name: variable.value for variable in own_variables if variable.value is not None
            }
            python = Command((str(programs.program_folder / "python"),), values)
            device_probe.probe_at_start(python, output.say)
    except Problem as problem:
        channel.send({"problem": f"{problem.what}: {problem.cause}"})
        raise
    channel.send({"ready": True})
    with output.progress.stage("wait for the other hosts"):
        command = receive_command(channel, terms, programs.program_folder, own_variables)
    if command is None:
        output.say("the head does not need this host")
        return False
    output.say(f"$ {command}")
    log = storage.find_state_folder() / "logs" / f"join-{head.rpartition(':')[2]}.log"
    is_idle = device_probe.build_idle_check(lambda: [os.getpid()])
    with storage.open_log(log) as write_line, device_probe.probe_daily(python, is_idle, output.say):

        def on_line(line: str) -> None:
            write_line(line)
            output.error(line)

        may_end = terms["script"] is not None
        find_last_error = ENGINES[terms["engine_name"]].find_last_error
        is_restart = rendezvous_worker.run_node(
            channel, command, log, on_line, find_last_error, may_end=may_end
        )
    output.say(
        f"this host's part has ended{'; the head restarts it' if is_restart else ', as the head ended it'}"
    )
    return is_restart


def receive_command(
    channel: Channel, terms: "Mapping[str, Any]", program_folder: Path, own_variables: tuple[Variable, ...]
) -> Command | None:
    """Wait for the command of this host's part; return None if the head does not need this host.

    Raise a Problem where an engine in the current folder would load that instead of a model of the hub.
    """
    table = rendezvous_worker.receive_command_table(channel)
    if table is None:
        return None
    cache = terms["beside"]["cache"]
    table = rendezvous_worker.localize_command_table(
        table,
        storage.find_state_folder() / "runs",
        {f"{cache}/needs/": f"{storage.find_cache_folder()}/needs/"},
    )
    annotated = rendezvous_worker.parse_command_table(
        table, program_folder, (*own_variables, build_stacks_variable())
    )
    variables = keep_last_values(merge_user_variables(annotated.variables, os.environ))
    command = annotated.replace(variables=variables).command
    try:
        named_models.require_no_folders(command.argv, terms["target"])
    except Problem as problem:
        channel.send({"ended": f"{problem.what}: {problem.cause}"})
        raise
    return command


def _meet_head_terms(programs: Tools, terms: "Mapping[str, Any]", head: str, progress: Progress) -> None:
    """Require the head's engine and model on this host; fetch the files that it lacks."""
    checks.require_same_versions(node.collect_terms(node.find_environment(programs)), terms, head)
    target = Path(terms["target"])
    if not target.is_absolute():
        resolve.require_only_on_hub(terms["target"])
        hub_files = HubFiles(**terms["fetch"]) if terms["fetch"] else None
        weights.fetch_weights(terms["model"], hub_files, progress)
    if (model := config.load_models().get(terms["model"])) and model.is_built:
        model_files = resolve.resolve_weights(
            terms["model"], config.load_models(), storage.find_cache_folder()
        )
        resolve.prepare_weights(model_files)
        packaged_model.build_model(model_files, programs.program_folder / "python", progress)
    if target.is_absolute() and not storage.exists(target / "config.json"):
        folder, source = quote_path(target), quote_word(head.partition(":")[0])
        raise Problem(
            f"this host does not have {terms['model']}",
            cause=f"{target / 'config.json'} is missing, and every host reads its own copy",
            fix=f"copy it to the same path here: rsync -a {source}:{folder}/ {folder}/",
        )
    fetch_extra_files(extra_files.read_extras(terms["beside"]), head, progress)
