"""A membership is this host's part in a Ray cluster, from `ray-head` or `ray-worker` until `ray-stop`."""

import contextlib
import errno
import json
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from medley import machine, ray, store, transcript
from medley.command import Command
from medley.facts.net import Net
from medley.problem import Problem
from medley.transcript import Transcript
from medley.variables import UNSET
from medley.venv import Environment

_START_LIMIT_S = 90
_ASK_LIMIT_S = 30
_CONNECT_LIMIT_S = 4


@dataclass(frozen=True)
class Membership:
    """As it is noted on this host while it lasts."""

    role: str
    """`head` or `worker`."""
    head: str
    """HOST:PORT of the head."""
    address: str
    interface: str
    environment: str
    """The folder of the engine environment whose Ray runs."""
    token: str


def folder() -> Path:
    """Short, because Ray keeps sockets below it, whose paths may have 107 letters."""
    return store.state() / "ray"


def noted() -> Membership | None:
    """What was noted of it, if its processes are still there."""
    try:
        table = json.loads(_note().read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return Membership(**table) if processes() else None


def require_none() -> None:
    """Raise a Problem where this host takes part in a cluster already."""
    found = noted()
    if found:
        raise Problem(
            f"this host is in a cluster already, as its {found.role}",
            cause=f"its head is {found.head}",
            fix="medley status shows it; medley ray-stop ends it here",
        )


def processes() -> set[int]:
    """Those of our cluster on this host: all that carry our mark."""
    return ray.marked(machine.environments(), str(folder()))


def stop() -> int:
    """End them all; returns how many there were."""
    found = processes()
    machine.end(found, grace_s=3)
    _note().unlink(missing_ok=True)
    return len(found)


@contextlib.contextmanager
def begun(command: Command, membership: Membership) -> Iterator[None]:
    """Run `ray start`, and note the membership when the body is done; if that fails, end what was begun."""
    store.make(folder())
    try:
        _start(command)
        yield
        store.write(_note(), json.dumps(asdict(membership)))
    except BaseException:
        stop()
        raise


def _start(command: Command) -> None:
    finished = machine.run(command, limit_s=_START_LIMIT_S)
    if finished.status:
        raise Problem(
            "Ray could not be started",
            cause="\n".join(finished.lines[-6:]) or f"ray start exited with {finished.status}",
            fix=f"run it by itself: {command}",
        )


def ask(environment: Environment, token: Path, verb: str, address: str, *rest: str) -> Mapping[str, Any]:
    """What inside/cluster.py says of the cluster whose head is at `address`."""
    with _question(environment, token, verb, address, *rest) as command:
        finished = machine.run(command, limit_s=_ASK_LIMIT_S)
    return _answer(finished.lines, token, address)


def tell(
    environment: Environment,
    token: Path,
    head: str,
    address: str,
    answers: Transcript,
    *,
    note: Mapping[str, Any] | None = None,
) -> None:
    """Keep with the head at HOST:PORT what this host says of itself, and of a head its terms."""
    file = folder() / "facts.txt"
    store.write(file, transcript.text(answers))
    terms = [json.dumps(note)] if note else []
    ask(environment, token, "note" if note else "tell", head, address, str(file), *terms)


@contextlib.contextmanager
def held(
    environment: Environment, token: Path, address: str, own: str, slots: Mapping[str, int]
) -> Iterator[None]:
    """While the body runs nobody gets these slots, by host: what is started then lands elsewhere."""
    if not slots:
        yield
        return
    lines: list[str] = []
    words = (f"{host}={count}" for host, count in slots.items())
    with _question(environment, token, "hold", address, own, *words) as command:
        process = machine.Process(command, lines.append)
        try:
            deadline = time.monotonic() + _ASK_LIMIT_S
            while not _said(lines) and process.wait(0.1) is None and time.monotonic() < deadline:
                pass
            _answer(lines, token, address)
            yield
        finally:
            process.stop(grace_s=5)


@contextlib.contextmanager
def _question(
    environment: Environment, token: Path, verb: str, address: str, *rest: str
) -> Iterator[Command]:
    with asked(environment, token, "cluster.py", verb, address, *rest) as command:
        yield command


@contextlib.contextmanager
def asked(environment: Environment, token: Path, script: str, *words: str) -> Iterator[Command]:
    """A script of inside/ that talks to a cluster, as the environment's Python runs it."""
    env = {each.name: each.value for each in ray.variables(token)}
    with as_file(files("medley") / "inside" / script) as path:
        yield Command((str(environment.python), str(path), *words), env, UNSET)


def _said(lines: Sequence[str]) -> str | None:
    return next((line for line in reversed(lines) if line.startswith("{")), None)


def _answer(lines: Sequence[str], token: Path, address: str) -> Mapping[str, Any]:
    said = _said(lines)
    table: dict[str, Any] = json.loads(said) if said else {"error": "", "said": "\n".join(lines[-3:])}
    if "error" not in table:
        return table
    if "Authentication" in table["error"] or "InvalidAuthToken" in table["said"]:
        raise Problem(
            f"the cluster at {address} does not take this token",
            cause=f"{token} is not the token of its head",
            fix="bring the head's: medley ray-worker HEAD --token-file FILE",
        )
    raise Problem(
        f"the cluster at {address} does not answer", cause=table["said"], fix="medley status on its head"
    )


def require_reach(environment: Environment, token: Path, here: str, head: str) -> None:
    """A Problem unless this host, which has joined, and the head at HOST:PORT reach each other's ports."""
    ports = ray.Ports()
    said = ask(environment, token, "reach", head, here, *map(str, (ports.last, *ports.of_raylet)))
    there = head.partition(":")[0]
    if not said["back"]:
        raise Problem(
            "this host joined, and the head's tasks do not answer it",
            cause=f"a task on {there} did not come back; a firewall there drops the ports of Ray's workers",
            fix=f"on the head: sudo ufw allow from {here}; sudo ufw status",
        )
    if said["closed"]:
        raise Problem(
            "the head cannot reach this host",
            cause=f"{there} cannot connect to {', '.join(said['closed'])}",
            fix=f"let it in at every TCP port, for a model's ranks pick theirs: sudo ufw allow from {there}",
        )
    if said["ahead"]:
        raise Problem(
            "this host reaches Ray on the head, and not the ports that a model's ranks pick",
            cause=f"cannot connect to {', '.join(said['ahead'])}",
            fix=f"on the head: sudo ufw allow from {here}; sudo ufw status",
        )


def require_listening(host: str, port: int, ours: Net) -> str:
    """The address of `host`, where something listens on `port`; else a Problem that says what is wrong.

    `ours`: the network of this host, which may be no network of the other's.
    """
    try:
        address = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)[0][4][0]
    except socket.gaierror as error:
        raise Problem(
            f"{host} is no host that this one knows",
            cause=str(error),
            fix=f"give its address, or: getent hosts {host}",
        ) from error
    if str(address).startswith("127."):
        raise Problem(
            f"{host} means this host itself here",
            cause=f"it resolves to {address}, a loopback address (getent hosts {host}; see /etc/hosts)",
            fix="give its address on the wire: medley ray-worker 192.168.1.10, or mend /etc/hosts",
        )
    try:
        socket.create_connection((str(address), port), timeout=_CONNECT_LIMIT_S).close()
    except OSError as error:
        raise _deaf(host, f"{address}:{port}", error, ours) from error
    return str(address)


def _deaf(host: str, where: str, error: OSError, ours: Net) -> Problem:
    ports = ray.Ports()
    if error.errno in {errno.ENETUNREACH, errno.EHOSTUNREACH}:
        has = [f"{each.ip}/{each.prefix} ({link.name})" for link in ours.links for each in link.addresses]
        return Problem(
            f"{host} and this host have no network in common",
            cause=f"no way leads to {where}: {error.strerror}; here are {', '.join(has) or 'no addresses'}",
            fix="join them by a cable or a switch, and give each an address in one subnet: "
            "sudo ip address add 192.168.100.1/24 dev INTERFACE (.2 on the next)",
        )
    if isinstance(error, ConnectionRefusedError):
        cause, fix = f"nothing listens at {where}", f"on {host}: medley ray-head"
    else:
        cause = f"{where} does not answer: {error}"
        fix = f"open TCP ports {ports.first} to {ports.last} between the hosts (sudo ufw status; ping {host})"
    return Problem(f"no Ray head answers at {host}", cause=cause, fix=fix)


def _note() -> Path:
    return store.state() / "ray.json"
