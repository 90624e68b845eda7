"""Detect that Ray has ended or cannot be reached; name the host whose loss ended an engine."""

import contextlib
import errno
import re
import shlex
import socket
import time
from collections.abc import Iterator, Mapping
from typing import NoReturn

from medley.cluster import membership
from medley.cluster.membership import Membership
from medley.cluster.units import STOPPED_LIMIT_S
from medley.errors import Problem, describe_error
from medley.host.facts.network import Net
from medley.network import tcp
from medley.network.ports import RayPorts
from medley.process import wait_until
from medley.process_identity import FailedProcessFinder, ProcessIdentity

VITAL_PROCESSES = ("raylet", "gcs_server")
"""Processes that Ray cannot run without; `ray start --block` does not notice the end of each of them."""
_REACH_LIMIT_S = 80  # more than the limits of `reach` in ray_state.py
_TCP_CONNECT_LIMIT_S = 4
_QUERY_INTERVAL_S = 2
_ANSWER_LIMIT_S = 10
_DECLARED_DEAD_LIMIT_S = 25
_POLL_INTERVAL_S = 1.0
_PROBE_CONNECT_LIMIT_S = 1.0
_MAX_REFUSALS = 2
"""Refused connections in a row that count as a loss: a head under load may refuse one."""
_LAST_LINES = 4
_STOPPED_PATTERN = re.compile(r"\(process \d+\) on .+ is stopped")
"""The watchdog's observation of a stopped rank, for which no host needs to be lost."""
# vLLM's line, which payload/sglang_ray.py prints too: RayWorkerProc rank=[1] died unexpectedly
_RANK_PATTERN = re.compile(r"rank=\[?(\d+)")


def require_listening(host: str, port: int, own_network: Net) -> str:
    """Return the address of `host`, which must listen on `port`; `own_network`: the network of this host."""
    try:
        address = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)[0][4][0]
    except socket.gaierror as error:
        raise Problem(
            f"{host} cannot be resolved",
            cause=describe_error(error),
            fix=f"give its address instead; to check the name: getent hosts {shlex.quote(host)}",
        ) from error
    if str(address).startswith("127."):
        raise Problem(
            f"{host} resolves to this host itself",
            cause=f"{address} is a loopback address (getent hosts {host}; see /etc/hosts)",
            fix="give its address on the cluster network: medley ray-worker 192.168.1.10, or fix /etc/hosts",
        )
    try:
        socket.create_connection((str(address), port), timeout=_TCP_CONNECT_LIMIT_S).close()
    except OSError as error:
        raise _no_head_problem(host, f"{address}:{port}", error, own_network) from error
    return str(address)


def require_reach(ray_cluster: Membership) -> None:
    """Require that this host, which has joined, and the head reach each other's RayPorts."""
    own_address, head_address = ray_cluster.address, ray_cluster.head.partition(":")[0]
    ports = map(str, (RayPorts.last, *RayPorts.raylet))
    answer = ray_cluster.ask("reach", own_address, *ports, limit_s=_REACH_LIMIT_S)
    is_task_back, closed_here, closed_on_head = answer["back"], answer["closed"], answer["ahead"]
    if not is_task_back:
        raise Problem(
            "this host joined, and the head's tasks do not answer",
            cause=f"a task on {head_address} did not come back; "
            "a firewall there drops the ports of Ray's workers",
            fix=f"on the head: sudo ufw allow from {own_address}; sudo ufw status",
        )
    if closed_here:
        raise Problem(
            "the head cannot reach this host",
            cause=f"{head_address} cannot connect to {', '.join(closed_here)}",
            fix=f"open all TCP ports, because ranks pick free ones: sudo ufw allow from {head_address}",
        )
    if closed_on_head:
        raise Problem(
            "this host reaches Ray on the head, but not the ports of a model's ranks",
            cause=f"cannot connect to {', '.join(closed_on_head)}",
            fix=f"on the head: sudo ufw allow from {own_address}; sudo ufw status",
        )


def _no_head_problem(host: str, endpoint: str, error: OSError, own_network: Net) -> Problem:
    if error.errno in {errno.ENETUNREACH, errno.EHOSTUNREACH}:
        own_addresses = []
        for link in own_network.links:
            own_addresses += [f"{address.ip}/{address.prefix} ({link.name})" for address in link.addresses]
        return Problem(
            f"{host} and this host have no network in common",
            cause=f"no route to {endpoint}: {error.strerror}; "
            f"this host has {', '.join(own_addresses) or 'no addresses'}",
            fix="connect them with a cable or a switch, and give each an address in one subnet: "
            "sudo ip address add 192.168.100.1/24 dev INTERFACE (.2 on the next)",
        )
    if isinstance(error, ConnectionRefusedError):
        cause, fix = f"nothing listens at {endpoint}", f"on {host}: medley ray-head"
    else:
        cause = f"{endpoint} does not answer: {describe_error(error)}"
        ports = f"{RayPorts.first} to {RayPorts.last}"
        fix = f"open TCP ports {ports} between the hosts (sudo ufw status; ping {shlex.quote(host)})"
    return Problem(f"no Ray head answers at {host}", cause=cause, fix=fix)


