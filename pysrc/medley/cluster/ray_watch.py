"""Notice that Ray has ended or cannot be reached; name the host whose loss ended an engine."""

import contextlib
import errno
import re
import socket
import time
from collections.abc import Iterator, Mapping
from typing import NoReturn

from medley.cluster import membership
from medley.cluster.membership import Membership
from medley.cluster.units import STOPPED_LIMIT_S
from medley.errors import Problem, in_words
from medley.host.facts.network import Net
from medley.network import tcp
from medley.network.ports import RayPorts
from medley.process import wait_until
from medley.process_identity import EndedOrStopped, Identity

VITAL = ("raylet", "gcs_server")
"""Processes that Ray cannot run without; `ray start --block` does not notice the end of each of them."""
_REACH_LIMIT_S = 80  # more than the limits of `reach` in ray_state.py
_CONNECT_LIMIT_S = 4
_ASK_EVERY_S = 2
_ASK_LIMIT_S = 10
_DEAD_LIMIT_S = 25
_LOOK_EVERY_S = 1.0
_LOOK_LIMIT_S = 1.0
_REFUSALS = 2
"""In a row, because a head under load may refuse one."""
_LAST_LINES = 4
_STOPPED = re.compile(r"\(process \d+\) on .+ is stopped")
"""The watchdog's, for which no host needs to be gone."""
# vLLM's line, which payload/sglang_ray.py prints too: RayWorkerProc rank=[1] died unexpectedly
_RANK = re.compile(r"rank=\[?(\d+)")


def require_listening(host: str, port: int, ours: Net) -> str:
    """Return the address of `host`, which must listen on `port`; `ours`: the network of this host."""
    try:
        address = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)[0][4][0]
    except socket.gaierror as error:
        raise Problem(
            f"{host} cannot be resolved",
            cause=in_words(error),
            fix=f"give its address instead; to check the name: getent hosts {host}",
        ) from error
    if str(address).startswith("127."):
        raise Problem(
            f"{host} resolves to this host itself",
            cause=f"{address} is a loopback address (getent hosts {host}; see /etc/hosts)",
            fix="give its address on the cluster network: medley ray-worker 192.168.1.10, or fix /etc/hosts",
        )
    try:
        socket.create_connection((str(address), port), timeout=_CONNECT_LIMIT_S).close()
    except OSError as error:
        raise _deaf(host, f"{address}:{port}", error, ours) from error
    return str(address)


def require_reach(joined: Membership) -> None:
    """Require that this host, which has joined, and the head reach each other's RayPorts."""
    here, there = joined.address, joined.head.partition(":")[0]
    ports = map(str, (RayPorts.last, *RayPorts.raylet))
    said = joined.ask("reach", here, *ports, limit_s=_REACH_LIMIT_S)
    if not said["back"]:
        raise Problem(
            "this host joined, and the head's tasks do not answer",
            cause=f"a task on {there} did not come back; a firewall there drops the ports of Ray's workers",
            fix=f"on the head: sudo ufw allow from {here}; sudo ufw status",
        )
    if said["closed"]:
        raise Problem(
            "the head cannot reach this host",
            cause=f"{there} cannot connect to {', '.join(said['closed'])}",
            fix=f"open all TCP ports, because ranks pick free ones: sudo ufw allow from {there}",
        )
    if said["ahead"]:
        raise Problem(
            "this host reaches Ray on the head, but not the ports of a model's ranks",
            cause=f"cannot connect to {', '.join(said['ahead'])}",
            fix=f"on the head: sudo ufw allow from {here}; sudo ufw status",
        )


def _deaf(host: str, where: str, error: OSError, ours: Net) -> Problem:
    if error.errno in {errno.ENETUNREACH, errno.EHOSTUNREACH}:
        has = [f"{each.ip}/{each.prefix} ({link.name})" for link in ours.links for each in link.addresses]
        return Problem(
            f"{host} and this host have no network in common",
            cause=f"no route to {where}: {error.strerror}; this host has {', '.join(has) or 'no addresses'}",
            fix="connect them with a cable or a switch, and give each an address in one subnet: "
            "sudo ip address add 192.168.100.1/24 dev INTERFACE (.2 on the next)",
        )
    if isinstance(error, ConnectionRefusedError):
        cause, fix = f"nothing listens at {where}", f"on {host}: medley ray-head"
    else:
        cause = f"{where} does not answer: {in_words(error)}"
        ports = f"{RayPorts.first} to {RayPorts.last}"
        fix = f"open TCP ports {ports} between the hosts (sudo ufw status; ping {host})"
    return Problem(f"no Ray head answers at {host}", cause=cause, fix=fix)


