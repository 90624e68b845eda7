"""Reach is whether the hosts of a cluster can connect to each other's ports, before a model hangs on it."""

import errno
import socket
from pathlib import Path

from medley import ray
from medley.facts.net import Net
from medley.imaged import Imaged
from medley.membership import ask
from medley.problem import Problem, in_words
from medley.venv import Environment

_CONNECT_LIMIT_S = 4


def require_listening(host: str, port: int, ours: Net) -> str:
    """The address of `host`, where something listens on `port`; else a Problem that says what is wrong.

    `ours`: the network of this host, which may be no network of the other's.
    """
    try:
        address = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)[0][4][0]
    except socket.gaierror as error:
        raise Problem(
            f"{host} is no host that this one knows",
            cause=in_words(error),
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


def require_reach(environment: Environment | Imaged, token: Path, here: str, head: str) -> None:
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
        cause = f"{where} does not answer: {in_words(error)}"
        fix = f"open TCP ports {ports.first} to {ports.last} between the hosts (sudo ufw status; ping {host})"
    return Problem(f"no Ray head answers at {host}", cause=cause, fix=fix)
