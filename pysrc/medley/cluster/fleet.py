"""Send requests to all hosts of a cluster concurrently, and record every failure."""

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, Self

from medley.cluster import remote, ssh
from medley.cluster.cluster_file import Cluster
from medley.cluster.remote import Remote
from medley.cluster.self_command import get_own_command
from medley.errors import Problem
from medley.progress import SILENT, Progress

END_LIMIT_S = 60
Table = Mapping[str, Any]
BuildFields = Callable[[str], Table]


class Fleet:
    """Connections to the hosts of a cluster; a host that fails is in `failed`, and gets no more requests."""

    def __init__(
        self, cluster: Cluster, progress: Progress = SILENT, on_note: Callable[[str, str], None] | None = None
    ) -> None:
        """Connect to no host yet; `on_note` gets a host's name and note instead of `progress`."""
        self.cluster = cluster
        self._note = on_note or (lambda name, text: progress.note(f"{name}: {text}"))
        self.failed: dict[str, Problem] = {}
        self.remotes: dict[str, Remote] = {}
        self._pool = ThreadPoolExecutor(len(cluster.hosts))

    def __enter__(self) -> Self:
        """Connect; leaving ends all connections."""
        try:
            for name in self.cluster.hosts:
                with self.record_failure(name):  # without ssh, this host itself still answers
                    self.remotes[name] = connect_host(self.cluster, name)
            self._run_concurrently(self.remotes, lambda name: self.remotes[name].read_greeting())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect(self.remotes)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def disconnect(self, names: Iterable[str]) -> None:
        """End the connections to these hosts only."""
        leaving = [self.remotes[name] for name in names if name in self.remotes]
        for host in leaving:
            host.hang_up()
        for host in leaving:
            host.close()

    @property
    def answering_hosts(self) -> list[str]:
        return [name for name in self.remotes if name not in self.failed]

    def ask(
        self,
        request: str,
        build_fields: BuildFields = lambda _: {},
        *,
        limit_s: float,
        hosts: Iterable[str] | None = None,
    ) -> dict[str, Table]:
        """Return the answers by host; `build_fields` returns the fields of a host's request."""
        names = [name for name in self.answering_hosts if hosts is None or name in set(hosts)]
        return self._run_concurrently(
            names,
            lambda name: self.remotes[name].ask(
                request, build_fields(name), limit_s, lambda text: self._note(name, text)
            ),
        )

    def test_ports(
        self, addresses: Mapping[str, str], build_role_fields: BuildFields, limit_s: float
    ) -> dict[str, Table]:
        """Have these hosts listen and connect to each other; return the closed ports that each finds."""

        def build_listen_fields(name: str) -> Table:
            return {"address": addresses[name], **build_role_fields(name)}

        listening = self.ask("listen", build_listen_fields, limit_s=limit_s, hosts=addresses)
        ports_to_try = [
            [name, addresses[name], port] for name, answer in listening.items() for port in answer["ports"]
        ]

        def build_connect_fields(name: str) -> Table:
            return {
                "address": addresses[name],
                "places": [place for place in ports_to_try if place[0] != name],
            }

        return self.ask("connect", build_connect_fields, limit_s=limit_s, hosts=listening)

    @contextmanager
    def record_failure(self, name: str) -> Iterator[None]:
        try:
            yield
        except Problem as problem:
            self.failed[name] = problem

    def _run_concurrently(self, names: Iterable[str], ask: BuildFields) -> dict[str, Table]:
        futures = {name: self._pool.submit(ask, name) for name in names}
        answers = {}
        for name, future in futures.items():
            with self.record_failure(name):
                answers[name] = future.result()
        return answers


def format_host_count(hosts: Sized) -> str:
    return f"{len(hosts)} host{'' if len(hosts) == 1 else 's'}"


def connect_host(cluster: Cluster, name: str) -> Remote:
    if is_this_host(cluster, name):
        return remote.connect_local(name)
    target, program = cluster.get_ssh_target(name), cluster.hosts[name].medley
    program_words = (program,) if isinstance(program, str) else program
    # Without a path in cluster.toml: the same path as here, or the program on PATH.
    programs = (program_words,) if program_words else (get_own_command(), ("medley",))
    return Remote(name, target, ssh.build_ssh_command(target, programs, ("agent",)))


def is_this_host(cluster: Cluster, name: str) -> bool:
    """Return whether `name` is this host: by its name, or an address where only this host can listen."""
    target = cluster.get_ssh_target(name).rpartition("@")[2]
    if socket.gethostname() in {name, target}:
        return True
    with suppress(OSError, UnicodeError):  # UnicodeError: a label of a name is empty or too long
        family, *_, socket_address = socket.getaddrinfo(target, None, type=socket.SOCK_STREAM)[0]
        socket.create_server((str(socket_address[0]), 0), family=family).close()
        return True
    return False


def end_started_processes(fleet: Fleet, names: list[str], progress: Progress) -> None:
    """End the started processes on these hosts, over new connections."""
    if not names:
        return
    fleet.disconnect(names)
    hosts = {name: fleet.cluster.hosts[name] for name in names}
    with Fleet(fleet.cluster.replace(hosts=hosts), progress) as second_fleet:
        second_fleet.ask("end", lambda _: {"part": True}, limit_s=END_LIMIT_S)
        for name, problem in second_fleet.failed.items():
            progress.note(f"{name}: processes started there may still run ({problem.what})")