@contextlib.contextmanager
def explain_host_loss(ray_cluster: Membership | None, rank_addresses: Mapping[int, str]) -> Iterator[None]:
    """Name the lost host in the Problem of an engine that ends because a host is gone.

    `rank_addresses`: the address of each rank, filled once they are known. The engine names a dead rank
    immediately, Ray a lost host within half a minute.
    """
    try:
        yield
    except RayLost:
        raise
    except Problem as problem:
        if _STOPPED_PATTERN.search(problem.cause):
            raise
        rank_match = _RANK_PATTERN.search(problem.cause)
        link_note = tcp.explain_lost_address(ray_cluster.address) if ray_cluster else ""
        address = rank_addresses.get(int(rank_match[1])) if rank_match else None
        is_each_answering = (
            not rank_match and bool(rank_addresses) and all(map(_is_answering, set(rank_addresses.values())))
        )
        lost_hosts = _find_lost_hosts(ray_cluster, address) if ray_cluster and not is_each_answering else []
        if not lost_hosts:
            raise
        loss_text = f", rank {rank_match[1]}, is lost" if rank_match else " is gone"
        raise Problem(
            f"{', '.join(lost_hosts)}{loss_text}, and the model with it",
            cause=f"{link_note}{problem.what}: {problem.cause}",
            fix="serve again on the hosts that medley status shows; rejoin a host: medley ray-worker HEAD",
            status=problem.status,
        ) from problem


def _is_answering(address: str) -> bool:
    """Return whether a host's Ray accepts connections, which a lost host does not."""
    with contextlib.suppress(OSError):
        socket.create_connection((address, RayPorts.raylet[0]), timeout=_TCP_CONNECT_LIMIT_S).close()
        return True
    return False


def _find_lost_hosts(ray_cluster: Membership, address: str | None) -> list[str]:
    """Return the name of the host at `address`, or the hosts that Ray declares dead, which takes time."""

    def find_lost() -> list[str]:
        with contextlib.suppress(Problem):
            nodes = ray_cluster.ask("read")["nodes"]
            living_addresses = {node["address"] for node in nodes if node["alive"]}
            lost_hosts = (
                f"{node['name']} ({node['address']})"
                for node in nodes
                if (node["address"] == address if address else node["address"] not in living_addresses)
            )
            return list(dict.fromkeys(lost_hosts))
        return []

    limit_s = _ANSWER_LIMIT_S if address else _DECLARED_DEAD_LIMIT_S
    return wait_until(find_lost, limit_s, every_s=_QUERY_INTERVAL_S) or ([address] if address else [])


def wait_until_ray_ends() -> NoReturn:
    """Wait until a vital process of Ray ends, and raise a Problem; always end the rest."""
    try:
        vital_processes = _find_vital_processes()
        while all(process.is_alive for process in vital_processes) and membership.find_membership():
            time.sleep(_POLL_INTERVAL_S)
        ended_names = sorted(name for process, name in vital_processes.items() if not process.is_alive)
        log_file = (
            membership.get_ray_folder()
            / "session_latest"
            / "logs"
            / f"{ended_names[0] if ended_names else ''}.out"
        )
        last_lines = "it left no log"
        with contextlib.suppress(OSError):
            last_lines = "\n".join(
                log_file.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:]
            )
        raise Problem(
            "Ray has ended on this host",
            cause=f"{', '.join(ended_names) or 'its container'} is gone: {last_lines}",
            fix=f"read its logs: ls {membership.get_ray_folder()}/session_latest/logs",
        )
    finally:
        membership.end_ray()


class RayLost(Problem):
    """Ray itself has ended; all hosts may still be there."""


class RayWatch:
    """A check that raises a Problem for a model whose Ray is gone or was restarted.

    A head's Ray restarts within seconds and loses its ranks, which nothing else reports.
    """

    def __init__(self, ray_cluster: Membership) -> None:
        self._ray_cluster = ray_cluster
        self._vital_processes = _find_vital_processes()
        self._finder = FailedProcessFinder(STOPPED_LIMIT_S)
        host, _, port = ray_cluster.head.rpartition(":")
        self._head = (host.strip("[]"), int(port))
        self._checked_at = time.monotonic()
        self._refusal_count = 0

    def check(self) -> None:
        """Check, at most every second; call it often."""
        if time.monotonic() < self._checked_at + _POLL_INTERVAL_S:
            return
        self._checked_at = time.monotonic()
        ended_names = sorted(
            self._vital_processes[process] for process in self._finder.find(self._vital_processes)
        )
        if ended_names:
            raise self._ray_lost_problem(
                f"{', '.join(ended_names)} of Ray ended, or is stopped, on this host"
            )
        try:
            socket.create_connection(self._head, timeout=_PROBE_CONNECT_LIMIT_S).close()
            self._refusal_count = 0
        except ConnectionRefusedError as error:
            self._refusal_count += 1
            if self._refusal_count >= _MAX_REFUSALS:
                raise self._ray_lost_problem(
                    f"nothing listens at {self._ray_cluster.head} any more"
                ) from error
        except OSError:  # a link that is down may come back; the engine itself notices a loss
            pass

    def _ray_lost_problem(self, cause: str) -> RayLost:
        return RayLost(
            "the cluster's Ray has ended, and the model with it",
            cause=f"{cause}; a restarted Ray has lost the model's ranks",
            fix="medley up; then serve again; medley status shows the cluster",
        )


def _find_vital_processes() -> dict[ProcessIdentity, str]:
    """Find the vital processes; a Ray in a container has none, because it ends as a whole."""
    return {
        process: process.name for process in membership.find_processes() if process.name in VITAL_PROCESSES
    }
