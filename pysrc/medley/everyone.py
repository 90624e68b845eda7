"""Everyone is the hosts of a cluster, asked at once: what each answers, and every failure, is kept."""

import socket
from collections.abc import Callable, Iterable, Mapping, Sized
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Self

from medley import remote
from medley.cluster import Cluster
from medley.problem import Problem
from medley.remote import Remote
from medley.watch import SILENT, Watch

END_LIMIT_S = 60
Asked = Callable[[str], Mapping[str, Any]]


class Everyone:
    """Those of its hosts that answer; who does not is in `failed`, and is not asked again."""

    def __init__(
        self,
        cluster: Cluster,
        watch: Watch = SILENT,
        on_note: Callable[[str, str], None] | None = None,
    ) -> None:
        """`on_note` is given a host's name and what it notes, in place of the watch."""
        self.cluster = cluster
        self._note = on_note or (lambda name, text: watch.note(f"{name}: {text}"))
        self.failed: dict[str, Problem] = {}
        self.remotes: dict[str, Remote] = {}
        self._pool = ThreadPoolExecutor(len(cluster.hosts))

    def __enter__(self) -> Self:
        """Connects; leaving closes all, in whatever they are."""
        try:
            for name in self.cluster.hosts:
                try:
                    self.remotes[name] = connection(self.cluster, name)
                except Problem as problem:  # there is no ssh here, and some of them may be this host
                    self.fail(name, problem)
            self._each(self.remotes, lambda name: self.remotes[name].greeted())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Whatever they are at."""
        self.leave(self.remotes)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def leave(self, names: Iterable[str]) -> None:
        """End the connections to these, whatever they are at; the others can be asked on."""
        left = [self.remotes[name] for name in names if name in self.remotes]
        for each in left:
            each.hang_up()
        for each in left:
            each.close()

    @property
    def present(self) -> list[str]:
        return [name for name in self.remotes if name not in self.failed]

    def ask(
        self, errand: str, asked: Asked, *, limit_s: float, among: Iterable[str] | None = None
    ) -> dict[str, Mapping[str, Any]]:
        """By name, the answers of those that give one; `asked` says what each is told."""
        chosen = [name for name in self.present if among is None or name in set(among)]
        return self._each(
            chosen,
            lambda name: self.remotes[name].ask(
                errand, asked(name), limit_s, lambda text: self._note(name, text)
            ),
        )

    def fail(self, name: str, problem: Problem) -> None:
        """It does not take part any more."""
        self.failed[name] = problem

    def _each(
        self, names: Iterable[str], answer: Callable[[str], Mapping[str, Any]]
    ) -> dict[str, Mapping[str, Any]]:
        running = {name: self._pool.submit(answer, name) for name in names}
        found = {}
        for name, future in running.items():
            try:
                found[name] = future.result()
            except Problem as problem:
                self.fail(name, problem)
        return found


def counted(hosts: Sized) -> str:
    return f"{len(hosts)} host{'' if len(hosts) == 1 else 's'}"


def connection(cluster: Cluster, name: str) -> Remote:
    """To one of its hosts, which may be this one."""
    if is_here(cluster, name):
        return remote.here(name)
    program = cluster.hosts[name].medley
    words = (program,) if isinstance(program, str) else program
    return remote.there(name, cluster.target(name), words)


def is_here(cluster: Cluster, name: str) -> bool:
    """Whether the host `name` is this one: by its name, or an address that only we can listen at."""
    target = cluster.target(name).rpartition("@")[2]
    if socket.gethostname() in {name, target}:
        return True
    with suppress(OSError):
        address = socket.getaddrinfo(target, None, socket.AF_INET)[0][4][0]
        socket.create_server((str(address), 0)).close()
        return True
    return False


def withdraw(everyone: Everyone, names: list[str], watch: Watch) -> None:
    """What was begun there and is not to be is ended, over connections that nothing else waits at."""
    if not names:
        return
    everyone.leave(names)
    chosen = {name: everyone.cluster.hosts[name] for name in names}
    with Everyone(everyone.cluster.model_copy(update={"hosts": chosen}), watch) as again:
        again.ask("end", lambda _: {"part": True}, limit_s=END_LIMIT_S)
        for name, problem in again.failed.items():
            watch.note(f"{name}: what was begun there may be left ({problem.what})")
