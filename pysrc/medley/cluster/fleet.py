"""Ask all hosts of a cluster concurrently, and keep every failure."""

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, Self

from medley.cluster import Cluster, remote, ssh
from medley.cluster.remote import Remote
from medley.cluster.self_command import own_command
from medley.errors import Problem
from medley.progress import SILENT, Progress

END_LIMIT_S = 60
Table = Mapping[str, Any]
Asked = Callable[[str], Table]


class Fleet:
    """The hosts that answer; a host that does not is in `failed`, and is not asked again."""

    def __init__(
        self, cluster: Cluster, watch: Progress = SILENT, on_note: Callable[[str, str], None] | None = None
    ) -> None:
        """Connect to no host yet; `on_note` gets a host's name and note instead of the watch."""
        self.cluster = cluster
        self._note = on_note or (lambda name, text: watch.note(f"{name}: {text}"))
        self.failed: dict[str, Problem] = {}
        self.remotes: dict[str, Remote] = {}
        self._pool = ThreadPoolExecutor(len(cluster.hosts))

    def __enter__(self) -> Self:
        """Connect; leaving ends all connections."""
        try:
            for name in self.cluster.hosts:
                with self.failing(name):  # without ssh, this host itself still answers
                    self.remotes[name] = connection(self.cluster, name)
            self._each(self.remotes, lambda name: self.remotes[name].greeted())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.leave(self.remotes)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def leave(self, names: Iterable[str]) -> None:
        """End the connections to these hosts only."""
        left = [self.remotes[name] for name in names if name in self.remotes]
        for each in left:
            each.hang_up()
        for each in left:
            each.close()

    @property
    def present(self) -> list[str]:
        return [name for name in self.remotes if name not in self.failed]

    def ask(
        self, errand: str, asked: Asked = lambda _: {}, *, limit_s: float, among: Iterable[str] | None = None
    ) -> dict[str, Table]:
        """Return by name the answers of those that give one; `asked` makes each host's request."""
        chosen = [name for name in self.present if among is None or name in set(among)]
        return self._each(
            chosen,
            lambda name: self.remotes[name].ask(
                errand, asked(name), limit_s, lambda text: self._note(name, text)
            ),
        )

    def reach(self, addresses: Mapping[str, str], listen: Asked, limit_s: float) -> dict[str, Table]:
        """Have these hosts listen and connect to each other; returns the closed ports that each finds."""

        def own(name: str) -> Table:
            return {"address": addresses[name], **listen(name)}

        listening = self.ask("listen", own, limit_s=limit_s, among=addresses)
        places = [[name, addresses[name], port] for name, each in listening.items() for port in each["ports"]]

        def others(name: str) -> Table:
            return {"address": addresses[name], "places": [each for each in places if each[0] != name]}

        return self.ask("connect", others, limit_s=limit_s, among=listening)

    @contextmanager
    def failing(self, name: str) -> Iterator[None]:
        try:
            yield
        except Problem as problem:
            self.failed[name] = problem

    def _each(self, names: Iterable[str], answer: Asked) -> dict[str, Table]:
        running = {name: self._pool.submit(answer, name) for name in names}
        found = {}
        for name, future in running.items():
            with self.failing(name):
                found[name] = future.result()
        return found


def counted(hosts: Sized) -> str:
    return f"{len(hosts)} host{'' if len(hosts) == 1 else 's'}"


def connection(cluster: Cluster, name: str) -> Remote:
    if is_here(cluster, name):
        return remote.local_remote(name)
    target, program = cluster.target(name), cluster.hosts[name].medley
    words = (program,) if isinstance(program, str) else program
    programs = (words,) if words else (own_command(), ("medley",))  # where ours is, or on PATH
    return Remote(name, target, ssh.command(target, programs, ("agent",)))


def is_here(cluster: Cluster, name: str) -> bool:
    """Whether the host `name` is this one: by its name, or an address that only this one can listen at."""
    target = cluster.target(name).rpartition("@")[2]
    if socket.gethostname() in {name, target}:
        return True
    with suppress(OSError, UnicodeError):  # UnicodeError: a label of a name is empty or too long
        family, *_, where = socket.getaddrinfo(target, None, type=socket.SOCK_STREAM)[0]
        socket.create_server((str(where[0]), 0), family=family).close()
        return True
    return False


def withdraw(everyone: Fleet, names: list[str], watch: Progress) -> None:
    """End the started processes on these hosts, over new connections."""
    if not names:
        return
    everyone.leave(names)
    chosen = {name: everyone.cluster.hosts[name] for name in names}
    with Fleet(everyone.cluster.model_copy(update={"hosts": chosen}), watch) as again:
        again.ask("end", lambda _: {"part": True}, limit_s=END_LIMIT_S)
        for name, problem in again.failed.items():
            watch.note(f"{name}: processes started there may still run ({problem.what})")
