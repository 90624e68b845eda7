"""Agent requests: look, status, examine, sample, logs, events, listen, connect."""

import json
import socket
import time
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from heapq import merge
from pathlib import Path
from typing import Any

import psutil

from medley import serving, storage, transcript, user
from medley.cli.agent import Note, Table
from medley.cluster import checks, device_probe, events, membership, ray_serving, units
from medley.cluster.membership import Membership
from medley.doctor.case import read_answers
from medley.errors import Problem, in_words
from medley.host.health import access
from medley.host.kind import load_answers
from medley.measurement.monitor.sampler import HostSampler
from medley.network.ports import RayPorts
from medley.unusable_file import optional


def answer_look(_asked: Table, _note: Note) -> Table:
    found = membership.find_membership()
    return {
        "transcript": transcript.text(load_answers()),
        "processes": len(membership.find_processes()),
        "membership": asdict(found) if found else None,
        "units": [asdict(state) for state in units.list_states()],
        "boots": units.is_started_at_boot(),
        "user": user.name(),
        "free_bytes": storage.free_bytes(storage.state()),
        "state": str(storage.state()),
    }


def answer_tell(asked: Table, _note: Note) -> Table:
    """A head, which is asked for its `nodes`, says what Ray knows of all."""
    found, memory = membership.find_membership(), psutil.virtual_memory()
    return {
        "membership": asdict(found) if found else None,
        "units": [asdict(state) for state in units.list_states()],
        "servers": [asdict(server) for server in serving.list_servers()],
        "memory": {"total_bytes": memory.total, "available_bytes": memory.available},
        "wire": _wire(found.interface) if found else None,
        "low": [*_low(), *_full()],
        "slow": device_probe.list_slow_findings(),
        "nodes": _nodes(found) if found and found.role == "head" and asked["nodes"] else None,
    }


def _nodes(found: Membership) -> list[Mapping[str, Any]] | Mapping[str, str]:
    """Or why they are not known."""
    try:
        return ray_serving.list_nodes(found)
    except Problem as problem:
        return problem.table


def _wire(interface: str) -> Table:
    """Whether it is up, and its speed, as the kernel has it now; a virtual one has none."""
    found = psutil.net_if_stats().get(interface)
    return {"interface": interface, "up": bool(found and found.isup), "mbit": (found and found.speed) or None}


def _low() -> list[str]:
    """What is in force for a process of our Ray, where that is too little."""
    pid = min((each.pid for each in membership.find_processes()), default=None)
    found = access.read_limits(pid) if pid is not None else None
    if found is None:
        return []
    rdma = any(Path("/sys/class/infiniband").glob("*"))
    return [f"{each.what}: medley doctor" for each in access.list_low_limits(found, user.name(), rdma=rdma)]


def _full() -> list[str]:
    """The disk of medley's state, where it is full: logs and events are lost then."""
    state = storage.state()
    free = storage.free_bytes(state)
    fix = f"df -h {state}; medley env clean"
    return (
        [f"the disk is full: {free >> 20} MiB free in {state}: {fix}"] if free < checks.MIN_FREE_BYTES else []
    )


def answer_examine(asked: Table, _note: Note) -> Table:
    """`env`: a virtualenv of the user's own, where cluster.toml names one."""
    return {"transcript": transcript.text(read_answers(asked["env"]))}


_here: list[HostSampler] = []


def answer_sample(asked: Table, _note: Note) -> Table:
    """`every_s`: how often it will be asked; `whole`: with engines' metrics as they are."""
    if not _here:
        _here.append(HostSampler(asked["every_s"]))
    return _here[0].sample(include_metrics=asked["whole"]).table


_LOOK_EVERY_S = 0.2
_TAIL_BYTES = 1 << 20


