"""Answer the agent requests about this host: look, tell, examine, sample, log, events, listen, connect."""

import json
import socket
import time
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from heapq import merge
from pathlib import Path
from typing import Any

import psutil

from medley import storage, transcript, user
from medley.cli.agent.requests import Note, Table
from medley.cluster import checks, device_probe, events, membership, ray_serving, units
from medley.cluster.checks import HostState
from medley.cluster.membership import Membership
from medley.doctor.examination import read_answers
from medley.errors import Problem, describe_error
from medley.host.health import access
from medley.host.kind import load_answers
from medley.measurement.monitor.sampler import HostSampler
from medley.network.ports import RayPorts
from medley.serving import server_records
from medley.unusable_file import skip_unusable_file


def answer_look(_fields: Table, _note: Note) -> HostState:
    ray_cluster = membership.find_membership()
    return {
        "transcript": transcript.format_transcript(load_answers()),
        "processes": len(membership.find_processes()),
        "membership": ray_cluster.to_table() if ray_cluster else None,
        "units": [state.to_table() for state in units.list_states()],
        "boots": units.is_started_at_boot(),
        "user": user.read_user_name(),
        "free_bytes": storage.measure_free_bytes(storage.find_state_folder()),
        "state": str(storage.find_state_folder()),
    }


def answer_tell(fields: Table, _note: Note) -> Table:
    """Return the status of this host; a head that is asked for `nodes` adds those that Ray lists."""
    ray_cluster, memory = membership.find_membership(), psutil.virtual_memory()
    return {
        "membership": ray_cluster.to_table() if ray_cluster else None,
        "units": [state.to_table() for state in units.list_states()],
        "servers": [server.to_table() for server in server_records.list_servers()],
        "memory": {"total_bytes": memory.total, "available_bytes": memory.available},
        "wire": _describe_link(ray_cluster.interface) if ray_cluster else None,
        "low": [*_list_low_limits(), *_list_full_disks()],
        "slow": device_probe.list_slow_findings(),
        "nodes": _list_nodes(ray_cluster)
        if ray_cluster and ray_cluster.role == "head" and fields["nodes"]
        else None,
    }


def _list_nodes(ray_cluster: Membership) -> list[Mapping[str, Any]] | Mapping[str, str]:
    """Return the nodes that Ray lists, or the table of the Problem."""
    try:
        return ray_serving.list_nodes(ray_cluster)
    except Problem as problem:
        return problem.table


def _describe_link(interface: str) -> Table:
    """Return whether the link is up, and its speed; a virtual link has none."""
    link_stats = psutil.net_if_stats().get(interface)
    return {
        "interface": interface,
        "up": bool(link_stats and link_stats.isup),
        "mbit": (link_stats and link_stats.speed) or None,
    }


def _list_low_limits() -> list[str]:
    """Return the limits of a process of medley's Ray that are too low."""
    pid = min((process.pid for process in membership.find_processes()), default=None)
    limits = access.read_limits(pid) if pid is not None else None
    if limits is None:
        return []
    has_rdma = any(Path("/sys/class/infiniband").glob("*"))
    return [
        f"{limit.what}: medley doctor"
        for limit in access.list_low_limits(limits, user.read_user_name(), rdma=has_rdma)
    ]


def _list_full_disks() -> list[str]:
    """Return a line if the disk of medley's state is full, because logs and events are lost then."""
    state = storage.find_state_folder()
    free = storage.measure_free_bytes(state)
    fix = f"df -h {state}; medley env clean"
    return (
        [f"the disk is full: {free >> 20} MiB free in {state}: {fix}"]
        if free < checks.MIN_FREE_DISK_BYTES
        else []
    )


def answer_examine(fields: Table, _note: Note) -> Table:
    """Return the doctor's transcript; `env`: the user's own virtualenv, if cluster.toml names one."""
    return {"transcript": transcript.format_transcript(read_answers(fields["env"]))}


# One agent process has one list.
_HOST_SAMPLERS: list[HostSampler] = []


def answer_sample(fields: Table, _note: Note) -> Table:
    """Return a sample; `every_s`: seconds between requests; `whole`: with the engines' metrics unchanged."""
    if not _HOST_SAMPLERS:
        _HOST_SAMPLERS.append(HostSampler(fields["every_s"]))
    return _HOST_SAMPLERS[0].sample(include_metrics=fields["whole"]).to_table()


_POLL_INTERVAL_S = 0.2
_MAX_TAIL_BYTES = 1 << 20


