"""Answer the agent requests of a Ray cluster: prepare, begin, settle, gather, end."""

import json
import os
import time

from medley import credentials, explain, json_shape, process, storage, transcript
from medley.cli.agent.requests import Note, NoteSender, Table
from medley.cluster import cluster_file, membership, ray_watch, self_command, units
from medley.cluster.node import NodeSpec, build_node_spec
from medley.cluster.restart_rule import RAY_RULE
from medley.cluster.unit_file import Unit
from medley.command import AnnotatedCommand, Command, Variable
from medley.engine.unread_variables import require_read_variables
from medley.environment import container_image, tools
from medley.environment.container_image import ImageRequest
from medley.environment.tools import NO_TOOLS
from medley.errors import Problem
from medley.host import facts
from medley.host.kind import SiteHost, find_kind
from medley.network.fabric.choice import Endpoint
from medley.network.fabric.per_host import HostNetwork
from medley.serving import server_end, server_records


def answer_prepare(fields: Table, note: Note) -> Table:
    """Prepare the environment of this host; `fields` are those of Bringup.build_host_request."""
    node = prepare_node(fields, NoteSender(note))
    return {"terms": node.collect_terms(), "slots": node.slots}


def prepare_node(fields: Table, progress: NoteSender) -> NodeSpec:
    """Return this host as a node of the cluster, its environment or image ready for use."""
    host_facts = facts.read_facts(transcript.parse_transcript(fields["transcript"]))
    kind = find_kind(host_facts, fields["kind"])
    is_dry_run, engine = bool(fields.get("dry")), fields["engine"]
    image_request = None
    if table := fields["image"]:
        image_request = ImageRequest(
            table["image"], table["container"], table["nccl"], tuple(table["mounts"])
        )
    image = container_image.prepare_requested_image(
        image_request, SiteHost(host_facts, kind), engine, dry_run=is_dry_run, progress=progress
    )
    host_tools = NO_TOOLS
    if image is None:
        environment, nccl = fields["env"], fields["nccl"]
        host_tools = tools.prepare_tools(
            kind,
            environment,
            engine=engine,
            is_multi_host=True,
            nccl=nccl,
            dry_run=is_dry_run,
            progress=progress,
        )
    path, user_variables = os.environ.get("PATH", ""), fields["environment"]
    node = build_node_spec(
        host_facts,
        kind,
        host_tools,
        slots=fields["slots"],
        path=path,
        engine=engine,
        container_environment=image,
        user_variables=user_variables,
    )
    if not is_dry_run:
        require_read_variables(
            user_variables,
            engine,
            node.environment.find_versions((engine,))[engine],
            file=cluster_file.CLUSTER_FILE,
        )
    return node


GATHER_LIMIT_S = 75


def answer_gather(fields: Table, note: Note) -> Table:
    """Give a running head the facts of new hosts: the fields of `prepare`, `head` and `gathered`."""
    finished = process.run(
        build_gather_command(prepare_node(fields, NoteSender(note)), fields["head"], fields["gathered"]),
        limit_s=GATHER_LIMIT_S,
    )
    return parse_nodes(finished.lines)


def build_gather_command(node: NodeSpec, head_address: str, gathered: Table) -> Command:
    """Return the command that stores the gathered facts on the head at HOST:PORT.

    The facts are in a file, so that a restarted head gets them too.
    """
    file = storage.find_state_folder() / "gathered.json"
    storage.write_text(
        file,
        json.dumps({**gathered, "note": {**node.collect_terms(), "address": head_address.partition(":")[0]}}),
    )
    return membership.build_payload_command(
        node.environment,
        credentials.find_token_file(),
        "ray_store.py",
        "gather",
        head_address,
        str(file),
        readable_folders=(file,),
    )


def parse_nodes(lines: "list[str] | tuple[str, ...]") -> Table:
    """Return the nodes and the missing hosts from the output of the command."""
    json_line = next((line for line in reversed(lines) if line.startswith(('{"nodes"', '{"error"'))), None)
    result = json_shape.parse_object(json_line or "") or {"error": "", "said": "\n".join(lines[-3:])}
    if "error" in result:
        raise Problem("the head's Ray does not answer", cause=result["said"], fix="medley down; medley up")
    return result


_RAY_STOP_LIMIT_S = 3
"""Seconds: Ray ends its processes one after another, and gives each ten; none of them has data to save."""