@contextlib.contextmanager
def explain_host_loss(found: Membership | None, places: Mapping[int, str]) -> Iterator[None]:
    """Name the lost host in the Problem of an engine that ends because a host is gone.

    `places`: the address of each rank, filled once they are known. The engine names a dead rank
    immediately, Ray a lost host within half a minute.
    """
    try:
        yield
    except RayLost:
        raise
    except Problem as problem:
        if _STOPPED.search(problem.cause):
            raise
        lost, here = _RANK.search(problem.cause), tcp.explain_lost_address(found.address) if found else ""
        address = places.get(int(lost[1])) if lost else None
        reached = not lost and bool(places) and all(map(_answers, set(places.values())))
        gone = _gone(found, address) if found and not reached else []
        if not gone:
            raise
        what = f", rank {lost[1]}, is lost" if lost else " is gone"
        raise Problem(
            f"{', '.join(gone)}{what}, and the model with it",
            cause=f"{here}{problem.what}: {problem.cause}",
            fix="serve again on the hosts that medley status shows; rejoin a host: medley ray-worker HEAD",
            status=problem.status,
        ) from problem


def _answers(address: str) -> bool:
    """Whether a host's Ray accepts connections, which a lost host does not."""
    with contextlib.suppress(OSError):
        socket.create_connection((address, RayPorts.raylet[0]), timeout=_CONNECT_LIMIT_S).close()
        return True
    return False


def _gone(found: Membership, address: str | None) -> list[str]:
    """Name the host at `address`, or the hosts that Ray declares dead, which takes time."""

    def look() -> list[str]:
        with contextlib.suppress(Problem):
            nodes = found.ask("read")["nodes"]
            living = {node["address"] for node in nodes if node["alive"]}
            gone = (
                f"{node['name']} ({node['address']})"
                for node in nodes
                if (node["address"] == address if address else node["address"] not in living)
            )
            return list(dict.fromkeys(gone))
        return []

    limit_s = _ASK_LIMIT_S if address else _DEAD_LIMIT_S
    return wait_until(look, limit_s, every_s=_ASK_EVERY_S) or ([address] if address else [])


def stay_in_ray() -> NoReturn:
    """Raise a Problem once a vital process of Ray ends; always end the rest."""
    try:
        vital = _vital()
        while all(each.alive for each in vital) and membership.noted():
            time.sleep(_LOOK_EVERY_S)
        gone = sorted(name for each, name in vital.items() if not each.alive)
        log = membership.folder() / "session_latest" / "logs" / f"{gone[0] if gone else ''}.out"
        last = "it left no log"
        with contextlib.suppress(OSError):
            last = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:])
        raise Problem(
            "Ray has ended on this host",
            cause=f"{', '.join(gone) or 'its container'} is gone: {last}",
            fix=f"read its logs: ls {membership.folder()}/session_latest/logs",
        )
    finally:
        membership.stop()


class RayLost(Problem):
    """Ray itself has ended; all hosts may still be there."""


class RayWatch:
    """Raise a Problem for a model whose Ray is gone or was restarted.

    A head's Ray restarts within seconds and loses its ranks, which nothing else reports.
    """

    def __init__(self, part: Membership) -> None:
        self._part, self._vital, self._gone = part, _vital(), EndedOrStopped(STOPPED_LIMIT_S)
        host, _, port = part.head.rpartition(":")
        self._head = (host.strip("[]"), int(port))
        self._looked = time.monotonic()
        self._refused = 0

    def check(self) -> None:
        """Check, at most every second; call it often."""
        if time.monotonic() < self._looked + _LOOK_EVERY_S:
            return
        self._looked = time.monotonic()
        gone = sorted(self._vital[each] for each in self._gone.find(self._vital))
        if gone:
            raise self._lost(f"{', '.join(gone)} of Ray ended, or is stopped, on this host")
        try:
            socket.create_connection(self._head, timeout=_LOOK_LIMIT_S).close()
            self._refused = 0
        except ConnectionRefusedError as error:
            self._refused += 1
            if self._refused >= _REFUSALS:
                raise self._lost(f"nothing listens at {self._part.head} any more") from error
        except OSError:  # a link that is down may come back; the engine itself notices a loss
            pass

    def _lost(self, cause: str) -> RayLost:
        return RayLost(
            "the cluster's Ray has ended, and the model with it",
            cause=f"{cause}; a restarted Ray has lost the model's ranks",
            fix="medley up; then serve again; medley status shows the cluster",
        )


def _vital() -> dict[Identity, str]:
    """Find the vital processes; a Ray in a container has none, because it ends as a whole."""
    return {each: each.name for each in membership.processes() if each.name in VITAL}