def answer_log(asked: Table, note: Note) -> Table:
    """The last `lines` of all units, by time; with `follow` it goes on until nobody listens."""
    begins = {path: max(0, _size(path) - _TAIL_BYTES) for path in _logs()}
    ends = dict(begins)
    # Where it does not begin at the top, the first line has lost a part.
    tails = [list(_more(path, ends))[bool(begin) :] for path, begin in begins.items()]
    for line in deque(merge(*tails), maxlen=asked["lines"]):
        note(line)
    while asked["follow"]:
        time.sleep(_LOOK_EVERY_S)
        for path in _logs():
            for line in _more(path, ends):
                note(line)
    return {"files": [str(path) for path in ends]}


def answer_events(asked: Table, note: Note) -> Table:
    """The last `lines` events, each in JSON; with `follow` it goes on until nobody listens."""
    for event in events.follow_events(asked["lines"], follow=asked["follow"]):
        note(json.dumps(asdict(event)))
    return {"file": str(events.get_events_file())}


def _logs() -> list[Path]:
    """Of units and of servers: each of their lines has its time."""
    folder = storage.state() / "logs"
    return sorted([*storage.list_folder(folder, "medley-*.log"), *storage.list_folder(folder, "serve-*.log")])


def _size(path: Path) -> int:
    with suppress(OSError):  # it was put aside, or cannot be read
        return path.stat().st_size
    return 0


def _more(path: Path, ends: dict[Path, int]) -> Iterator[str]:
    """Whole lines that were added since, as TIME UNIT TEXT; a log that was put aside begins anew."""
    size, seen = _size(path), ends.get(path, 0)
    if size == seen:
        return
    said = b""
    with optional():
        if file := storage.open_file(path):
            with file, storage.explain_errors(path, "read"):
                file.seek(seen if size > seen else 0)
                said, _, part = file.read().rpartition(b"\n")
                ends[path] = file.tell() - len(part)
    for line in said.decode(errors="replace").splitlines():
        when, _, text = line.partition(" ")
        if when[:1].isdigit():  # a server's log of an earlier version has no times
            yield f"{when} {path.stem.removeprefix('medley-')} {text}"


_TRIES = 100
_open: list[socket.socket] = []


def answer_listen(asked: Table, _note: Note) -> Table:
    """At `address`. A Problem where another has Ray's ports, if Ray `starts` here."""
    while _open:
        _open.pop().close()
    own = asked["address"]
    if asked["starts"]:
        for port in (RayPorts.gcs, *RayPorts.raylet) if asked["head"] else RayPorts.raylet:
            _require_free(own, port)
    _open.extend((_of_workers(own, RayPorts.last), socket.create_server((own, 0))))
    return {"ports": [server.getsockname()[1] for server in _open]}


def _require_free(own: str, port: int) -> None:
    try:
        socket.create_server((own, port)).close()
    except OSError as error:
        raise Problem(
            f"port {port} is taken",
            cause=f"{own}:{port}: {error.strerror}; another Ray or medley runs here",
            fix=f"sudo ss -ltnp 'sport = :{port}'  # find the process, and end it if it is yours",
        ) from error


def _of_workers(own: str, last: int) -> socket.socket:
    """A port among those of Ray's workers that none of them has."""
    for port in range(last, last - _TRIES, -1):
        try:
            return socket.create_server((own, port))
        except OSError:
            continue
    raise Problem(
        f"no port from {last - _TRIES + 1} to {last} is free",
        cause=f"{own} has a listener at each",
        fix="see which: sudo ss -ltnp",
    )


_LIMIT_S = 2.5


def answer_connect(asked: Table, _note: Note) -> Table:
    """`asked`: our own `address`, and `places`, each [host, address, port]; which are closed, and why."""
    own, places = asked["address"], asked["places"]
    with ThreadPoolExecutor(max(1, min(64, len(places)))) as pool:
        said = list(pool.map(lambda place: _refusal(own, place[1], place[2]), places))
    return {"closed": [[*place, why] for place, why in zip(places, said, strict=True) if why]}


def _refusal(own: str, address: str, port: int) -> str | None:
    try:
        socket.create_connection((address, port), timeout=_LIMIT_S, source_address=(own, 0)).close()
    except OSError as error:
        return in_words(error)
    return None