def answer_begin(fields: Table, note: Note) -> Table:
    """Start Ray. Fields: those of `prepare`, `role`, `address`, `interface`, `head`, `variables`, `token`.

    `head` is HOST:PORT. With `dry` nothing starts, and the answer is the command with its reasons. A head
    also gets `gathered`.
    """
    node = prepare_node(fields, NoteSender(note))
    if fields["dry"]:
        start = _build_start_command(node, fields)
        return {"command": str(start.command), "why": start.list_reasons()}
    secret = credentials.keep_token(
        credentials.store_token(fields["token"], "the host that brings this one up")
    )
    start = _build_start_command(node, fields)
    membership.end_ray()
    storage.make_folder(membership.get_ray_folder())
    membership.write_membership(
        node.build_membership(fields["role"], fields["head"], _read_endpoint(fields), secret)
    )
    gather = (
        build_gather_command(node, fields["head"], fields["gathered"]) if fields["role"] == "head" else None
    )
    command = start.command.replace(env={**self_command.list_own_variables(), **start.command.env})
    title = f"Ray, {fields['role']} of the cluster at {fields['head']}"
    units.start_unit(
        Unit(
            membership.UNIT_NAME,
            title,
            command,
            RAY_RULE,
            gather,
            _RAY_STOP_LIMIT_S,
            ray_watch.VITAL_PROCESSES,
        )
    )
    return {}


def _build_start_command(node: NodeSpec, fields: Table) -> AnnotatedCommand:
    host_network = HostNetwork(
        _read_endpoint(fields), tuple(Variable(*variable) for variable in fields["variables"]), ()
    )
    token = credentials.find_token_file()
    is_head = fields["role"] == "head"
    return node.wrap_unit_start(
        node.build_head_command(host_network, token)
        if is_head
        else node.build_worker_command(host_network, token, fields["head"])
    )


def _read_endpoint(fields: Table) -> Endpoint:
    return Endpoint(fields["interface"], fields["address"], None, 0)


SETTLE_LIMIT_S = 90
_POLL_INTERVAL_S = 0.1
_STATE_CHECK_INTERVAL_S = 1.0
"""Seconds between reads of the unit's state: a read scans /proc, and Ray needs the processor."""
_LAST_LINE_COUNT = 6


def answer_settle(fields: Table, _note: Note) -> Table:
    """Wait until Ray is up: a worker when Ray reports it, a head when it lists its nodes."""
    started_s = checked_s = time.monotonic()
    while time.monotonic() < started_s + SETTLE_LIMIT_S:
        lines = units.read_last_log_lines(membership.UNIT_NAME)
        if fields["role"] == "head" and any(line.startswith(('{"nodes"', '{"error"')) for line in lines):
            return parse_nodes(lines)
        if fields["role"] == "worker" and any(membership.STARTED_LINE in line for line in lines):
            return {}
        if time.monotonic() > checked_s + _STATE_CHECK_INTERVAL_S:
            checked_s = time.monotonic()
            state = units.read_state(membership.UNIT_NAME)
            if state is None or not state.kept or state.restarts:
                raise _start_problem(lines or (state.said.splitlines() if state else []))
        time.sleep(_POLL_INTERVAL_S)
    raise _start_problem(units.read_last_log_lines(membership.UNIT_NAME))


def _start_problem(lines: list[str]) -> Problem:
    log = units.get_log_file(membership.UNIT_NAME)
    problem = Problem(
        "Ray did not start",
        cause="\n".join(lines[-_LAST_LINE_COUNT:]) or f"it printed nothing in {SETTLE_LIMIT_S} s",
        fix=f"read all of it there: less {log}; or medley explain {log}",
    )
    return explain.explain_output(problem, lines)


def answer_end(fields: Table, note: Note) -> Table:
    """End Ray on this host; without `part` also its servers, and remove the files of the cluster."""
    ended = 0
    if not fields["part"]:
        ended += server_end.end_servers(None, NoteSender(note), is_immediate=True)
    note("end Ray …")
    ended += membership.end_ray()
    storage.remove_folder(membership.get_ray_folder())
    if not fields["part"]:
        for file in (
            credentials.find_token_file(),
            storage.find_state_folder() / "gathered.json",
            *storage.list_folder(storage.find_state_folder(), "sglang-*.yaml"),
        ):
            storage.remove_file(file)
        for folder in (
            units.get_units_folder(),
            server_records.get_records_folder(),
            storage.find_state_folder() / "vllm",
        ):
            storage.remove_folder(folder)
    return {"ended": ended, "left": sorted(identity.pid for identity in membership.find_processes())}