def answer_log(fields: Table, note: Note) -> Table:
    """Send the last `lines` of all units, by time; with `follow` go on until nobody listens."""
    start_offsets = {path: max(0, _get_size(path) - _MAX_TAIL_BYTES) for path in _list_logs()}
    end_offsets = dict(start_offsets)
    # A tail that does not begin at the top begins in the middle of a line.
    tails = [list(_read_new_lines(path, end_offsets))[bool(begin) :] for path, begin in start_offsets.items()]
    for line in deque(merge(*tails), maxlen=fields["lines"]):
        note(line)
    while fields["follow"]:
        time.sleep(_POLL_INTERVAL_S)
        for path in _list_logs():
            for line in _read_new_lines(path, end_offsets):
                note(line)
    return {"files": [str(path) for path in end_offsets]}


def answer_events(fields: Table, note: Note) -> Table:
    """Send the last `lines` events, each in JSON; with `follow` go on until nobody listens."""
    for event in events.follow_events(fields["lines"], follow=fields["follow"]):
        note(json.dumps(event.to_table()))
    return {"file": str(events.get_events_file())}


def _list_logs() -> list[Path]:
    """Return the logs of units and servers, whose lines begin with their time."""
    folder = storage.find_state_folder() / "logs"
    return sorted([*storage.list_folder(folder, "medley-*.log"), *storage.list_folder(folder, "serve-*.log")])


def _get_size(path: Path) -> int:
    with suppress(OSError):  # it was put aside, or cannot be read
        return path.stat().st_size
    return 0


def _read_new_lines(path: Path, end_offsets: dict[Path, int]) -> Iterator[str]:
    """Yield the whole lines that were added since, as TIME UNIT TEXT; a rotated log is read from its top."""
    size, old_size = _get_size(path), end_offsets.get(path, 0)
    if size == old_size:
        return
    new_text = b""
    with skip_unusable_file():
        if file := storage.open_file(path):
            with file, storage.explain_errors(path, "read"):
                file.seek(old_size if size > old_size else 0)
                new_text, _, partial_line = file.read().rpartition(b"\n")
                end_offsets[path] = file.tell() - len(partial_line)
    for line in new_text.decode(errors="replace").splitlines():
        time_text, _, text = line.partition(" ")
        if time_text[:1].isdigit():  # a server's log of an earlier version has no times
            yield f"{time_text} {path.stem.removeprefix('medley-')} {text}"


_MAX_PORT_TRIES = 100
# One agent process has one list.
_OPEN_SOCKETS: list[socket.socket] = []


def answer_listen(fields: Table, _note: Note) -> Table:
    """Listen at `address`; raise a Problem if Ray `starts` here and another program has its ports."""
    while _OPEN_SOCKETS:
        _OPEN_SOCKETS.pop().close()
    address = fields["address"]
    if fields["starts"]:
        for port in (RayPorts.gcs, *RayPorts.raylet) if fields["head"] else RayPorts.raylet:
            _require_free(address, port)
    _OPEN_SOCKETS.extend((_open_worker_port(address, RayPorts.last), socket.create_server((address, 0))))
    return {"ports": [server.getsockname()[1] for server in _OPEN_SOCKETS]}


def _require_free(address: str, port: int) -> None:
    try:
        socket.create_server((address, port)).close()
    except OSError as error:
        raise Problem(
            f"port {port} is taken",
            cause=f"{address}:{port}: {error.strerror}; another Ray or medley runs here",
            fix=f"sudo ss -ltnp 'sport = :{port}'  # find the process, and end it if it is yours",
        ) from error


def _open_worker_port(address: str, last_port: int) -> socket.socket:
    """Return a socket at a free port among those of Ray's workers."""
    for port in range(last_port, last_port - _MAX_PORT_TRIES, -1):
        try:
            return socket.create_server((address, port))
        except OSError:
            continue
    raise Problem(
        f"no port from {last_port - _MAX_PORT_TRIES + 1} to {last_port} is free",
        cause=f"{address} has a listener at each",
        fix="see which: sudo ss -ltnp",
    )


_CONNECT_LIMIT_S = 2.5


def answer_connect(fields: Table, _note: Note) -> Table:
    """Connect to each of `places`, [host, address, port], from `address`; return the closed ones and why."""
    own_address, places = fields["address"], fields["places"]
    with ThreadPoolExecutor(max(1, min(64, len(places)))) as pool:
        reasons = list(pool.map(lambda place: _find_refusal(own_address, place[1], place[2]), places))
    return {"closed": [[*place, reason] for place, reason in zip(places, reasons, strict=True) if reason]}


def _find_refusal(own_address: str, address: str, port: int) -> str | None:
    try:
        socket.create_connection(
            (address, port), timeout=_CONNECT_LIMIT_S, source_address=(own_address, 0)
        ).close()
    except OSError as error:
        return describe_error(error)
    return None
