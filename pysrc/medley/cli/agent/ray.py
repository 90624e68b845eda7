"""Agent requests: prepare, begin, settle, gather, end this host's part of a Ray cluster."""

import json
import os
import time
from dataclasses import replace

from medley import cluster, credentials, explain, json_shape, process, serving, storage, transcript
from medley.cli.agent import Note, Notes, Table
from medley.cluster import membership, ray_watch, self_command, units
from medley.cluster.node import NodeSpec, build_node_spec
from medley.cluster.unit_file import Restart, Unit
from medley.command import AnnotatedCommand, Command, Variable
from medley.engine.unread_variables import require_read_variables
from medley.environment import container_image, tools
from medley.environment.container_image import ImageRequest
from medley.environment.tools import BARE
from medley.errors import Problem
from medley.host import facts
from medley.host.kind import find_kind
from medley.network.fabric.per_host import HostNetwork
from medley.network.fabric.types import Endpoint


def answer_prepare(asked: Table, note: Note) -> Table:
    """`asked`: the host's `transcript`, and what cluster.toml says of it, as Bringup.described."""
    ours = prepared(asked, Notes(note))
    return {"terms": ours.collect_terms(), "slots": ours.slots}


def prepared(asked: Table, watch: Notes) -> NodeSpec:
    found = facts.read_facts(transcript.parse(asked["transcript"]))
    kind = find_kind(found, asked["kind"])
    dry, engine = bool(asked.get("dry")), asked["engine"]
    wanted = None
    if named := asked["image"]:
        wanted = ImageRequest(named["image"], named["container"], named["nccl"], tuple(named["mounts"]))
    image = container_image.prepare_requested_image(wanted, (found, kind), engine, dry_run=dry, watch=watch)
    tool = BARE
    if image is None:
        named, nccl = asked["env"], asked["nccl"]
        tool = tools.prepare_tools(
            kind, named, engine=engine, is_multi_host=True, nccl=nccl, dry_run=dry, watch=watch
        )
    path, table = os.environ.get("PATH", ""), asked["environment"]
    ours = build_node_spec(
        found,
        kind,
        tool,
        slots=asked["slots"],
        path=path,
        engine=engine,
        container_environment=image,
        user_variables=table,
    )
    if not dry:
        require_read_variables(
            table, engine, ours.environment.find_versions((engine,))[engine], file=cluster.FILE
        )
    return ours


GATHER_LIMIT_S = 75


def answer_gather(asked: Table, note: Note) -> Table:
    """What `prepare` is asked, `head` and `gathered`: on a head that runs."""
    done = process.run(
        gather_command(prepared(asked, Notes(note)), asked["head"], asked["gathered"]), limit_s=GATHER_LIMIT_S
    )
    return answer(done.lines)


def gather_command(ours: NodeSpec, head: str, gathered: Table) -> Command:
    """Keeps with the head at HOST:PORT what a file of ours holds, for one that starts anew too."""
    file = storage.state() / "gathered.json"
    storage.write(
        file, json.dumps({**gathered, "note": {**ours.collect_terms(), "address": head.partition(":")[0]}})
    )
    return membership.build_payload_command(
        ours.environment, credentials.token_path(), "ray_store.py", "gather", head, str(file), reads=(file,)
    )


def answer(lines: "list[str] | tuple[str, ...]") -> Table:
    """Its nodes and who is missing, out of what the command said."""
    said = next((line for line in reversed(lines) if line.startswith(('{"nodes"', '{"error"'))), None)
    found = json_shape.table(said or "") or {"error": "", "said": "\n".join(lines[-3:])}
    if "error" in found:
        raise Problem("the head's Ray does not answer", cause=found["said"], fix="medley down; medley up")
    return found


_STOP_LIMIT_S = 3
"""Ray ends its parts one after another, and gives each ten seconds; they keep nothing that matters."""


def answer_begin(asked: Table, note: Note) -> Table:
    """What `prepare` is asked, and `role`, `address`, `interface`, `head` (HOST:PORT), `variables`, `token`.

    With `dry` nothing is begun, and the answer is the command and its reasons. A head also gets `gathered`.
    """
    ours = prepared(asked, Notes(note))
    if asked["dry"]:
        start = _start(ours, asked)
        return {"command": str(start.command), "why": start.why()}
    secret = credentials.keep_token(
        credentials.store_token(asked["token"], "the host that brings this one up")
    )
    start = _start(ours, asked)
    membership.end_ray()
    storage.make(membership.get_ray_folder())
    membership.write_membership(ours.build_membership(asked["role"], asked["head"], _endpoint(asked), secret))
    after = gather_command(ours, asked["head"], asked["gathered"]) if asked["role"] == "head" else None
    command = replace(start.command, env={**self_command.list_own_variables(), **start.command.env})
    title = f"Ray, {asked['role']} of the cluster at {asked['head']}"
    units.start_unit(
        Unit(
            membership.UNIT_NAME,
            title,
            command,
            Restart(longest_s=30),
            after,
            _STOP_LIMIT_S,
            ray_watch.VITAL_PROCESSES,
        )
    )
    return {}


def _start(ours: NodeSpec, asked: Table) -> AnnotatedCommand:
    wired = HostNetwork(_endpoint(asked), tuple(Variable(*each) for each in asked["variables"]), ())
    token = credentials.token_path()
    is_head = asked["role"] == "head"
    return ours.wrap_unit_start(
        ours.build_head_command(wired, token)
        if is_head
        else ours.build_worker_command(wired, token, asked["head"])
    )


def _endpoint(asked: Table) -> Endpoint:
    return Endpoint(asked["interface"], asked["address"], None, 0)


SETTLE_LIMIT_S = 90
_LOOK_EVERY_S = 0.1
_STATE_EVERY_S = 1.0
"""It reads all of /proc, and Ray needs the processor."""
_WORDS = 6


def answer_settle(asked: Table, _note: Note) -> Table:
    """`role`: a worker is up when Ray says so, a head when it has told who is there."""
    began = looked = time.monotonic()
    while time.monotonic() < began + SETTLE_LIMIT_S:
        lines = units.read_last_log_lines(membership.UNIT_NAME)
        if asked["role"] == "head" and any(line.startswith(('{"nodes"', '{"error"')) for line in lines):
            return answer(lines)
        if asked["role"] == "worker" and any(membership.STARTED_LINE in line for line in lines):
            return {}
        if time.monotonic() > looked + _STATE_EVERY_S:
            looked = time.monotonic()
            state = units.read_state(membership.UNIT_NAME)
            if state is None or not state.kept or state.restarts:
                raise _failed(lines or (state.said.splitlines() if state else []))
        time.sleep(_LOOK_EVERY_S)
    raise _failed(units.read_last_log_lines(membership.UNIT_NAME))


def _failed(lines: list[str]) -> Problem:
    log = units.get_log_file(membership.UNIT_NAME)
    problem = Problem(
        "Ray did not start",
        cause="\n".join(lines[-_WORDS:]) or f"it printed nothing in {SETTLE_LIMIT_S} s",
        fix=f"read all of it there: less {log}; or medley explain {log}",
    )
    return explain.explain_output(problem, lines)


def answer_end(asked: Table, note: Note) -> Table:
    """With `part` only its part in a cluster; else what is served too, and what only a cluster needs."""
    ended = 0
    if not asked["part"]:
        ended += serving.end_servers(None, Notes(note), is_immediate=True)
    note("end Ray …")
    ended += membership.end_ray()
    storage.remove(membership.get_ray_folder())
    if not asked["part"]:
        for file in (
            credentials.token_path(),
            storage.state() / "gathered.json",
            *storage.list_folder(storage.state(), "sglang-*.yaml"),
        ):
            storage.remove_file(file)
        for folder in (units.get_units_folder(), serving.get_folder(), storage.state() / "vllm"):
            storage.remove(folder)
    return {"ended": ended, "left": sorted(each.pid for each in membership.find_processes())}
